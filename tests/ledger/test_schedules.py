"""Schedules: due times are neither planned twice nor lost in silence, and deploys come in their order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from fencepost.core.identity import tick_key
from fencepost.core.policy import Policy
from fencepost.core.runs import Requested
from fencepost.core.schedule import at, every, schedule_to_json
from fencepost.core.tick import instant
from fencepost.errors import LedgerRefused, NoSuchSchedule
from fencepost.ledger import history, journal, requests, schedules
from fencepost.ledger.deploys import sync_code
from fencepost.ledger.jobs import NewJob, register
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.schedule_rows import NewSchedule

Opened = Callable[[str], Ledger]
SECOND_US = 1_000_000
MINUTELY, HOURLY = schedule_to_json(every("1m")), schedule_to_json(every("1h"))


def new(schedule_id: str = "nightly", job: str = "report", spec: str = MINUTELY, params: str = "{}") -> NewSchedule:
    return NewSchedule(schedule_id, job, spec, params)


def at_us(*dues_us: int) -> str:
    """The schedule that is due at these times."""
    return schedule_to_json(at([instant(due_us) for due_us in dues_us]))


def job(ledger: Ledger, **policy: Any) -> None:
    """Put the job of these schedules on record."""
    register(ledger, [NewJob("report", "scheduled", Policy.of(**policy).to_json(), "{}")], generation=0)


def set_back(ledger: Ledger, schedule_id: str, **values: Any) -> None:
    """Make a schedule look as if time had passed."""
    table = ledger.tables.schedule
    ledger.write(lambda cursor: ledger.change(cursor, sa.update(table).where(table.c.id == schedule_id).values(values)))


def ended_ten_minutes_ago(ledger: Ledger) -> int:
    """Make a pause look as if it had ended ten minutes ago, after ten minutes; return when."""
    ended_us = ledger.now_us() - 600 * SECOND_US
    set_back(ledger, "nightly", planned_through=ended_us - 600 * SECOND_US, paused_until=ended_us, created_at=0)
    return ended_us


def planned(ledger: Ledger, due_us: int, **changes: Any) -> int:
    """Record a run as the planner would."""
    request = Requested(
        job="report", type="scheduled", origin_key=f"tick:nightly:{due_us}", schedule="nightly", due_at_us=due_us
    )
    return requests.enqueue(ledger, [request._replace(**changes)])[0].run_id


class TestAtRunTime:
    def test_a_new_schedule_is_planned_from_now_on(self, ledger: Ledger) -> None:
        made = schedules.put(ledger, new(), by="me")
        assert abs(made.planned_through - ledger.now_us()) < 60 * SECOND_US
        assert made.next_due_at is not None
        assert 0 < made.next_due_at - made.planned_through <= 60 * SECOND_US
        assert (made.origin, made.deleted_at, made.paused_at) == ("runtime", None, None)
        assert [(entry.what, entry.by) for entry in journal.entries(ledger)] == [("schedule made", "me")]

    def test_schedules_are_listed_by_id_from_one_on(self, ledger: Ledger) -> None:
        for name in ("c", "a", "b"):
            schedules.put(ledger, new(name, job=f"of {name}"))
        schedules.delete(ledger, "b")
        assert [each.id for each in schedules.schedules(ledger)] == ["a", "c"]
        assert [each.id for each in schedules.schedules(ledger, after_id="a")] == ["c"]
        assert [each.id for each in schedules.schedules(ledger, job="of c")] == ["c"]
        assert [each.id for each in schedules.schedules(ledger, with_deleted=True, limit=2)] == ["a", "b"]

    def test_what_is_not_there_is_named(self, ledger: Ledger) -> None:
        schedules.put(ledger, new())
        schedules.delete(ledger, "nightly")
        for act in (schedules.schedule, schedules.pause, schedules.resume, schedules.delete):
            with pytest.raises(NoSuchSchedule, match="there is no schedule 'nightly'"):
                act(ledger, "nightly")

    def test_planned_through_never_falls_through_deletion_and_recreation(self, ledger: Ledger) -> None:
        ahead = schedules.put(ledger, new()).planned_through + 3600 * SECOND_US
        set_back(ledger, "nightly", planned_through=ahead)
        schedules.put(ledger, new(spec=HOURLY))
        assert schedules.schedule(ledger, "nightly").planned_through == ahead
        schedules.delete(ledger, "nightly")
        again = schedules.put(ledger, new())
        assert again.planned_through == ahead
        assert again.next_due_at is not None
        assert again.next_due_at > ahead
        schedules.pause(ledger, "nightly")
        assert schedules.resume(ledger, "nightly").planned_through == ahead

    def test_a_schedule_made_again_does_not_catch_up_on_the_time_it_was_gone(self, ledger: Ledger) -> None:
        schedules.put(ledger, new())
        schedules.delete(ledger, "nightly")
        set_back(ledger, "nightly", planned_through=5)
        again = schedules.put(ledger, new())
        assert again.planned_through == again.created_at > 5
        assert history.runs(ledger) == []

    def test_what_a_change_passes_over_is_on_record(self, ledger: Ledger) -> None:
        through = schedules.put(ledger, new()).planned_through - 600 * SECOND_US
        set_back(ledger, "nightly", planned_through=through)
        changed = schedules.put(ledger, new(spec=HOURLY))
        [run] = history.runs(ledger)
        assert (run.state, run.why, run.ticks, run.schedule) == ("skipped", "schedule changed", 10, "nightly")
        assert run.window_start == (run.first_due_at or 0) - 60 * SECOND_US  # of its form then
        assert changed.next_due_at is not None
        assert changed.next_due_at > changed.planned_through >= (run.due_at or 0)

    def test_new_parameters_alone_pass_over_nothing(self, ledger: Ledger) -> None:
        through = schedules.put(ledger, new()).planned_through - 600 * SECOND_US
        set_back(ledger, "nightly", planned_through=through)
        assert schedules.put(ledger, new(params='{"a":1}')).planned_through == through
        assert history.runs(ledger) == []


class TestPlannedAhead:
    """Planners work two seconds ahead, so a change may come when what is due next counts as planned.

    Here they work a minute ahead, as they do after a small step back of the clock, so that no test has to hurry.
    """

    def ahead(self, ledger: Ledger) -> int:
        """Let a planner have been there just now; return until when it has planned."""
        through_us = ledger.now_us() + 60 * SECOND_US
        set_back(ledger, "nightly", planned_through=through_us)
        return through_us

    def ticks(self, ledger: Ledger) -> list[tuple[str, int | None]]:
        return sorted((run.state, run.due_at) for run in history.runs(ledger))

    @pytest.mark.parametrize("is_deployed", [False, True], ids=["at run time", "by a deploy"])
    def test_a_change_loses_no_due_time_of_the_new_form(self, ledger: Ledger, is_deployed: bool) -> None:
        job(ledger, priority=7, timeout="5m")
        put = partial(self.sync, ledger) if is_deployed else partial(schedules.put, ledger)
        put(new(spec=HOURLY))
        through_us = self.ahead(ledger)
        dues = [through_us - 100_000, through_us, through_us + 100_000]
        put(new(spec=at_us(*dues), params='{"a":1}'))
        assert self.ticks(ledger) == [("waiting", dues[0]), ("waiting", dues[1])]
        run = history.runs(ledger)[0]
        assert (run.priority, run.params, run.schedule, run.available_at) == (7, '{"a":1}', "nightly", run.due_at)
        assert (
            schedules.schedule(ledger, "nightly").next_due_at,
            schedules.schedule(ledger, "nightly").planned_through,
        ) == (
            dues[2],
            through_us,
        )

    def sync(self, ledger: Ledger, schedule: NewSchedule) -> None:
        sync_code(ledger, generation=0, jobs=["report"], schedules=[schedule])

    def test_what_was_planned_by_the_old_form_runs_and_once(self, ledger: Ledger) -> None:
        schedules.put(ledger, new(spec=HOURLY))
        through_us = self.ahead(ledger)
        there = planned(ledger, through_us, origin_key=tick_key("nightly", through_us), params_hash="as it was")
        schedules.put(ledger, new(spec=at_us(through_us - 1, through_us)))
        assert self.ticks(ledger) == [("queued", through_us), ("waiting", through_us - 1)]
        assert there in [run.id for run in history.runs(ledger)]

    def test_while_it_is_paused_they_are_on_record(self, ledger: Ledger) -> None:
        schedules.put(ledger, new(spec=HOURLY))
        schedules.pause(ledger, "nightly")
        through_us = self.ahead(ledger)
        schedules.put(ledger, new(spec=at_us(through_us)))
        schedules.resume(ledger, "nightly")
        assert [(run.state, run.why, run.due_at) for run in history.runs(ledger)] == [("skipped", "paused", through_us)]

    def test_a_schedule_that_is_made_again_at_once_loses_none(self, ledger: Ledger) -> None:
        schedules.put(ledger, new(spec=HOURLY))
        through_us = self.ahead(ledger)
        schedules.delete(ledger, "nightly")
        schedules.put(ledger, new(spec=at_us(through_us)))
        assert self.ticks(ledger) == [("waiting", through_us)]

    def test_what_planners_have_not_planned_ahead_was_planned_in_time(self, ledger: Ledger) -> None:
        schedules.put(ledger, new(spec=HOURLY))
        through_us = self.ahead(ledger)
        dues = [through_us - 3 * SECOND_US, through_us - SECOND_US]
        schedules.put(ledger, new(spec=at_us(*dues)))
        assert self.ticks(ledger) == [("waiting", dues[1])]

    def test_where_the_job_cannot_be_read_they_are_on_record(self, ledger: Ledger) -> None:
        register(
            ledger, [NewJob("report", "scheduled", '{"misfire": "as a later release has it"}', "{}")], generation=0
        )
        schedules.put(ledger, new(spec=HOURLY))
        through_us = self.ahead(ledger)
        schedules.put(ledger, new(spec=at_us(through_us)))
        assert [(run.state, run.why) for run in history.runs(ledger)] == [("skipped", "schedule changed")]


class TestInstants:
    """Due times that are named one by one, and have passed when the schedule is made."""

    def test_what_passed_within_the_grace_is_planned_and_what_passed_earlier_is_on_record(self, ledger: Ledger) -> None:
        job(ledger, grace="1m")
        now_us = ledger.now_us()
        dues = [now_us - ago * SECOND_US for ago in (7200, 3600, 30)]
        made = schedules.put(ledger, new(spec=at_us(*dues)))
        assert (made.next_due_at, made.created_at >= now_us) == (dues[-1], True)
        [run] = history.runs(ledger)
        assert (run.state, run.why) == ("skipped", "the time had passed when the schedule was made")
        assert (run.first_due_at, run.due_at, run.ticks) == (*dues[:2], 2)
        assert (run.window_start, run.window_end) == (None, dues[1])  # there is no due time before the first
        assert history.why(ledger, "nightly", dues[0]) == [run]

    def test_a_deploy_a_day_later_runs_nothing_by_surprise_and_says_so_once(self, ledger: Ledger) -> None:
        due = ledger.now_us() - 86_400 * SECOND_US
        for _ in range(2):
            sync_code(ledger, generation=1, jobs=["report"], schedules=[new(spec=at_us(due))])
        assert schedules.schedule(ledger, "nightly").next_due_at is None
        assert [(run.state, run.due_at) for run in history.runs(ledger)] == [("skipped", due)]

    def test_so_it_is_for_another_instant_under_the_same_id(self, ledger: Ledger) -> None:
        job(ledger, grace="1m")
        now_us = ledger.now_us()
        schedules.put(ledger, new(spec=at_us(now_us + 3600 * SECOND_US)))
        set_back(ledger, "nightly", planned_through=now_us - 7200 * SECOND_US)
        late, recent = now_us - 3600 * SECOND_US, now_us - 30 * SECOND_US
        assert schedules.put(ledger, new(spec=at_us(late, recent))).next_due_at == recent
        assert [(run.state, run.due_at) for run in history.runs(ledger)] == [("skipped", late)]

    def test_what_the_former_schedule_passed_over_does_not_come_back(self, ledger: Ledger) -> None:
        job(ledger, grace="1m")
        due = ledger.now_us() - 30 * SECOND_US
        schedules.put(ledger, new(spec=at_us(due, due + 1)))
        changed = schedules.put(ledger, new(spec=at_us(due, due + 1, due + 2)))
        assert changed.next_due_at is None
        assert [(run.state, run.why, run.ticks) for run in history.runs(ledger)] == [("skipped", "schedule changed", 2)]

    def test_what_was_planned_is_not_planned_again_however_recent(self, ledger: Ledger) -> None:
        job(ledger, grace="1m")
        due = ledger.now_us() - 30 * SECOND_US
        schedules.put(ledger, new(spec=at_us(due)))
        set_back(ledger, "nightly", planned_through=due)
        schedules.delete(ledger, "nightly")
        assert schedules.put(ledger, new(spec=at_us(due))).next_due_at is None


class TestPausing:
    def test_pausing_stops_planning_and_resuming_records_what_was_missed(self, ledger: Ledger) -> None:
        schedules.put(ledger, new())
        paused = schedules.pause(ledger, "nightly", by="me", reason="audit")
        assert (paused.next_due_at, paused.paused_by, paused.pause_reason) == (None, "me", "audit")
        through = paused.planned_through - 600 * SECOND_US
        set_back(ledger, "nightly", planned_through=through)
        resumed = schedules.resume(ledger, "nightly")
        assert (resumed.paused_at, resumed.paused_by, resumed.pause_reason) == (None, None, None)
        assert resumed.next_due_at is not None
        assert resumed.next_due_at > resumed.planned_through
        [run] = history.runs(ledger)
        assert (run.state, run.why, run.ticks) == ("skipped", "paused", 10)
        assert run.first_due_at is not None
        assert run.due_at is not None
        assert through < run.first_due_at < run.due_at <= resumed.planned_through
        assert history.why(ledger, "nightly", run.first_due_at) == [run]
        assert [entry.what for entry in journal.entries(ledger)][:2] == ["schedule resumed", "schedule paused"]

    def test_what_is_planned_ahead_is_skipped_and_the_rest_left_alone(self, ledger: Ledger) -> None:
        schedules.put(ledger, new())
        now = ledger.now_us()
        ahead, due = planned(ledger, now + 5 * SECOND_US), planned(ledger, now - SECOND_US)
        tried = planned(ledger, now + 6 * SECOND_US)
        asked_for = planned(ledger, now + 7 * SECOND_US, origin_key="backfill:nightly:1")
        table = ledger.tables.run
        ledger.write(
            lambda cursor: ledger.change(cursor, sa.update(table).where(table.c.id == tried).values(attempts=1))
        )
        schedules.pause(ledger, "nightly")
        states = {run.id: (run.state, run.why) for run in history.runs(ledger)}
        assert states.pop(ahead) == ("skipped", "paused")
        assert {run_id: state for run_id, (state, _) in states.items()} == dict.fromkeys(
            (due, tried, asked_for), "queued"
        )

    def test_pausing_and_resuming_twice_changes_nothing(self, ledger: Ledger) -> None:
        schedules.put(ledger, new())
        first = schedules.pause(ledger, "nightly", by="me")
        assert schedules.pause(ledger, "nightly", by="you") == first
        resumed = schedules.resume(ledger, "nightly")
        assert schedules.resume(ledger, "nightly") == resumed

    def test_a_pause_with_an_end_ends_by_itself_as_of_that_moment_however_late_a_node_looks(
        self, ledger: Ledger
    ) -> None:
        schedules.put(ledger, new())
        until_us = ledger.now_us() + 60 * SECOND_US
        paused = schedules.pause(ledger, "nightly", by="ann", reason="audit", until_us=until_us)
        assert (paused.paused_until, paused.next_due_at) == (until_us, None)
        assert schedules.end_pauses(ledger)[1:] == (0, until_us)
        ended_us = ended_ten_minutes_ago(ledger)
        assert schedules.end_pauses(ledger, is_believed=lambda _: False).resumed == 0
        assert schedules.end_pauses(ledger)[1:] == (1, None)
        assert schedules.end_pauses(ledger)[1:] == (0, None)
        resumed = schedules.schedule(ledger, "nightly")
        assert (resumed.paused_at, resumed.paused_until, resumed.planned_through) == (None, None, ended_us)
        assert resumed.next_due_at is not None
        assert ended_us < resumed.next_due_at <= ended_us + 60 * SECOND_US  # later ones are for the misfire policy
        [run] = history.runs(ledger)
        assert (run.state, run.why, run.ticks) == ("skipped", "paused", 10)
        [entry, *_] = journal.entries(ledger)
        assert (entry.what, entry.by, entry.schedule) == ("schedule resumed", None, "nightly")
        assert "its pause by ann ended by itself at" in (entry.reason or "")

    @pytest.mark.parametrize("act", ["resume", "pause", "put", "delete"])
    def test_what_a_person_does_after_the_end_finds_the_pause_ended(self, ledger: Ledger, act: str) -> None:
        schedules.put(ledger, new())
        schedules.pause(ledger, "nightly", until_us=ledger.now_us() + 60 * SECOND_US)
        ended_us = ended_ten_minutes_ago(ledger)
        acts: dict[str, Callable[[], Any]] = {
            "resume": lambda: schedules.resume(ledger, "nightly", by="ann"),
            "pause": lambda: schedules.pause(ledger, "nightly", by="ann"),
            "put": lambda: schedules.put(ledger, new(spec=HOURLY), by="ann"),
            "delete": lambda: schedules.delete(ledger, "nightly", by="ann"),
        }
        acts[act]()
        skipped = [run for run in history.runs(ledger) if run.why == "paused"]
        assert [(run.ticks, (run.due_at or 0) <= ended_us) for run in skipped] == [(10, True)]
        left = schedules.schedules(ledger)
        assert [row.paused_by for row in left] == {"pause": ["ann"], "delete": []}.get(act, [None])
        assert all(row.paused_until is None for row in left)

    def test_pausing_again_changes_the_end_and_nothing_else(self, ledger: Ledger) -> None:
        schedules.put(ledger, new())
        first = schedules.pause(ledger, "nightly", by="ann", until_us=ledger.now_us() + 60 * SECOND_US)
        longer = schedules.pause(ledger, "nightly", by="bob", until_us=ledger.now_us() + 90 * SECOND_US)
        assert (longer.paused_at, longer.paused_by) == (first.paused_at, "bob")
        assert (longer.paused_until or 0) > (first.paused_until or 0)
        assert schedules.pause(ledger, "nightly", by="cyd").paused_until is None
        assert [each.by for each in journal.entries(ledger, what="schedule paused")] == ["cyd", "bob", "ann"]

    def test_the_end_that_an_older_version_left_when_it_resumed_ends_no_later_pause(self, ledger: Ledger) -> None:
        schedules.put(ledger, new())
        schedules.pause(ledger, "nightly", until_us=ledger.now_us() + 60 * SECOND_US)
        set_back(ledger, "nightly", paused_at=None)  # as that version resumes
        schedules.end_pauses(ledger)
        set_back(ledger, "nightly", paused_at=1)  # as that version pauses
        assert schedules.end_pauses(ledger)[1:] == (0, None)

    def test_a_change_does_not_end_a_pause(self, ledger: Ledger) -> None:
        schedules.put(ledger, new())
        schedules.pause(ledger, "nightly")
        changed = schedules.put(ledger, new(spec=HOURLY))
        assert changed.paused_at is not None
        assert changed.next_due_at is None


class TestDeploys:
    def sync(self, ledger: Ledger, generation: int, *declared: NewSchedule, jobs: tuple[str, ...] = ("report",)) -> Any:
        return sync_code(ledger, generation=generation, jobs=jobs, schedules=declared)

    def test_a_deploy_makes_changes_and_deletes(self, ledger: Ledger) -> None:
        assert self.sync(ledger, 1, new("a"), new("b")).made == ("a", "b")
        synced = self.sync(ledger, 2, new("b", spec=HOURLY), new("c"))
        assert (synced.made, synced.changed, synced.deleted, synced.kept) == (("c",), ("b",), ("a",), ())
        assert {each.id: each.spec for each in schedules.schedules(ledger)} == {"b": HOURLY, "c": MINUTELY}

    def test_a_second_node_of_the_same_deploy_changes_nothing(self, ledger: Ledger) -> None:
        self.sync(ledger, 1, new("a"))
        before = schedules.schedule(ledger, "a")
        assert not any(self.sync(ledger, 1, new("a")))
        assert schedules.schedule(ledger, "a") == before

    def test_an_older_deploy_never_overwrites_a_newer_one(self, ledger: Ledger) -> None:
        self.sync(ledger, 2, new("a", spec=HOURLY), new("b"))
        synced = self.sync(ledger, 1, new("a"), new("c"))
        assert (synced.made, synced.kept) == (("c",), ("a", "b"))
        assert {each.id: each.spec for each in schedules.schedules(ledger)} == {
            "a": HOURLY,
            "b": MINUTELY,
            "c": MINUTELY,
        }

    def test_an_older_deploy_does_not_bring_back_what_a_newer_one_dropped(self, ledger: Ledger) -> None:
        self.sync(ledger, 1, new("a"))
        self.sync(ledger, 2)
        assert self.sync(ledger, 1, new("a")).kept == ("a",)
        assert schedules.schedules(ledger) == []

    def test_a_deploy_that_changes_nothing_still_raises_the_generation(self, ledger: Ledger) -> None:
        self.sync(ledger, 1, new("a"))
        self.sync(ledger, 5, new("a"))
        assert schedules.schedule(ledger, "a").generation == 5
        assert self.sync(ledger, 4, new("a", spec=HOURLY)).kept == ("a",)

    def test_schedules_of_jobs_this_process_does_not_know_are_left_alone(self, ledger: Ledger) -> None:
        self.sync(ledger, 1, new("a", job="report"), jobs=("report",))
        synced = self.sync(ledger, 1, new("b", job="clean"), jobs=("clean",))
        assert (synced.made, synced.deleted) == (("b",), ())
        assert [each.id for each in schedules.schedules(ledger)] == ["a", "b"]

    def test_what_was_made_at_run_time_stays(self, ledger: Ledger) -> None:
        schedules.put(ledger, new("a", spec=HOURLY))
        schedules.put(ledger, new("z"))
        synced = self.sync(ledger, 3, new("a"))
        assert (synced.kept, synced.deleted) == (("a",), ())
        assert schedules.schedule(ledger, "a").spec == HOURLY

    def test_what_stands_in_the_code_is_changed_there(self, ledger: Ledger) -> None:
        self.sync(ledger, 1, new("a"))
        for act in (lambda: schedules.put(ledger, new("a", spec=HOURLY)), lambda: schedules.delete(ledger, "a")):
            with pytest.raises(LedgerRefused, match="is declared in the code of job 'report'"):
                act()
        schedules.delete(ledger, "a", even_of_code=True)
        assert schedules.schedules(ledger) == []

    def test_a_pause_outlasts_deploys_even_one_that_dropped_the_schedule(self, ledger: Ledger) -> None:
        self.sync(ledger, 1, new("a"))
        schedules.pause(ledger, "a", by="me")
        self.sync(ledger, 2, new("a", spec=HOURLY))
        self.sync(ledger, 3)
        self.sync(ledger, 4, new("a"))
        kept = schedules.schedule(ledger, "a")
        assert (kept.paused_by, kept.next_due_at) == ("me", None)

    def test_planned_through_never_falls_through_deploys(self, ledger: Ledger) -> None:
        self.sync(ledger, 1, new("a"))
        ahead = schedules.schedule(ledger, "a").planned_through + 3600 * SECOND_US
        set_back(ledger, "a", planned_through=ahead)
        for generation, declared in ((2, [new("a", spec=HOURLY)]), (3, []), (4, [new("a")])):
            self.sync(ledger, generation, *declared)
            [row] = schedules.schedules(ledger, with_deleted=True)
            assert row.planned_through == ahead

    def test_many_nodes_that_start_at_once_agree(self, ledger_url: str, opened: Opened) -> None:
        declared = [new(f"s{number}") for number in range(10)]
        made: list[str] = []
        start = threading.Barrier(4)

        def sync(ledger: Ledger) -> None:
            start.wait()
            made.extend(self.sync(ledger, 1, *declared).made)

        threads = [threading.Thread(target=sync, args=(opened(ledger_url),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(made) == sorted(each.id for each in declared)
