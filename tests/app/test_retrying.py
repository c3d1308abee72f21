"""Repetitions with other parameters, on each database: what they are, and what they are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import update

from fencepost import App, every
from fencepost.app.composing import publish
from fencepost.app.records import WindowRecord
from fencepost.core.identity import request_hash
from fencepost.core.noted import Noted
from fencepost.core.schedule import schedule_to_json
from fencepost.core.tick import instant
from fencepost.engine.why import Became
from fencepost.errors import AlreadyRequested, InvalidParameters, StateChanged
from fencepost.ledger import history
from fencepost.ledger.history import RunRow
from fencepost.ledger.pruning import Retention, prune
from fencepost.ledger.roots import Root, root_of
from tests.access.scene import set_run

HOUR_US = 3_600_000_000


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url)

    @app.job(every("1h"), exclusive="account:{account}", params={"account": 1})
    def settle(account: int, mode: str = "real") -> None: ...

    @app.job(every("1h"), queue="reports", priority=7)
    def report(day: str = "today") -> None: ...

    publish(app)
    yield app
    app.close()


@pytest.fixture
def first(app: App) -> int:
    """A run of a due time that was given up."""
    made = app.operations.trigger("settle", {"account": 1}, by="ann").run_id
    due = {"schedule": "settle", "due_at": 7_200_000_000, "first_due_at": 7_200_000_000}
    window = {"window_start": 3_600_000_000, "window_end": 7_200_000_000}
    set_run(app, made, state="dead", started_at=1, ended_at=app.ledger.now_us(), **due, **window)
    return made


def row_of(app: App, run_id: int) -> RunRow:
    return history.run(app.ledger, run_id)


def dead(app: App, run_id: int) -> None:
    set_run(app, run_id, state="dead", ended_at=app.ledger.now_us())


def test_it_has_its_own_parameters_hash_key_and_root_and_the_window_of_the_first(app: App, first: int) -> None:
    made = app.operations.retry(first, params={"account": 2}, by="ann", reason="the wrong one")
    run, of = app.operations.run(made), app.operations.run(first)
    assert (run.params, run.retry_of, run.requested_by) == ({"account": 2}, first, "ann")
    assert (run.window, run.due_at, run.schedule) == (of.window, of.due_at, of.schedule)
    assert run.request_hash == request_hash("settle", {"account": 2}, window_us=(3_600_000_000, 7_200_000_000))
    assert (run.exclusive_key, run.origin_key) == ("account:2", None)
    row = row_of(app, made)
    assert row.root == Root(made, False, row.created_at).to_text()
    [line] = app.operations.journal(run_id=made, what=str(Noted.RUN_RETRIED))
    assert (line.by, line.reason, line.detail) == ("ann", "the wrong one", {"retry_of": first, "changed": ["account"]})
    [entry] = app.operations.audit.entries(run_id=made)
    assert (entry.who, entry.act) == ("ann", "run retried")


def test_reprocess_still_repeats_the_first_and_each_with_its_own_parameters(app: App, first: int) -> None:
    ops = app.operations
    other = ops.retry(first, params={"account": 2}, by="ann")
    dead(app, other)
    again = {each.old_id: each for each in ops.reprocess(by="ann")}
    assert {ops.run(each.run_id).params["account"] for each in again.values()} == {1, 2}
    assert all(each.is_new for each in again.values())
    # Their repetitions are of two chains: one that succeeds does not replace the other.
    set_run(app, again[other].run_id, state="succeeded", ended_at=app.ledger.now_us())
    dead(app, again[first].run_id)
    found = {each.old_id: each for each in ops.reprocess(by="ann", after_id=other)}
    assert set(found) == {again[first].run_id}
    assert found[again[first].run_id].is_new


@pytest.mark.parametrize("kind", ["sqlite"])
def test_same_parameters_are_an_ordinary_repetition(app: App, first: int) -> None:
    made = app.operations.retry(first, params={"account": 1}, by="ann")
    row = row_of(app, made)
    assert row.params_hash == row_of(app, first).params_hash
    assert app.ledger.read(lambda cursor: root_of(app.ledger, cursor, row)).run_id == first


def test_it_is_refused_beside_a_repetition_or_a_run_that_does_the_same(app: App, first: int) -> None:
    ops = app.operations
    made = ops.retry(first, params={"account": 2}, by="ann")
    for params in (None, {"account": 3}):
        with pytest.raises(AlreadyRequested):
            ops.retry(first, params=params, by="ann")
    set_run(app, made, retry_of=None)  # a run of the same request that repeats nothing
    with pytest.raises(AlreadyRequested, match=str(made)):
        ops.retry(first, params={"account": 2}, by="ann")
    assert ops.retry(first, params={"account": 2}, by="ann", again=True) > made


@pytest.mark.parametrize("kind", ["sqlite"])
def test_parameters_are_checked_by_the_job_and_the_version_in_the_transaction(app: App, first: int) -> None:
    ops = app.operations
    for wrong in ({}, {"account": "x"}, {"account": 1, "nothing": 2}):
        with pytest.raises(InvalidParameters):
            ops.retry(first, params=wrong, by="ann")
    with pytest.raises(StateChanged):
        ops.retry(first, params={"account": 2}, by="ann", expect="0" * 16)
    assert len(ops.runs()) == 1


@pytest.mark.parametrize("kind", ["sqlite"])
def test_part_of_other_work_is_not_changed(app: App, first: int) -> None:
    set_run(app, first, origin_key="part:7:0:3:1")
    with pytest.raises(InvalidParameters, match="is a part of another job's work"):
        app.operations.retry(first, params={"account": 2}, by="ann")


@pytest.mark.parametrize("state", ["skipped", "misfired"])
def test_a_due_time_that_was_passed_over_is_repeated_like_any_run_of_its_job(app: App, state: str) -> None:
    """Records of what was paused have no key, queue or priority: their repetition ran beside other runs of the job."""
    ops = app.operations
    regular = ops.run(ops.trigger("report", by="ann").run_id)
    assert regular.exclusive_key == "job:report"
    recorded = ops.trigger("report", {"day": "monday"}, by="ann").run_id
    unknown = {"params_hash": "", "exclusive_key": None, "queue": "default", "priority": 0, "origin_key": None}
    set_run(app, recorded, state=state, why="paused", schedule="report", ended_at=app.ledger.now_us(), **unknown)
    for params in (None, {"day": "friday"}):
        made = ops.run(ops.retry(recorded, params=params, by="ann", again=True))
        assert (made.exclusive_key, made.queue, made.priority) == ("job:report", "reports", 7)
        assert made.request_hash
    # By the parameters, where the job's key has some.
    settled = ops.trigger("settle", {"account": 4}, by="ann").run_id
    set_run(app, settled, state=state, schedule="settle", ended_at=app.ledger.now_us(), **unknown)
    for params, key in ((None, "account:4"), ({"account": 5}, "account:5")):
        assert ops.run(ops.retry(settled, params=params, by="ann", again=True)).exclusive_key == key


class TestTheWindowOfWhatAPausePassedOver:
    """It was empty: it began where it ends, so that a repetition succeeded and did nothing."""

    @pytest.fixture
    def paused(self, app: App) -> RunRow:
        """The record of three hours that a pause passed over."""
        ops = app.operations
        ops.schedules.pause("settle", by="ann")
        table, hours = app.ledger.tables.schedule, 3 * HOUR_US + 5
        before = update(table).where(table.c.id == "settle").values(planned_through=app.ledger.now_us() - hours)
        app.ledger.write(lambda cursor: app.ledger.change(cursor, before))
        ops.schedules.resume("settle", by="ann")
        [row] = ops.runs(schedule="settle")
        assert (row.state, row.why, row.ticks) == ("skipped", "paused", 3)
        return row_of(app, row.id)

    @pytest.fixture
    def whole(self, paused: RunRow) -> WindowRecord:
        """From the due time before the first hour to the last."""
        return WindowRecord(instant((paused.first_due_at or 0) - HOUR_US), instant(paused.due_at or 0))

    @pytest.mark.parametrize("is_of_an_earlier_version", [False, True])
    def test_it_is_that_of_all_its_due_times(
        self, app: App, paused: RunRow, whole: WindowRecord, *, is_of_an_earlier_version: bool
    ) -> None:
        if is_of_an_earlier_version:
            set_run(app, paused.id, window_start=None)
        else:
            assert app.operations.run(paused.id).window == whole
        for params in (None, {"account": 2}):
            made = app.operations.run(app.operations.retry(paused.id, params=params, by="ann", again=True))
            assert (made.window, made.ticks) == (whole, 3)
        window_us = ((paused.first_due_at or 0) - HOUR_US, paused.due_at or 0)
        assert made.request_hash == request_hash("settle", {"account": 2}, window_us=window_us)

    @pytest.mark.parametrize("kind", ["sqlite"])
    @pytest.mark.parametrize("spec", [every("7h"), every("30m"), every("1h", start="2020-01-01T00:13Z")])
    def test_it_is_not_guessed_by_another_schedule(self, app: App, paused: RunRow, spec: Any) -> None:
        set_run(app, paused.id, window_start=None)
        table = app.ledger.tables.schedule
        changed = update(table).where(table.c.id == "settle").values(spec=schedule_to_json(spec))
        app.ledger.write(lambda cursor: app.ledger.change(cursor, changed))
        made = row_of(app, app.operations.retry(paused.id, by="ann"))
        assert (made.window_start, made.window_end) == (None, paused.window_end)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_of_a_renamed_job_it_is_repeated_as_the_job_is_now(app: App, url: str, is_forgotten: bool) -> None:
    """What has ended keeps its name: by the policy under that, or by none, the repetition ran beside other runs."""
    recorded = app.operations.trigger("report", by="ann").run_id
    unknown = {"params_hash": "", "exclusive_key": None, "queue": "default", "priority": 0, "origin_key": None}
    set_run(app, recorded, state="skipped", why="paused", schedule="report", ended_at=app.ledger.now_us(), **unknown)
    after = App(url)

    @after.job(every("1h"), name="summary", formerly="report", queue="late", priority=3)
    def summary(day: str = "today") -> None: ...

    publish(after)
    if is_forgotten:
        after.operations.forget_job("report", by="ann")
    made = after.operations.run(after.operations.retry(recorded, by="ann"))
    regular = after.operations.run(after.operations.trigger("summary", {"day": "friday"}, by="ann").run_id)
    assert (made.exclusive_key, made.queue, made.priority) == ("job:report", "late", 3)
    assert (regular.exclusive_key, regular.queue, regular.priority) == ("job:report", "late", 3)
    after.close()


def test_after_a_roll_back_it_is_repeated_by_the_policy_of_the_old_name(app: App, url: str) -> None:
    recorded = app.operations.trigger("report", by="ann").run_id
    unknown = {"params_hash": "", "exclusive_key": None, "queue": "default", "priority": 0, "origin_key": None}
    set_run(app, recorded, state="skipped", why="paused", schedule="report", ended_at=app.ledger.now_us(), **unknown)
    after = App(url)

    @after.job(every("1h"), name="summary", formerly="report", queue="late", priority=3)
    def summary(day: str = "today") -> None: ...

    publish(after)
    publish(app)
    made = app.operations.run(app.operations.retry(recorded, by="ann"))
    assert (made.job, made.exclusive_key, made.queue, made.priority) == ("report", "job:report", "reports", 7)
    after.close()


def test_it_needs_no_parameter_of_a_key_that_others_have_stored(app: App, url: str) -> None:
    """During a deploy, the stored policy can be that of another version."""
    recorded = app.operations.trigger("settle", {"account": 4}, by="ann").run_id
    set_run(app, recorded, state="skipped", schedule="settle", exclusive_key=None, ended_at=app.ledger.now_us())
    later = App(url)

    @later.job(every("1h"), exclusive="zone:{zone}", params={"account": 1, "zone": "eu"})
    def settle(account: int, zone: str) -> None: ...

    publish(later)
    made = app.operations.retry(recorded, params={"account": 5}, by="ann")
    assert app.operations.run(made).exclusive_key == "account:5"
    with pytest.raises(InvalidParameters, match="needs the parameter 'zone'"):
        app.operations.retry(recorded, by="ann", again=True)
    later.close()


def test_a_run_that_was_skipped_for_another_reason_is_repeated_as_it_is(app: App) -> None:
    """One that the overlap rule skipped has its key, and one that began and raised Skip what it ran with."""
    ops = app.operations
    begun = ops.trigger("report", by="ann").run_id
    used = {"exclusive_key": None, "queue": "other", "priority": 1, "attempts": 1}
    set_run(app, begun, state="skipped", schedule="report", ended_at=app.ledger.now_us(), **used)
    made = ops.run(ops.retry(begun, by="ann"))
    assert (made.exclusive_key, made.queue, made.priority) == (None, "other", 1)


def test_why_does_not_take_it_for_the_run_of_the_due_time(app: App, first: int) -> None:
    made = app.operations.retry(first, params={"account": 2}, by="ann")
    set_run(app, made, state="succeeded", ended_at=app.ledger.now_us())
    [answer] = app.operations.why("settle", "1970-01-01T02:00Z")
    assert (answer.became, answer.run and answer.run.id) == (Became.FAILED, first)
    set_run(app, first, created_at=1, ended_at=1)
    assert prune(app.ledger, None, Retention.of(dead="1s")) > 0
    [later] = app.operations.why("settle", "1970-01-01T02:00Z")
    assert later.run is None


@pytest.mark.parametrize("kind", ["sqlite"])
def test_its_repetition_continues_it_and_not_the_first(app: App, first: int) -> None:
    ops = app.operations
    other = ops.retry(first, params={"account": 2}, by="ann")
    dead(app, other)
    third: Any = row_of(app, ops.retry(other, by="ann"))
    assert (third.params, third.root) == ('{"account":2}', row_of(app, other).root)
