"""Jobs that want a reason for each act of a person: without one nothing is done, and nothing is in the audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost import App, every
from fencepost.app.composing import publish
from fencepost.app.operations import Operations
from fencepost.errors import InvalidParameters


@pytest.fixture
def app(ledger_url: str) -> Iterator[App]:
    app = App(ledger_url)
    app.job(every("1h"), name="pay", reason="always")(lambda: None)
    app.job(every("1h"), name="report")(lambda: None)
    publish(app)
    yield app
    app.close()


Act = Callable[[Operations, str, int, Any], Any]
ACTS: dict[str, Act] = {
    "trigger": lambda ops, job, _, why: ops.trigger(job, by="ann", reason=why, again=True),
    "cancel": lambda ops, _, run, why: ops.cancel(run, by="ann", reason=why),
    "backfill": lambda ops, job, _, why: ops.backfill(
        job, "2026-01-01T00:00Z", "2026-01-01T02:00Z", by="ann", reason=why
    ),
    "pause": lambda ops, job, _, why: ops.schedules.pause(job, by="ann", reason=why),
    "put": lambda ops, job, _, why: ops.schedules.put(f"{job}:2", job, every("2h"), by="ann", reason=why),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("reason", [None, "  "])
def test_act_without_a_reason_is_refused_and_leaves_nothing(app: App, act: str, reason: str | None) -> None:
    ops = app.operations
    run = ops.trigger("pay", by="ann", reason="asked by phone").run_id
    before = (ops.runs(), list(ops.schedules.iterate()), ops.journal(), ops.audit.entries())
    with pytest.raises(InvalidParameters, match="job 'pay' wants a reason for each act"):
        ACTS[act](ops, "pay", run, reason)
    assert (ops.runs(), list(ops.schedules.iterate()), ops.journal(), ops.audit.entries()) == before
    ACTS[act](ops, "pay", run, "the bank has called")
    assert ops.audit.entries()[0].reason == "the bank has called"


@pytest.mark.parametrize("act", ACTS)
def test_jobs_that_do_not_want_one_need_none(app: App, act: str) -> None:
    run = app.operations.trigger("report", by="ann").run_id
    ACTS[act](app.operations, "report", run, None)


ACTS_OF_ALL: dict[str, Act] = ACTS | {
    "pause queue": lambda ops, _, __, why: ops.pauses.pause(None, by="ann", reason=why),
    "acknowledge": lambda ops, _, __, why: ops.concerns.acknowledge(
        "no-node", ops.concerns.list()[0].id, by="ann", note=why
    ),
}


@pytest.mark.parametrize("act", ACTS_OF_ALL)
def test_reason_that_is_too_long_is_refused_and_leaves_nothing(app: App, act: str) -> None:
    ops = app.operations
    run = ops.trigger("report", by="ann").run_id
    before = (ops.runs(), list(ops.schedules.iterate()), ops.pauses.list(), ops.journal(), ops.audit.entries())
    with pytest.raises(InvalidParameters, match="a reason has 1,000 characters at most"):
        ACTS_OF_ALL[act](ops, "report", run, "w" * 1001)
    after = (ops.runs(), list(ops.schedules.iterate()), ops.pauses.list(), ops.journal(), ops.audit.entries())
    assert after == before
    ACTS_OF_ALL[act](ops, "report", run, "w" * 1000)
    assert ops.audit.entries()[0].reason == "w" * 1000


def test_new_reason_of_a_pause_with_the_same_end_is_stored_and_noted(app: App) -> None:
    ops = app.operations
    first = ops.schedules.pause("report", by="ann", reason="the disk is full")
    for reason in ("the disk is broken", "the disk is broken", None):
        paused = ops.schedules.pause("report", by="bob", reason=reason)
        assert (paused.pause_reason, paused.paused_by, paused.paused_at) == (
            "the disk is broken",
            "bob",
            first.paused_at,
        )
    noted = [(each.who, each.reason) for each in ops.audit.entries(act="schedule paused")]
    assert noted == [("bob", "the disk is broken"), ("ann", "the disk is full")]


def test_queue_without_a_name_is_not_everything(app: App) -> None:
    app.operations.pauses.pause(None, by="ann", reason="why")
    with pytest.raises(InvalidParameters, match="None is everything"):
        app.operations.pauses.resume("", by="ann")
    assert len(app.operations.pauses.list()) == 1


def test_requests_of_programs_need_none(app: App) -> None:
    assert app.operations.enqueue("pay", {}).is_new
