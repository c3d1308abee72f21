"""What operators do and ask, on each database."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fencepost import App, cron, every
from fencepost.app.composing import publish
from fencepost.app.operations import Operations
from fencepost.app.searching import RunSearch
from fencepost.core.identity import params_hash, tick_key
from fencepost.core.runs import Requested
from fencepost.core.tick import instant
from fencepost.engine.why import Became
from fencepost.errors import AlreadyRequested, IllegalMove, InvalidParameters, NoSuchJob, NoSuchRun
from fencepost.ledger import jobs, requests
from fencepost.ledger.history import RunFilter
from fencepost.ledger.journal import About
from fencepost.ledger.recording import Enqueued
from tests.ledger.test_duplicates import at_once

HOUR_US = 3_600_000_000


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url)

    @app.job(every("1h"))
    def settle(account: int = 1) -> None: ...

    @app.job(cron("0 3 * * *"), cron("0 15 * * *"))
    def report() -> None: ...

    @app.job
    def by_hand(days: int = 1) -> None: ...

    publish(app)
    yield app
    app.close()


def acts(app: App, **about: Any) -> list[tuple[str, str | None, str | None]]:
    found = app.operations.journal(about=About(**about))
    return [(entry.what, entry.by, entry.reason) for entry in found]


def set_run(app: App, run_id: int, **values: Any) -> None:
    run = app.ledger.tables.run
    change = run.update().where(run.c.id == run_id).values(**values)
    app.ledger.write(lambda cursor: app.ledger.change(cursor, change))


def set_schedule(app: App, schedule_id: str, **values: Any) -> None:
    table = app.ledger.tables.schedule
    change = table.update().where(table.c.id == schedule_id).values(**values)
    app.ledger.write(lambda cursor: app.ledger.change(cursor, change))


def hours_ago(app: App, hours: int) -> int:
    return app.ledger.now_us() // HOUR_US * HOUR_US - hours * HOUR_US


def test_a_person_asks_for_a_run_and_the_journal_knows_who_and_why(app: App) -> None:
    made = app.operations.trigger("settle", {"account": 7}, by="ann", reason="audit")
    row = app.operations.run(made.run_id)
    assert (row.requested_by, row.reason, row.params) == ("ann", "audit", {"account": 7})
    assert acts(app, run_id=made.run_id) == [("run triggered", "ann", "audit")]


def test_the_same_key_triggers_once_and_is_noted_once(app: App) -> None:
    first = app.operations.trigger("settle", by="ann", key="k")
    assert app.operations.trigger("settle", by="bob", key="k").run_id == first.run_id
    assert acts(app, run_id=first.run_id) == [("run triggered", "ann", None)]


def test_typed_parameters_are_read_as_the_job_wants_them(app: App) -> None:
    assert app.operations.read_params("by_hand", {"days": "3"}) == {"days": 3}
    with pytest.raises(InvalidParameters, match="a whole number"):
        app.operations.read_params("by_hand", {"days": "three"})


@pytest.mark.parametrize("by", ["", "  ", None])
def test_an_act_without_a_name_is_refused(app: App, by: Any) -> None:
    for act in (
        lambda: app.operations.trigger("settle", by=by),
        lambda: app.operations.cancel(1, by=by),
        lambda: app.operations.retry(1, by=by),
        lambda: app.operations.reprocess(by=by),
        lambda: app.operations.backfill("settle", "2026-01-01T00:00Z", "2026-01-01T01:00Z", by=by),
    ):
        with pytest.raises(InvalidParameters, match="say who does this"):
            act()
    assert app.operations.runs() == []


def test_cancel_and_retry_are_told_by_their_outcome(app: App) -> None:
    made = app.operations.trigger("by_hand", {"days": 3}, by="ann")
    assert app.operations.cancel(made.run_id, by="bob", reason="mistake") == "cancelled"
    assert app.operations.cancel(made.run_id, by="bob") == "too late"
    again = app.operations.retry(made.run_id, by="ann", reason="not a mistake")
    assert (app.operations.run(again).retry_of, app.operations.run(again).params) == (made.run_id, {"days": 3})
    with pytest.raises(IllegalMove):
        app.operations.retry(again, by="ann")
    with pytest.raises(NoSuchRun):
        app.operations.cancel(10**9, by="ann")


def test_what_was_given_up_is_reprocessed_once_from_where_one_left_off(app: App) -> None:
    ids = [app.operations.trigger("by_hand", by="ann", again=True).run_id for _ in range(3)]
    for run_id in ids:
        set_run(app, run_id, state="dead")
    first = app.operations.reprocess(by="ann", limit=2)
    assert [each.old_id for each in first] == ids[:2]
    rest = app.operations.reprocess(by="ann", after_id=first[-1].old_id)
    assert [each.old_id for each in rest] == ids[2:]
    assert [each.is_new for each in app.operations.reprocess(by="ann")] == [False] * 3


def test_what_was_given_up_is_reprocessed_in_transactions_of_limited_size(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.app.operations._BATCH", 2)
    ids = [app.operations.trigger("by_hand", by="ann", again=True).run_id for _ in range(5)]
    for run_id in ids:
        set_run(app, run_id, state="dead")
    assert [each.old_id for each in app.operations.reprocess(by="ann", limit=4)] == ids[:4]
    assert [each.old_id for each in app.operations.reprocess(by="ann", limit=100)] == ids


@pytest.mark.parametrize("limit", [-1, 1.5, True, "7"])
def test_a_limit_that_is_no_count_is_refused(app: App, limit: Any) -> None:
    for ask in (
        lambda: app.operations.runs(limit=limit),
        lambda: app.operations.nodes(limit=limit),
        lambda: app.operations.journal(limit=limit),
        lambda: app.operations.schedules.list(limit=limit),
        lambda: app.operations.letters.list(limit=limit),
        lambda: app.operations.reprocess(by="ann", limit=limit),
    ):
        with pytest.raises(InvalidParameters, match=r"limit=.* is not possible: give a whole number, 0 or more"):
            ask()


@pytest.mark.parametrize("beyond", [2**63, 10**30, -(10**30)])
def test_an_id_beyond_64_bits_is_one_that_does_not_exist(app: App, beyond: int) -> None:
    for ask in (
        lambda: app.operations.run(beyond),
        lambda: app.operations.waits(beyond),
        lambda: app.operations.attempts(beyond),
        lambda: app.operations.parts(beyond),
        lambda: app.operations.cancel(beyond, by="ann"),
        lambda: app.operations.retry(beyond, by="ann"),
        lambda: app.operations.release(beyond, by="ann"),
    ):
        with pytest.raises(NoSuchRun, match=f"there is no run {beyond}"):
            ask()
    assert app.operations.runs(ids=[beyond]) == app.operations.runs(retry_of=beyond) == []
    assert app.operations.journal(run_id=beyond) == []


def test_pages_before_and_after_an_id_beyond_64_bits(app: App) -> None:
    made = app.operations.trigger("by_hand", by="ann").run_id
    beyond = 10**30
    assert [row.id for row in app.operations.runs(before_id=beyond, limit=beyond)] == [made]
    assert [row.id for row in app.operations.runs(after_id=-beyond)] == [made]
    assert app.operations.runs(after_id=beyond) == app.operations.runs(before_id=-beyond) == []
    assert app.operations.journal(before_id=beyond, limit=beyond) == app.operations.journal()
    assert app.operations.reprocess(by="ann", after_id=beyond) == []


class TestBackfill:
    def test_each_due_time_becomes_one_run_with_its_window(self, app: App) -> None:
        done = app.operations.backfill("settle", "2026-01-01T00:00Z", "2026-01-01T05:00Z", by="ann", reason="lost")
        assert (done.asked, done.new) == (6, 6)
        rows = app.operations.runs(job="settle", after_id=0)
        assert [row.due_at for row in rows] == [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(6)]
        assert {row.window.end - row.window.start for row in rows} == {timedelta(hours=1)}
        assert {(row.schedule, row.requested_by, row.state) for row in rows} == {("settle", "ann", "queued")}
        assert rows[0].exclusive_key == "job:settle"
        assert acts(app, job="settle")[0] == ("backfill requested", "ann", "lost")

    def test_the_same_key_again_asks_for_nothing_new(self, app: App) -> None:
        first = app.operations.backfill("settle", "2026-01-01T00:00Z", "2026-01-01T01:00Z", by="ann")
        again = app.operations.backfill("settle", "2026-01-01T00:00Z", "2026-01-01T02:00Z", by="ann", key=first.key)
        assert (again.asked, again.new) == (3, 1)

    def test_without_a_key_it_is_refused_while_another_one_of_the_same_due_times_has_not_ended(self, app: App) -> None:
        hours = ("2026-01-01T00:00Z", "2026-01-01T01:00Z")
        app.operations.backfill("settle", *hours, by="ann")
        first, last = app.operations.runs(after_id=0)
        with pytest.raises(AlreadyRequested, match=f"run {first.id} of job 'settle' back-fills one of these due times"):
            app.operations.backfill("settle", *hours, by="bob")
        set_run(app, first.id, state="succeeded")
        with pytest.raises(AlreadyRequested, match=f"run {last.id} of "):
            app.operations.backfill("settle", *hours, by="bob")
        assert len(app.operations.runs()) == 2
        assert app.operations.backfill("settle", *hours, by="bob", again=True).new == 2
        for row in app.operations.runs():
            set_run(app, row.id, state="succeeded")
        assert app.operations.backfill("settle", *hours, by="bob").new == 2

    def test_other_due_times_other_parameters_and_ticks_do_not_hinder_it(self, app: App) -> None:
        app.operations.backfill("settle", "2026-01-01T00:00Z", "2026-01-01T01:00Z", by="ann")
        assert app.operations.backfill("settle", "2026-01-01T02:00Z", "2026-01-01T03:00Z", by="ann").new == 2
        hour = ("2026-01-01T01:00Z", "2026-01-01T01:00Z")
        assert app.operations.backfill("settle", *hour, by="ann", params={"account": 9}).new == 1
        at_us = 1_767_250_800_000_000
        tick = Requested("settle", "scheduled", origin_key=tick_key("settle", at_us), schedule="settle")
        requests.enqueue(app.ledger, [tick._replace(due_at_us=at_us, window_end_us=at_us)])
        assert app.operations.backfill("settle", "2026-01-01T07:00Z", "2026-01-01T07:00Z", by="ann").new == 1

    def test_all_schedules_of_a_job_are_filled_or_the_one_that_was_named(self, app: App) -> None:
        day = ("2026-01-01T00:00Z", "2026-01-01T23:59Z")
        assert app.operations.backfill("report", *day, by="ann").asked == 2
        assert app.operations.backfill("report", *day, by="ann", schedule="report:2", again=True).asked == 1

    def test_other_parameters_may_be_given(self, app: App) -> None:
        app.operations.backfill("settle", "2026-01-01T00:00Z", "2026-01-01T00:00Z", by="ann", params={"account": 9})
        assert app.operations.runs(job="settle")[0].params == {"account": 9}

    def test_a_long_range_is_refused_unless_it_is_meant(self, app: App) -> None:
        two_years = ("2024-01-01T00:00Z", "2026-01-01T00:00Z")
        with pytest.raises(InvalidParameters, match=r"due 17545 times .* limit=17545"):
            app.operations.backfill("settle", *two_years, by="ann")
        assert app.operations.runs() == []

    def test_due_times_that_are_still_to_come_are_refused_also_to_look(self, app: App) -> None:
        now = app.operations.now()
        ahead = (now - timedelta(hours=3), now + timedelta(hours=3))
        due = app.operations.schedules.preview("settle", count=1)[0].next[0].due_at
        says = rf"job 'settle' is due at {due:%Y-%m-%dT%H:%M:%S}Z \(schedule 'settle'\), which is still to come"
        with pytest.raises(InvalidParameters, match=says):
            app.operations.backfill("settle", *ahead, by="ann")
        with pytest.raises(InvalidParameters, match=says):
            app.operations.would_backfill("settle", *ahead, schedule="settle")
        assert app.operations.runs() == []
        assert app.operations.backfill("settle", ahead[0], due - timedelta(seconds=1), by="ann").asked == 3

    @pytest.mark.parametrize(
        ("job", "first", "last", "says"),
        [
            ("by_hand", "2026-01-01T00:00Z", "2026-01-02T00:00Z", "no such schedule"),
            ("settle", "2026-01-02T00:00Z", "2026-01-01T00:00Z", "before it begins"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, app: App, job: str, first: str, last: str, says: str) -> None:
        with pytest.raises(InvalidParameters, match=says):
            app.operations.backfill(job, first, last, by="ann")

    def test_many_are_recorded_in_batches(self, app: App) -> None:
        done = app.operations.backfill("settle", "2026-01-01T00:00Z", "2026-02-28T00:00Z", by="ann")
        assert (done.asked, done.new) == (1393, 1393)
        assert len(acts(app, job="settle")) == 2  # the deploy's and this one


class TestWhy:
    def due(self, app: App, at_us: int, **values: Any) -> int:
        """Record what became of a due time, as the planner and the others would have."""
        told = {"state": "queued", **values}
        asked = Requested(
            job="settle",
            type="scheduled",
            origin_key=tick_key("settle", at_us),
            schedule="settle",
            first_due_at_us=told.pop("first_due_at_us", at_us),
            due_at_us=at_us,
            ticks=told.pop("ticks", 1),
            exclusive_key="job:settle",
            state="queued",
        )
        [made] = requests.enqueue(app.ledger, [asked])
        set_run(app, made.run_id, **told)
        return made.run_id

    def why(self, app: App, at_us: int, job: str = "settle") -> Any:
        (answer,) = app.operations.why(job, instant(at_us))
        return answer

    def test_it_ran(self, app: App) -> None:
        at_us = hours_ago(app, 2)
        run_id = self.due(app, at_us, state="succeeded", node="n1", attempts=1, started_at=at_us, ended_at=at_us + 5)
        answer = self.why(app, at_us)
        assert (answer.became, answer.run.id) == (Became.RAN, run_id)
        assert f"run {run_id} succeeded on node n1 (attempt 1, token " in answer.sentence

    def test_it_failed(self, app: App) -> None:
        at_us = hours_ago(app, 2)
        self.due(app, at_us, state="dead", attempts=2, error_code="ValueError", error="no")
        answer = self.why(app, at_us)
        assert answer.became is Became.FAILED
        assert "was given up after 2 attempts: ValueError: no" in answer.sentence

    def test_it_was_put_together_with_others(self, app: App) -> None:
        last_us = hours_ago(app, 2)
        run_id = self.due(app, last_us, first_due_at_us=last_us - 3 * HOUR_US, ticks=4, state="succeeded", attempts=1)
        answer = self.why(app, last_us - HOUR_US)
        assert answer.run.id == run_id
        assert "put together with others (4 due times from" in answer.sentence

    def test_it_misfired(self, app: App) -> None:
        at_us = hours_ago(app, 2)
        self.due(app, at_us, state="misfired", why="not planned in time; misfire is skip")
        assert self.why(app, at_us).became is Became.MISFIRED

    def test_it_was_skipped_because_another_held_its_key(self, app: App) -> None:
        at_us = hours_ago(app, 2)
        holder = self.due(app, at_us, state="running", started_at=at_us)
        self.due(app, at_us + HOUR_US, state="skipped", why="overlap is forbid", ended_at=at_us + HOUR_US)
        answer = self.why(app, at_us + HOUR_US)
        assert answer.became is Became.SKIPPED
        assert answer.sentence.endswith(f"was skipped: overlap is forbid; run {holder} held 'job:settle'")

    def test_of_another_reason_it_is_not_said_that_another_held_its_key(self, app: App) -> None:
        at_us = hours_ago(app, 2)
        self.due(app, at_us, state="running", started_at=at_us)
        self.due(app, at_us + HOUR_US, state="skipped", why="paused", ended_at=at_us + HOUR_US)
        assert self.why(app, at_us + HOUR_US).sentence.endswith("was skipped: paused")

    def test_it_waits_for_its_key(self, app: App) -> None:
        at_us = hours_ago(app, 0)
        self.due(app, at_us, state="waiting", waits_for="key", why="its exclusive key is taken by run 1")
        answer = self.why(app, at_us)
        assert answer.became is Became.PLANNED
        assert "waits for its key: its exclusive key is taken by run 1" in answer.sentence

    def test_it_is_still_to_come(self, app: App) -> None:
        assert self.why(app, hours_ago(app, -24)).became is Became.TO_COME

    def test_what_is_to_come_says_when_and_who_has_the_job(self, app: App) -> None:
        at_us = hours_ago(app, -24)
        assert "and no living node has the job now: fencepost run APP starts one" in self.why(app, at_us).sentence
        with app.running(grace="1s"):
            sentence = self.why(app, at_us).sentence
        assert re.search(r": it is due in (23h|1d)\S*; 1 living node has the job$", sentence), sentence

    def test_without_a_time_it_says_what_keeps_the_job_from_running(self, app: App) -> None:
        [answer] = app.operations.why("settle")
        assert (answer.became, answer.now) == (Became.TO_COME, ())  # the sentence says that no node lives
        app.schedules.pause("settle", by="root", reason="lunch")
        app.operations.pauses.pause(None, by="ann", reason="the bank books twice")
        set_schedule(app, "settle", created_at=1, planned_through=hours_ago(app, -1))
        self.due(app, hours_ago(app, 0), state="succeeded", attempts=1)
        [answer] = app.operations.why("settle")
        assert answer.became is Became.RAN
        schedule, everything, node = answer.now
        assert schedule.startswith("The schedule has been paused since ")
        assert schedule.endswith(" by root: lunch. fencepost schedules resume settle")
        assert everything.startswith("Everything has been paused since ")
        assert everything.endswith("by ann: the bank books twice. fencepost resume --all")
        assert node == "No living node has the job now: fencepost run APP starts one"
        assert self.why(app, hours_ago(app, 0)).now == ()
        assert len(app.operations.why("by_hand")[0].now) == 2  # it has no schedule that could be paused

    def test_what_the_sentence_says_is_not_repeated(self, app: App) -> None:
        app.schedules.pause("settle", by="root", reason="lunch")
        [answer] = app.operations.why("settle")
        assert answer.became is Became.PAUSED
        assert answer.now[0] == "To resume it: fencepost schedules resume settle"

    def test_it_was_never_due_then(self, app: App) -> None:
        at_us = hours_ago(app, 2) + 5
        answer = self.why(app, at_us)
        assert answer.became is Became.NOT_DUE
        assert answer.nearest_at == (instant(at_us - 5), instant(at_us - 5 + HOUR_US))
        assert "the nearest due times are" in answer.sentence

    def test_the_schedule_was_made_later(self, app: App) -> None:
        assert self.why(app, hours_ago(app, 24)).became is Became.BEFORE

    def test_the_record_is_gone(self, app: App) -> None:
        set_schedule(app, "settle", created_at=1)
        answer = self.why(app, hours_ago(app, 24))
        assert answer.became is Became.FORGOTTEN
        assert "retention" in answer.sentence

    def test_the_schedule_is_paused(self, app: App) -> None:
        app.schedules.pause("settle", by="ann", reason="month-end")
        answer = self.why(app, hours_ago(app, -24))
        assert answer.became is Became.PAUSED
        assert "by ann: month-end" in answer.sentence

    def test_the_schedule_was_deleted(self, app: App) -> None:
        app.schedules.put("extra", "settle", every("1h"))
        app.schedules.delete("extra")
        answer = self.why(app, hours_ago(app, -24), job="extra")
        assert answer.became is Became.BEFORE
        assert "deleted at" in answer.sentence

    def test_a_job_without_a_schedule_says_so(self, app: App) -> None:
        assert self.why(app, hours_ago(app, 1), job="by_hand").became is Became.NO_SCHEDULE

    def test_an_unknown_job_is_refused(self, app: App) -> None:
        with pytest.raises(NoSuchJob):
            app.operations.why("nobody", datetime(2026, 1, 1, tzinfo=UTC))

    def test_of_several_schedules_those_that_were_due_answer(self, app: App) -> None:
        tomorrow = (instant(app.ledger.now_us()) + timedelta(days=1)).replace(
            hour=15, minute=0, second=0, microsecond=0
        )
        assert [each.schedule for each in app.operations.why("report", tomorrow)] == ["report:2"]
        assert len(app.operations.why("report", tomorrow + timedelta(minutes=1))) == 2


def test_jobs_of_every_deploy_are_known(app: App) -> None:
    assert [row.name for row in app.operations.jobs()] == ["by_hand", "report", "settle"]


def test_before_anybody_started_there_are_no_nodes_and_no_leader(app: App) -> None:
    assert app.operations.nodes() == []
    assert app.operations.leader() is None


class TestAskingTwice:
    def test_what_is_under_way_is_refused_and_pointed_to(self, app: App) -> None:
        first = app.operations.trigger("settle", {"account": 7}, by="ann")
        with pytest.raises(AlreadyRequested) as refused:
            app.operations.trigger("settle", {"account": 7}, by="bob")
        error = refused.value
        assert (error.run_id, error.job, error.state, error.requested_by) == (first.run_id, "settle", "queued", "ann")
        assert f"run {first.run_id} of job 'settle' asks for the same and is queued (made at 20" in str(error)
        refusal = " by ann), so nothing was enqueued; wait for it, or run it anyway: "
        refusal += '--again, in code again=True, by REST "again": true'
        assert refusal in str(error)
        assert len(app.operations.runs()) == 1

    def test_whoever_insists_gets_another(self, app: App) -> None:
        first = app.operations.trigger("settle", by="ann")
        assert app.operations.trigger("settle", by="ann", again=True).run_id > first.run_id

    def test_other_parameters_another_job_another_time_and_a_key_are_other_requests(self, app: App) -> None:
        app.operations.trigger("by_hand", by="ann")
        app.operations.trigger("by_hand", {"days": 2}, by="ann")
        app.operations.trigger("settle", by="ann")
        app.operations.trigger("by_hand", by="ann", at="2036-01-01T00:00Z")
        app.operations.trigger("by_hand", by="ann", key="k")
        assert len(app.operations.runs()) == 5

    def test_a_run_that_a_program_asked_for_counts_and_one_that_has_ended_does_not(self, app: App) -> None:
        made = app.enqueue("by_hand")
        with pytest.raises(AlreadyRequested, match=f"run {made.run_id} "):
            app.operations.trigger("by_hand", by="ann")
        set_run(app, made.run_id, state="dead")
        assert app.operations.trigger("by_hand", by="ann").is_new

    def test_a_due_time_under_way_does_not_count_for_it_answers_for_its_own_window(self, app: App) -> None:
        tick = Requested("settle", "scheduled", params_hash=params_hash("settle", {}), schedule="settle", due_at_us=1)
        requests.enqueue(app.ledger, [tick])
        assert app.operations.trigger("settle", by="ann").is_new

    def test_a_program_gets_the_run_under_way_if_it_asks_for_a_unique_one(self, app: App) -> None:
        first = app.enqueue("by_hand", unique=True)
        assert app.enqueue("by_hand", unique=True) == (first.run_id, False)
        assert app.enqueue("by_hand").is_new
        with pytest.raises(InvalidParameters, match="key= or unique=True"):
            app.enqueue("by_hand", unique=True, key="k")

    def test_of_several_operators_who_press_at_the_same_moment_one_gets_a_run(self, app: App) -> None:
        others = [App(app.ledger.url.text) for _ in range(3)]
        for number in range(1, 11):
            days = {"days": number}
            answers = at_once([lambda each=each: each.operations.trigger("by_hand", days, by="ann") for each in others])  # noqa: B023
            [made] = [answer for answer in answers if isinstance(answer, Enqueued)]
            refused = [answer.run_id for answer in answers if isinstance(answer, AlreadyRequested)]
            assert refused == [made.run_id] * 2
        for other in others:
            other.close()

    def test_of_several_who_backfill_at_the_same_moment_one_gets_runs(self, app: App) -> None:
        others = [App(app.ledger.url.text) for _ in range(3)]
        day = ("2026-01-01T00:00Z", "2026-01-01T23:00Z")
        answers = at_once([lambda each=each: each.operations.backfill("settle", *day, by="ann") for each in others])
        assert [type(answer) for answer in answers].count(AlreadyRequested) == 2
        assert len(app.operations.runs()) == 24
        for other in others:
            other.close()

    def test_it_holds_for_a_job_that_no_node_has_registered_yet(self, url: str) -> None:
        apps = [App(url) for _ in range(3)]
        for app in apps:
            app.job(name="fresh", retries=4)(lambda days=1: None)
        answers = at_once([lambda each=each: each.operations.trigger("fresh", by="ann") for each in apps])
        assert [type(answer) for answer in answers].count(AlreadyRequested) == 2
        assert '"retries":4' in jobs.job(apps[0].ledger, "fresh").policy
        for app in apps:
            app.close()


def test_every_filter_of_runs_is_a_parameter_of_its_own() -> None:
    taken = inspect.signature(Operations.runs).parameters
    assert not [each for each in taken.values() if each.kind is each.VAR_KEYWORD]
    fields = {name.removesuffix("_us") for name in RunFilter.__slots__ if name != "jobs"}  # that is of the scope
    assert set(taken) == {"self", "before_id", "after_id", "limit", *fields} - {"params"}
    assert set(RunSearch.__annotations__) == fields


def test_what_runs_cannot_be_looked_for_by_is_refused(app: App) -> None:
    with pytest.raises(TypeError, match="did you mean 'job'"):
        app.operations.find_runs(jbo="settle")


def test_a_state_that_no_run_has_is_refused_and_one_alone_may_be_a_word(app: App) -> None:
    with pytest.raises(InvalidParameters, match="did you mean 'dead'"):
        app.operations.runs(states=["daed"])
    assert app.operations.runs(states="dead") == app.operations.runs(states=["dead"])
