"""A SQLite file that others write to for longer than a ttl: who starts waits for it, and who lives goes on."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fencepost import App
from fencepost.core.events import Event, What
from fencepost.testing import until

_TTL = "2s"  # shorter than a call to the file, which is given 3 s


@contextmanager
def kept_busy(file: Path) -> Iterator[Callable[[], None]]:
    """Write to the file and do not end it; whoever gets the function may end it before."""
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=30)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        yield lambda: writer.execute("COMMIT").close()


@pytest.mark.parametrize("name", ["app.db", "app.leases.db"])
def test_a_node_that_starts_while_others_write_for_long_starts_when_they_end(tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path}/app.db?accept_risk=one-machine"
    told: list[Event] = []
    before = App(url, ttl=_TTL)
    before.start()
    before.close()  # the files are there
    app = App(url, ttl=_TTL, observers=[told.append])
    note = app.job(name="note")(lambda: None)
    with kept_busy(tmp_path / name) as end:
        starting = threading.Thread(target=app.start)
        starting.start()
        until(lambda: any("starts when it answers" in (event.reason or "") for event in told), 60, what="it waits")
        assert not app.is_running
        end()
    starting.join(60)
    assert app.is_running
    made = note.enqueue()
    until(lambda: app.operations.run(made.run_id).state == "succeeded", 60, what="it works")
    app.close()


def test_a_node_outlives_a_lease_file_that_others_write_to_for_longer_than_its_ttl(tmp_path: Path) -> None:
    told: list[Event] = []
    app = App(f"sqlite:///{tmp_path}/app.db?accept_risk=one-machine", ttl=_TTL, observers=[told.append])
    note = app.job(name="note")(lambda: None)

    def heard(what: What) -> int:
        return sum(event.what is what for event in told)

    app.start()
    with kept_busy(tmp_path / "app.leases.db") as end:
        until(lambda: heard(What.NODE_LOST), 60, what="its ttl has passed")
        assert app.is_running
        end()
    until(lambda: heard(What.NODE_JOINED) == 2, 60, what="it joins again")
    made = note.enqueue()
    until(lambda: app.operations.run(made.run_id).state == "succeeded", 60, what="it works")
    assert sum(node.is_living for node in app.operations.nodes()) == 1
    app.close()
