"""A run that begins to wait for a key while the holder's last transaction is open, under a snapshot from before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from fencepost import App
from fencepost.core.runs import Claim, Ending
from fencepost.engine import reaper
from fencepost.ledger.finishing import finish
from fencepost.testing import Stopwatch, until
from tests.app.test_transaction import Stand, stand

__all__ = ["stand"]

WITHIN_S = 3.0


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url)
    yield app
    app.close()


@pytest.fixture(params=["repeatable read", "serializable"])
def isolation(request: pytest.FixtureRequest, kind: str) -> str:
    if kind == "sqlite":
        pytest.skip("while a transaction writes, nobody begins to wait")
    return str(request.param)


@contextmanager
def last_transaction(stand: Stand, claimed: Claim) -> Iterator[None]:
    with stand.run_of(claimed).transaction(final=True) as tx:
        stand.write(tx)  # and its snapshot is taken
        yield


def test_the_next_in_line_is_queued_when_the_end_is_told(stand: Stand, isolation: str) -> None:
    handle = stand.app.job(name="settle", exclusive="one", isolation=isolation)(lambda: None)
    handle.enqueue()
    [claimed] = stand.claimed()
    with last_transaction(stand, claimed):
        second = handle.enqueue().run_id
        assert stand.claimed() == []
        assert stand.app.operations.run(second).waits_for == "key"
    told = Ending(claimed.run_id, claimed.attempt, claimed.token, "succeeded", "succeeded", 5, exclusive_key="one")
    assert finish(stand.connection, [told]).refused == []
    assert [each.run_id for each in stand.claimed()] == [second]


def test_whoever_is_killed_before_it_tells_keeps_nobody_waiting(
    stand: Stand, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody tells the end of the first run: its process is gone with the commit."""
    monkeypatch.setattr(reaper, "promote_stranded", lambda connection: 0)  # it comes by once a minute
    handle = stand.app.job(name="settle", exclusive="one", isolation=isolation)(lambda: None)
    handle.enqueue()
    [claimed] = stand.claimed()
    with ExitStack() as others:
        with last_transaction(stand, claimed):
            second = handle.enqueue().run_id
            others.enter_context(stand.app.running(grace="1s"))
            until(lambda: stand.app.operations.run(second).waits_for == "key", 20, "it waits")
        with Stopwatch() as since:
            until(lambda: stand.app.operations.run(second).state == "succeeded", 10 * WITHIN_S, "the next run has run")
            assert since.awake_s < WITHIN_S
