"""Hints: who sleeps is woken by what others do, and sleeps on in peace when the connection is gone."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import psycopg
import pytest

from fencepost.core.runs import Requested
from fencepost.core.schedule import every, schedule_to_json
from fencepost.ledger import schedules
from fencepost.ledger.claiming import claim
from fencepost.ledger.deploys import sync_code
from fencepost.ledger.dialects.postgres_listening import LedgerListener
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.schedule_rows import NewSchedule
from fencepost.ledger.serving import Served, bring_back
from fencepost.ledger.waking import Listener, listener
from fencepost.testing import until
from testbed.postgres import Postgres
from tests.ledger.scene import Scene, ending, handed_back, replaces

LONG_S = 20.0


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


@contextmanager
def listening(ledger: Ledger) -> Iterator[Listener]:
    """A listener that hears already."""
    here = listener(ledger)
    here.wait(0.05)
    yield here
    here.close()
    here.wait(0)  # who waits closes the connection


class Waiting:
    """A thread that waits for a hint."""

    def __init__(self, here: Listener) -> None:
        self.answer: bool | None = None
        self._here = here
        self._thread = threading.Thread(target=self._wait)
        self._thread.start()

    def ends(self) -> bool | None:
        self._thread.join(LONG_S / 2)
        return self.answer

    def _wait(self) -> None:
        self.answer = self._here.wait(LONG_S)


class TestEverywhere:
    def test_wake_ends_a_wait(self, ledger: Ledger) -> None:
        with listening(ledger) as here:
            waiting = Waiting(here)
            here.wake()
            assert waiting.ends() is True

    def test_close_ends_a_wait_and_all_later_ones(self, ledger: Ledger) -> None:
        with listening(ledger) as here:
            waiting = Waiting(here)
            here.close()
            assert waiting.ends() is False
            assert here.wait(LONG_S) is False

    def test_wait_without_a_hint_ends_in_time(self, ledger: Ledger) -> None:
        with listening(ledger) as here:
            began = time.monotonic()
            assert here.wait(0.1) is False
            assert 0.09 <= time.monotonic() - began < LONG_S / 2

    def test_wakes_at_once_are_one(self, ledger: Ledger) -> None:
        with listening(ledger) as here:
            for _ in range(100_000):
                here.wake()
            assert here.wait(LONG_S) is True
            while here.wait(0.05):  # what did not fit into one reading
                pass


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
class TestNotifications:
    def test_promoted_run_wakes(self, scene: Scene) -> None:
        scene.add(*[Requested("job", "manual", exclusive_key="k")] * 2)
        [claimed] = scene.claim().claims
        with listening(scene.ledger) as here:
            waiting = Waiting(here)
            scene.finish(ending(claimed))
            assert waiting.ends() is True

    def test_run_that_is_handed_back_wakes_those_who_could_take_it(self, scene: Scene) -> None:
        scene.add_one()
        claimed = scene.claim_one()
        with listening(scene.ledger) as here:
            waiting = Waiting(here)
            scene.finish(handed_back(claimed))
            assert waiting.ends() is True

    def test_holder_to_be_stopped_is_told(self, scene: Scene) -> None:
        scene.add_one(exclusive_key="k")
        scene.claim()
        scene.add_one(exclusive_key="k")
        with listening(scene.ledger) as here:
            waiting = Waiting(here)
            claim(scene.connection, node="other", jobs=("job",), queues=("default",), limit=1, decide=replaces)
            assert waiting.ends() is True

    @pytest.mark.parametrize("what", ["made", "changed", "resumed", "declared", "served again"])
    def test_due_time_that_no_look_has_shown_wakes(self, scene: Scene, what: str) -> None:
        """Another node may plan it and not take it: who slept found the run with its next look, up to 3 s late."""
        ledger, new = scene.ledger, NewSchedule("s", "job", schedule_to_json(every("5s")))
        if what not in ("made", "declared"):
            schedules.put(ledger, new)
        if what == "resumed":
            schedules.pause(ledger, "s")
        if what == "served again":
            scene.change("UPDATE {schedule} SET no_node_since = 1")
        act: Callable[[], object] = {
            "made": lambda: schedules.put(ledger, new),
            "changed": lambda: schedules.put(ledger, new._replace(spec=schedule_to_json(every("3s")))),
            "resumed": lambda: schedules.resume(ledger, "s"),
            "declared": lambda: sync_code(ledger, generation=1, jobs=["job"], schedules=[new]),
            "served again": lambda: bring_back(scene.connection, Served([(["job"], ["default"])])),
        }[what]
        with listening(ledger) as here:
            waiting = Waiting(here)
            act()
            assert waiting.ends() is True

    def test_schedule_that_is_not_planned_wakes_nobody(self, scene: Scene) -> None:
        ledger, new = scene.ledger, NewSchedule("s", "job", schedule_to_json(every("5s")))
        schedules.put(ledger, new)
        with listening(ledger) as here:
            while here.wait(0.05):
                pass
            schedules.pause(ledger, "s")
            schedules.put(ledger, new._replace(params='{"a":1}'))
            assert here.wait(0.2) is False

    def test_who_waits_lets_go_of_the_connection_when_closed(self, scene: Scene) -> None:
        with listening(scene.ledger) as here:
            assert isinstance(here, LedgerListener)
            channel = here._channel
            assert channel is not None
            waiting = Waiting(here)
            here.close()
            assert waiting.ends() is False
            assert channel.connection.closed

    def test_another_ledgers_news_are_not_ours(self, scene: Scene, postgres: Postgres) -> None:
        with listening(scene.ledger) as here, psycopg.connect(postgres.url, autocommit=True) as other:
            other.execute("NOTIFY public_other_news")
            assert here.wait(0.2) is False

    def test_many_notifications_are_few_hints(self, scene: Scene) -> None:
        with listening(scene.ledger) as here:
            for _ in range(200):
                scene.connection.write(scene.statements.notify)
            began, hints = time.monotonic(), 0
            while here.wait(0.1):
                hints += 1
            assert 1 <= hints <= (time.monotonic() - began) / 0.02 + 1

    def test_cut_connection_is_opened_anew_without_a_word(self, scene: Scene, postgres: Postgres) -> None:
        with listening(scene.ledger) as here, psycopg.connect(postgres.url, autocommit=True) as admin:
            assert isinstance(here, LedgerListener)
            old = here._channel
            assert old is not None
            admin.execute("SELECT pg_terminate_backend(%s)", (old.connection.info.backend_pid,))
            until(lambda: here.wait(0.1) is not None and here._channel not in (None, old), LONG_S, "listens again")
            waiting = Waiting(here)
            scene.connection.write(scene.statements.notify)
            assert waiting.ends() is True


def test_ledger_that_is_away_is_asked_for_less_and_less_often() -> None:
    from fencepost.ledger.ledger import open_ledger
    from tests.servers import RUNTIME

    here = listener(open_ledger("postgresql://nobody@127.0.0.1:1/none", RUNTIME))
    assert isinstance(here, LedgerListener)
    dials = []
    dial = here._dialect.dial
    here._dialect.dial = lambda timeout_s=None: dials.append(time.monotonic()) or dial(timeout_s)  # type: ignore[method-assign]
    while len(dials) < 3:
        assert here.wait(0.05) is False
    here.close()
    first_s, second_s = (later - earlier for earlier, later in pairwise(dials))
    assert first_s >= 0.45
    assert second_s >= 0.9


def test_hints_are_heard_in_a_process_with_more_descriptors_than_select_takes() -> None:
    from fencepost.ledger.ledger import open_ledger
    from tests.servers import RUNTIME

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limits[1]), limits[1]))
    many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        here = listener(open_ledger("postgresql://nobody@127.0.0.1:1/none", RUNTIME))
        here.wake()
        assert here.wait(LONG_S) is True
        here.close()
    finally:
        for descriptor in many:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
