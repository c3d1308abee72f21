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


def test_requests_of_programs_need_none(app: App) -> None:
    assert app.operations.enqueue("pay", {}).is_new
