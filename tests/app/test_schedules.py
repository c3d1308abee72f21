"""Schedules at run time, on each database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fencepost import App, cron, every
from fencepost.app.composing import declared_by, publish
from fencepost.core.overlap import START, WAIT
from fencepost.core.schedule import schedule_to_json
from fencepost.engine.requesting import on_record
from fencepost.errors import (
    InvalidName,
    InvalidParameters,
    InvalidSchedule,
    LedgerRefused,
    LedgerUnavailable,
    NoSuchJob,
    NoSuchSchedule,
)
from fencepost.ledger.claiming import claim
from fencepost.ledger.declared import apply
from fencepost.ledger.deploys import sync_code
from fencepost.ledger.schedule_rows import NewSchedule
from testbed.wait import until


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


def test_the_end_of_a_pause_is_a_time_or_a_duration_in_the_future(app: App) -> None:
    paused = app.schedules.pause("report", by="ann", duration="2h")
    assert paused.paused_at is not None
    assert paused.paused_until is not None
    assert 7190 < (paused.paused_until - paused.paused_at).total_seconds() < 7210
    [answer] = app.operations.why("report", paused.paused_until.replace(hour=3, minute=0, second=0, microsecond=0))
    assert paused.paused_until.isoformat()[:16] in answer.sentence or answer.became == "before its time"
    assert app.schedules.pause("report", by="ann", until="2030-01-01T00:00Z").paused_until is not None
    for wrong in ({"until": "2020-01-01T00:00Z"}, {"duration": 0}, {"duration": "99999999d"}):
        with pytest.raises(InvalidParameters, match="a pause"):
            app.schedules.pause("report", by="ann", **wrong)
    with pytest.raises(InvalidParameters, match="not both"):
        app.schedules.pause("report", by="ann", until="2030-01-01T00:00Z", duration="1h")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"], indirect=True)
def test_a_node_resumes_a_schedule_when_its_pause_ends(url: str) -> None:
    app = App(url, ttl="6s")
    app.command("tick", ["true"], every("1s"))
    with app.running():
        app.schedules.pause("tick", by="ann", duration="1s")
        until(lambda: app.schedules.get("tick").next_due_at is not None, 30, what="it is planned again")
        until(lambda: app.operations.runs(states=["succeeded"]), 30, what="it runs again")
    entries = app.operations.journal(what="schedule resumed")
    assert [entry.by for entry in entries] == [None]
    assert [run.why for run in app.operations.runs(states=["skipped"])][-1] == "paused"
    app.close()


def test_a_schedule_of_the_code_is_changed_in_the_code(app: App) -> None:
    with pytest.raises(LedgerRefused, match="is declared in the code"):
        app.schedules.put("report", "report", every("1h"), params={"customer": 1})


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (("x", "report", every("1h"), {}), InvalidParameters, "'customer' must be given"),
        (("x", "nobody", every("1h"), {}), NoSuchJob, "'nobody'"),
        (("x y", "report", every("1h"), {"customer": 1}), InvalidName, "schedule id 'x y'"),
        (("x", "report", "1h", {"customer": 1}), InvalidSchedule, "is a text"),
        (("x", "report", None, {"customer": 1}), InvalidSchedule, "is not a schedule"),
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


def _deployed(url: str, interval: str, *, name: str = "tick", generation: int = 0) -> App:
    app = App(url, ttl="6s", generation=generation)
    app.command(name, ["true"], every(interval))
    app.start()
    return app


def test_a_restarted_node_of_an_older_deploy_reverts_nothing_while_a_newer_one_lives(url: str) -> None:
    older = _deployed(url, "1h")
    newer = _deployed(url, "2h")
    assert newer.schedules.get("tick").schedule == every("2h")
    older.close()
    restarted = _deployed(url, "1h")
    assert restarted.schedules.get("tick").schedule == every("2h")
    for app in (newer, restarted):
        app.close()


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_deploys_of_one_number_do_not_take_turns_in_writing(url: str) -> None:
    older, newer = (_deployed(url, interval, generation=7) for interval in ("1h", "2h"))
    for _ in range(2):
        for app in (newer, older):
            apply(app.ledger, declared_by(app), is_start=False)
            assert app.schedules.get("tick").schedule == every("2h")
    for app in (newer, older):
        app.close()


def test_a_job_that_stands_as_declared_is_no_reason_for_a_warning_about_a_later_deploy(url: str) -> None:
    told: list[Any] = []

    def program(interval: str) -> App:
        app = App(url, ttl="6s", observers=[told.append])
        app.command("same", ["true"], every("5h"))
        app.command("tick", ["true"], every(interval))
        return app

    older, newer, restarted = program("1h"), program("2h"), program("1h")
    publish(older)
    newer.start()
    publish(restarted)
    assert [event.job for event in told if "nodes of a later deploy have this job" in (event.reason or "")] == ["tick"]
    for app in (older, newer, restarted):
        app.close()


def test_declarations_are_stored_once_more_if_the_ledger_did_not_answer(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server ends the transaction of a process that was slow: that must not end the start of a node."""
    times: list[int] = []

    def losing(*values: Any) -> Any:
        times.append(len(times))
        applied = apply(*values)
        if times[-1] == 0 or len(times) > 2:
            raise LedgerUnavailable("the reply was lost")
        return applied

    monkeypatch.setattr("fencepost.app.composing.apply", losing)
    app = App(url)
    app.command("tick", ["true"], every("1h"))
    publish(app)
    assert (len(times), app.schedules.get("tick").schedule) == (2, every("1h"))
    with pytest.raises(LedgerUnavailable):
        publish(app)
    app.close()


def test_when_the_last_node_of_a_later_deploy_has_left_those_that_are_left_apply_theirs(url: str) -> None:
    older = _deployed(url, "1h")
    newer = _deployed(url, "2h")
    again = _deployed(url, "2h")
    newer.close()
    assert older.schedules.get("tick").schedule == every("2h")
    again.close()
    until(lambda: older.schedules.get("tick").schedule == every("1h"), 30, what="the roll-back is applied")
    [applied, *_] = older.operations.journal()
    assert (applied.what, applied.schedule) == ("schedule changed", "tick")
    assert "no node of a later deploy is left" in (applied.reason or "")
    older.close()


def test_a_later_program_with_other_jobs_makes_nobody_yield(url: str) -> None:
    first = _deployed(url, "1h")
    other = _deployed(url, "2h", name="sweep")
    first.close()
    changed = _deployed(url, "3h")
    changed.close()
    back = _deployed(url, "1h")
    assert back.schedules.get("tick").schedule == every("1h")
    for app in (other, back):
        app.close()


def test_what_somebody_wrote_over_a_later_deploy_is_put_right_by_its_nodes(url: str) -> None:
    newer = _deployed(url, "2h")
    stray = App(url, generation=0)
    stray.command("tick", ["true"], every("1h"))
    jobs = [on_record(job) for job in stray.jobs.values()]
    schedule = NewSchedule("tick", "tick", schedule_to_json(every("1h")), "{}")
    sync_code(stray.ledger, generation=0, jobs=[jobs[0].name], schedules=[schedule])  # as older versions do
    joined = _deployed(url, "5h", name="sweep")  # nodes look when others come
    until(lambda: newer.schedules.get("tick").schedule == every("2h"), 30, what="its own form is back")
    for app in (joined, stray, newer):
        app.close()


def test_an_operators_run_waits_for_a_run_of_a_schedule_that_does_the_same(app: App) -> None:
    """Schedules made at run time do not wait for each other, but a person's run of the same waits for them."""
    for customer in (41, 42):
        app.schedules.put(f"report:{customer}", "report", every("1h"), params={"customer": customer})
        app.operations.backfill(
            "report", "2026-01-01T00:00Z", "2026-01-01T00:59Z", by="ann", schedule=f"report:{customer}"
        )
    assert len(_claimed(app).claims) == 2
    asked = {
        customer: app.operations.trigger("report", {"customer": customer}, by="ann").run_id for customer in (42, 43)
    }
    found = _claimed(app)
    assert [each.run_id for each in found.claims] == [asked[43]]
    assert [each.run_id for each in found.blocked] == [asked[42]]
    assert app.operations.run(asked[42]).exclusive_key == "job:report:report:42"
    assert app.operations.run(asked[43]).exclusive_key == "job:report"


def _claimed(app: App) -> Any:
    connection = app.ledger.connect("test")
    try:
        return claim(
            connection,
            node="0" * 32,
            jobs=["report"],
            queues=["default"],
            limit=8,
            decide=lambda job, *, key_is_taken, **_: WAIT if key_is_taken else START,
        )
    finally:
        connection.rest()
