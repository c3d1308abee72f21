"""Schedules at run time, on each database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fencepost import App, cron, every
from fencepost.app.composing import publish
from fencepost.errors import InvalidName, InvalidParameters, InvalidSchedule, LedgerRefused, NoSuchJob, NoSuchSchedule


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url)

    @app.job(cron("0 3 * * *"), params={"customer": 1})
    def report(customer: int) -> None: ...

    publish(app)
    yield app
    app.close()


def test_a_schedule_can_be_made_changed_and_deleted_while_everything_runs(app: App) -> None:
    made = app.schedules.put("report:42", "report", every("1h"), params={"customer": 42}, by="ann")
    assert (made.id, made.job, made.schedule, made.params) == ("report:42", "report", every("1h"), {"customer": 42})
    assert not made.is_in_code
    assert made.next_due_at is not None
    changed = app.schedules.put("report:42", "report", every("2h"), params={"customer": 42})
    assert app.schedules.get("report:42") == changed
    assert changed.schedule == every("2h")
    app.schedules.delete("report:42", by="ann")
    with pytest.raises(NoSuchSchedule):
        app.schedules.get("report:42")


def test_schedules_of_the_code_and_of_the_run_time_are_listed_together(app: App) -> None:
    app.schedules.put("report:7", "report", every("1h"), params={"customer": 7})
    assert [(each.id, each.is_in_code) for each in app.schedules.list()] == [("report", True), ("report:7", False)]
    assert [each.id for each in app.schedules.list(after_id="report")] == ["report:7"]
    assert app.schedules.list(job="other") == []


def test_a_paused_schedule_says_since_when_by_whom_and_why(app: App) -> None:
    paused = app.schedules.pause("report", by="ann", reason="month-end")
    assert (paused.paused_by, paused.pause_reason, paused.next_due_at) == ("ann", "month-end", None)
    assert "(paused)" in str(paused)
    resumed = app.schedules.resume("report", by="bob")
    assert resumed.paused_at is None
    assert resumed.next_due_at is not None
    acts = [(entry.what, entry.by) for entry in app.operations.journal()]
    assert acts[:2] == [("schedule resumed", "bob"), ("schedule paused", "ann")]


def test_a_schedule_of_the_code_is_changed_in_the_code(app: App) -> None:
    with pytest.raises(LedgerRefused, match="stands in the code"):
        app.schedules.put("report", "report", every("1h"), params={"customer": 1})


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (("x", "report", every("1h"), {}), InvalidParameters, "'customer' must be given"),
        (("x", "nobody", every("1h"), {}), NoSuchJob, "'nobody'"),
        (("x y", "report", every("1h"), {"customer": 1}), InvalidName, "schedule id 'x y'"),
        (("x", "report", "1h", {"customer": 1}), InvalidSchedule, "is a text"),
        (("x", "report", None, {"customer": 1}), InvalidSchedule, "no schedule"),
    ],
)
def test_bad_schedules_are_refused(app: App, given: Any, error: type[Exception], says: str) -> None:
    name, job, schedule, params = given
    with pytest.raises(error, match=says):
        app.schedules.put(name, job, schedule, params=params)
    assert [each.id for each in app.schedules.list()] == ["report"]


def test_an_older_deploy_leaves_the_schedules_of_a_newer_one_alone(url: str) -> None:
    told: list[Any] = []

    def deployed(generation: int, interval: str) -> App:
        app = App(url, generation=generation, observers=[told.append])
        app.job(every(interval), name="tick")(lambda: None)
        publish(app)
        return app

    newer, older = deployed(2, "5m"), deployed(1, "1h")
    assert newer.schedules.get("tick").schedule == every("5m")
    assert any("later deploy" in (event.reason or "") for event in told)
    newest = deployed(3, "2h")
    assert newest.schedules.get("tick").schedule == every("2h")
    for app in (newer, older, newest):
        app.close()


def test_a_schedule_that_left_the_code_is_deleted_by_the_next_deploy(url: str) -> None:
    before = App(url)
    before.job(every("1h"), name="tick")(lambda: None)
    publish(before)
    after = App(url)
    after.job(name="tick")(lambda: None)
    publish(after)
    assert after.schedules.list() == []
    before.close()
    after.close()
