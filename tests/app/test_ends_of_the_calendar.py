"""Times at the ends of all dates: what is asked for is refused, and what is stored all the same breaks nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost import App, Retry, cron
from fencepost.app.composing import publish
from fencepost.core.report import report_of_error
from fencepost.errors import InvalidDuration, InvalidParameters, InvalidTick
from fencepost.testing import until
from tests.access.scene import set_run

OUTSIDE = "is outside the calendar, which runs from 1970 to 2199"
TIMES = (
    "0001-01-01T00:00+23:00",
    "0001-01-01T00:00Z",
    "1969-12-31T23:59Z",
    "2200-01-01T00:00Z",
    "9999-12-31T23:59Z",
    "9999-12-31T23:59-23:00",
)
STORED = (-(2**62), -62_135_596_800_000_000, 253_402_300_799_999_999, 2**62)  # the first and last date are dates


@pytest.fixture
def app(url: str) -> Iterator[App]:
    made = App(url, ttl="2s")

    @made.job(cron("0 3 * * *"), sla="1h")
    def settle(account: int = 1) -> None: ...

    publish(made)
    yield made
    made.close()


REQUESTS: dict[str, Callable[[App, str], Any]] = {
    "trigger": lambda app, at: app.operations.trigger("settle", by="ann", at=at),
    "enqueue": lambda app, at: app.enqueue("settle", at=at),
    "backfill": lambda app, at: app.operations.backfill("settle", at, at, by="ann"),
    "reversed backfill": lambda app, at: app.operations.would_backfill("settle", "2026-01-01T00:00Z", at),
    "runs": lambda app, at: app.operations.runs(since=at),
    "figures": lambda app, at: app.operations.figures("settle", since=at),
    "why": lambda app, at: app.operations.why("settle", at),
    "journal": lambda app, at: app.operations.journal(since=at),
    "reprocess": lambda app, at: app.operations.reprocess(by="ann", until=at),
    "pause": lambda app, at: app.operations.schedules.pause("settle", by="ann", until=at),
    "prune": lambda app, at: app.operations.audit.prune(before=at, by="ann", reason="old"),
}


@pytest.mark.parametrize("request_", REQUESTS)
def test_time_outside_of_the_calendar_is_refused_with_a_sentence(app: App, request_: str) -> None:
    for at in TIMES:
        with pytest.raises(InvalidTick, match=OUTSIDE):
            REQUESTS[request_](app, at)
    assert app.operations.runs() == []


def test_delay_that_ends_outside_of_the_calendar_is_refused_and_one_within_is_not(app: App) -> None:
    for delay in ("70000d", "3000000d", "99999999999d", "9" * 39 + "d", 1e10, 1e305):
        with pytest.raises(InvalidParameters, match=f"delay .* from now {OUTSIDE}"):
            app.operations.trigger("settle", by="ann", delay=delay)
        with pytest.raises(InvalidParameters, match=f"delay .* from now {OUTSIDE}"):
            app.enqueue("settle", delay=delay)
    for endless in (10**400, 10**5000, "9" * 400 + "d"):
        with pytest.raises(InvalidDuration, match=r"delay .* must be zero or more, and finite"):
            app.enqueue("settle", delay=endless)
    assert app.operations.trigger("settle", by="ann", delay="60000d", again=True).is_new
    assert app.operations.trigger("settle", by="ann", at="2199-12-31T23:59:59Z", again=True).is_new
    assert [each.sla_at.year for each in app.operations.runs() if each.sla_at] == [2200, 2191]


def test_stored_time_that_is_no_date_breaks_no_list(app: App) -> None:
    for stored in STORED:
        run = app.operations.trigger("settle", by="ann", again=True).run_id
        set_run(app, run, available_at=stored, sla_at=stored)
        assert app.operations.run(run).available_at.year in (1, 9999)
    ops = app.operations
    assert len(ops.runs()) == len(ops.find_runs().runs) == 4
    assert ops.concerns.list()


def test_node_runs_what_was_due_before_all_dates_and_goes_on(app: App) -> None:
    run = app.operations.trigger("settle", by="ann").run_id
    set_run(app, run, available_at=-(10**17), sla_at=2**62)
    app.start()
    until(lambda: app.operations.run(run).state == "succeeded", 20, "the run that was due before all dates")
    other = app.operations.trigger("settle", by="ann").run_id
    until(lambda: app.operations.run(other).state == "succeeded", 20, "the run after it")


def test_retry_after_a_time_that_no_column_holds_is_reported_as_a_long_one() -> None:
    assert 2**58 < (report_of_error(Retry(after=1e305)).retry_after_us or 0) < 2**59
