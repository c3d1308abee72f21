"""What is reported of runs that go well: to those who want to hear it, and after the ledger has taken it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from fencepost import App
from fencepost.core.events import Event, What
from fencepost.leases.observers import Observers
from fencepost.ledger.ledger import Ledger
from fencepost.observe.logs import log_event, show_every_run
from tests.engine.exchange_stand import Stand, stand

EVERY_RUN = (What.RUN_STARTED, What.RUN_SUCCEEDED, What.RUN_RETURNED)


@pytest.fixture
def made(ledger: Ledger) -> Iterator[Stand]:
    with stand(ledger) as one:
        one.wanted = EVERY_RUN
        yield one


def told(stand: Stand) -> list[tuple[What, int | None]]:
    return [(event.what, event.run_id) for event in stand.events]


def test_a_run_is_reported_when_it_is_given_to_a_runner_and_when_the_ledger_has_its_success(made: Stand) -> None:
    [run] = made.add()
    made.settle()
    assert told(made) == [(What.RUN_STARTED, run)]
    made.runner.end_all(took_us=1_500_000)
    made.settle()
    started, ended = made.events
    assert (ended.what, ended.run_id, ended.job, ended.took_s) == (What.RUN_SUCCEEDED, run, "work", 1.5)
    assert (started.attempt, started.token) == (ended.attempt, ended.token)


def test_a_success_that_the_ledger_refuses_is_not_reported_as_one(made: Stand) -> None:
    [run] = made.add()
    made.settle()
    made.scene.change("UPDATE {run} SET token = token + 1 WHERE id = %s", run)
    made.runner.end_all()
    made.settle()
    assert told(made) == [(What.RUN_STARTED, run), (What.RUN_REFUSED, run)]


def test_a_run_that_was_never_begun_is_reported_as_handed_back(made: Stand) -> None:
    [run] = made.add()
    made.settle()
    made.runner.slots = 0
    made.runner.end_all("returned")
    made.settle()
    assert told(made) == [(What.RUN_STARTED, run), (What.RUN_RETURNED, run)]


def test_where_nobody_listens_nothing_is_built(made: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.engine.run_events.Event", None)
    made.wanted = ()
    made.add()
    made.settle()
    made.runner.end_all()
    made.settle()
    assert made.events == []


def test_the_log_wants_runs_that_go_well_only_where_somebody_watches(caplog: pytest.LogCaptureFixture) -> None:
    def heard(event: Event) -> None: ...

    with caplog.at_level(logging.INFO, "fencepost.engine"):
        assert not Observers([log_event]).wants(What.RUN_STARTED)
        assert Observers([log_event, heard]).wants(What.RUN_STARTED)
        assert App("memory://", observers=[heard]).wants(What.RUN_SUCCEEDED)
        try:
            show_every_run()
            assert Observers([log_event]).wants(What.RUN_STARTED)
        finally:
            show_every_run(False)
    with caplog.at_level(logging.DEBUG, "fencepost.engine"):
        assert Observers([log_event]).wants(What.RUN_SUCCEEDED)
