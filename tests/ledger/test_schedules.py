"""Schedules: due times are neither planned twice nor lost in silence, and deploys come in their order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from fencepost.core.policy import Policy
from fencepost.core.runs import Requested
from fencepost.core.schedule import at, every, schedule_to_json
from fencepost.core.tick import instant
from fencepost.errors import LedgerRefused, NoSuchSchedule
from fencepost.ledger.jobs import NewJob
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
    ledger.register([NewJob("report", "scheduled", Policy.of(**policy).to_json(), "{}")], generation=0)


def set_back(ledger: Ledger, schedule_id: str, **values: Any) -> None:
    """Make a schedule look as if time had passed."""
    table = ledger.tables.schedule
    ledger.write(lambda cursor: ledger.change(cursor, sa.update(table).where(table.c.id == schedule_id).values(values)))


def planned(ledger: Ledger, due_us: int, **changes: Any) -> int:
    """Record a run as the planner would."""
    request = Requested(
        job="report", type="scheduled", origin_key=f"tick:nightly:{due_us}", schedule="nightly", due_at_us=due_us
    )
    return ledger.enqueue([request._replace(**changes)])[0].run_id


class TestAtRunTime:
    def test_a_new_schedule_is_planned_from_now_on(self, ledger: Ledger) -> None:
        made = ledger.put_schedule(new(), by="me")
        assert abs(made.planned_through - ledger.now_us()) < 60 * SECOND_US
        assert made.next_due_at is not None
        assert 0 < made.next_due_at - made.planned_through <= 60 * SECOND_US
        assert (made.origin, made.deleted_at, made.paused_at) == ("runtime", None, None)
        assert [(entry.what, entry.by) for entry in ledger.journal_entries()] == [("schedule made", "me")]

    def test_schedules_are_listed_by_id_from_one_on(self, ledger: Ledger) -> None:
        for name in ("c", "a", "b"):
            ledger.put_schedule(new(name, job=f"of {name}"))
        ledger.delete_schedule("b")
        assert [each.id for each in ledger.schedules()] == ["a", "c"]
        assert [each.id for each in ledger.schedules(after_id="a")] == ["c"]
        assert [each.id for each in ledger.schedules(job="of c")] == ["c"]
        assert [each.id for each in ledger.schedules(with_deleted=True, limit=2)] == ["a", "b"]

    def test_what_is_not_there_is_named(self, ledger: Ledger) -> None:
        ledger.put_schedule(new())
        ledger.delete_schedule("nightly")
        for act in (ledger.schedule, ledger.pause_schedule, ledger.resume_schedule, ledger.delete_schedule):
            with pytest.raises(NoSuchSchedule, match="there is no schedule 'nightly'"):
                act("nightly")

    def test_planned_through_never_falls_through_deletion_and_recreation(self, ledger: Ledger) -> None:
        ahead = ledger.put_schedule(new()).planned_through + 3600 * SECOND_US
        set_back(ledger, "nightly", planned_through=ahead)
        ledger.put_schedule(new(spec=HOURLY))
        assert ledger.schedule("nightly").planned_through == ahead
        ledger.delete_schedule("nightly")
        again = ledger.put_schedule(new())
        assert again.planned_through == ahead
        assert again.next_due_at is not None
        assert again.next_due_at > ahead
        ledger.pause_schedule("nightly")
        assert ledger.resume_schedule("nightly").planned_through == ahead

    def test_a_schedule_made_again_does_not_catch_up_on_the_time_it_was_gone(self, ledger: Ledger) -> None:
        ledger.put_schedule(new())
        ledger.delete_schedule("nightly")
        set_back(ledger, "nightly", planned_through=5)
        again = ledger.put_schedule(new())
        assert again.planned_through == again.created_at > 5
        assert ledger.runs() == []

    def test_what_a_change_passes_over_is_on_record(self, ledger: Ledger) -> None:
        through = ledger.put_schedule(new()).planned_through - 600 * SECOND_US
        set_back(ledger, "nightly", planned_through=through)
        changed = ledger.put_schedule(new(spec=HOURLY))
        [run] = ledger.runs()
        assert (run.state, run.why, run.ticks, run.schedule) == ("skipped", "schedule changed", 10, "nightly")
        assert changed.next_due_at is not None
        assert changed.next_due_at > changed.planned_through >= (run.due_at or 0)

    def test_new_parameters_alone_pass_over_nothing(self, ledger: Ledger) -> None:
        through = ledger.put_schedule(new()).planned_through - 600 * SECOND_US
        set_back(ledger, "nightly", planned_through=through)
        assert ledger.put_schedule(new(params='{"a":1}')).planned_through == through
        assert ledger.runs() == []


class TestInstants:
    """Due times that are named one by one, and have passed when the schedule is made."""

    def test_what_passed_within_the_grace_is_planned_and_what_passed_earlier_is_on_record(self, ledger: Ledger) -> None:
        job(ledger, grace="1m")
        now_us = ledger.now_us()
        dues = [now_us - ago * SECOND_US for ago in (7200, 3600, 30)]
        made = ledger.put_schedule(new(spec=at_us(*dues)))
        assert (made.next_due_at, made.created_at >= now_us) == (dues[-1], True)
        [run] = ledger.runs()
        assert (run.state, run.why) == ("skipped", "the time had passed when the schedule was made")
        assert (run.first_due_at, run.due_at, run.ticks) == (*dues[:2], 2)
        assert ledger.why("nightly", dues[0]) == [run]

    def test_a_deploy_a_day_later_runs_nothing_by_surprise_and_says_so_once(self, ledger: Ledger) -> None:
        due = ledger.now_us() - 86_400 * SECOND_US
        for _ in range(2):
            ledger.sync_code(generation=1, jobs=["report"], schedules=[new(spec=at_us(due))])
        assert ledger.schedule("nightly").next_due_at is None
        assert [(run.state, run.due_at) for run in ledger.runs()] == [("skipped", due)]

    def test_so_it_is_for_another_instant_under_the_same_id(self, ledger: Ledger) -> None:
        job(ledger, grace="1m")
        now_us = ledger.now_us()
        ledger.put_schedule(new(spec=at_us(now_us + 3600 * SECOND_US)))
        set_back(ledger, "nightly", planned_through=now_us - 7200 * SECOND_US)
        late, recent = now_us - 3600 * SECOND_US, now_us - 30 * SECOND_US
        assert ledger.put_schedule(new(spec=at_us(late, recent))).next_due_at == recent
        assert [(run.state, run.due_at) for run in ledger.runs()] == [("skipped", late)]

    def test_what_the_former_schedule_passed_over_does_not_come_back(self, ledger: Ledger) -> None:
        job(ledger, grace="1m")
        due = ledger.now_us() - 30 * SECOND_US
        ledger.put_schedule(new(spec=at_us(due, due + 1)))
        changed = ledger.put_schedule(new(spec=at_us(due, due + 1, due + 2)))
        assert changed.next_due_at is None
        assert [(run.state, run.why, run.ticks) for run in ledger.runs()] == [("skipped", "schedule changed", 2)]

    def test_what_was_planned_is_not_planned_again_however_recent(self, ledger: Ledger) -> None:
        job(ledger, grace="1m")
        due = ledger.now_us() - 30 * SECOND_US
        ledger.put_schedule(new(spec=at_us(due)))
        set_back(ledger, "nightly", planned_through=due)
        ledger.delete_schedule("nightly")
        assert ledger.put_schedule(new(spec=at_us(due))).next_due_at is None


class TestPausing:
    def test_pausing_stops_planning_and_resuming_records_what_was_missed(self, ledger: Ledger) -> None:
        ledger.put_schedule(new())
        paused = ledger.pause_schedule("nightly", by="me", reason="audit")
        assert (paused.next_due_at, paused.paused_by, paused.pause_reason) == (None, "me", "audit")
        through = paused.planned_through - 600 * SECOND_US
        set_back(ledger, "nightly", planned_through=through)
        resumed = ledger.resume_schedule("nightly")
        assert (resumed.paused_at, resumed.paused_by, resumed.pause_reason) == (None, None, None)
        assert resumed.next_due_at is not None
        assert resumed.next_due_at > resumed.planned_through
        [run] = ledger.runs()
        assert (run.state, run.why, run.ticks) == ("skipped", "paused", 10)
        assert run.first_due_at is not None
        assert run.due_at is not None
        assert through < run.first_due_at < run.due_at <= resumed.planned_through
        assert ledger.why("nightly", run.first_due_at) == [run]
        assert [entry.what for entry in ledger.journal_entries()][:2] == ["schedule resumed", "schedule paused"]

    def test_what_is_planned_ahead_is_skipped_and_the_rest_left_alone(self, ledger: Ledger) -> None:
        ledger.put_schedule(new())
        now = ledger.now_us()
        ahead, due = planned(ledger, now + 5 * SECOND_US), planned(ledger, now - SECOND_US)
        tried = planned(ledger, now + 6 * SECOND_US)
        asked_for = planned(ledger, now + 7 * SECOND_US, origin_key="backfill:nightly:1")
        table = ledger.tables.run
        ledger.write(
            lambda cursor: ledger.change(cursor, sa.update(table).where(table.c.id == tried).values(attempts=1))
        )
        ledger.pause_schedule("nightly")
        states = {run.id: (run.state, run.why) for run in ledger.runs()}
        assert states.pop(ahead) == ("skipped", "paused")
        assert {run_id: state for run_id, (state, _) in states.items()} == dict.fromkeys(
            (due, tried, asked_for), "queued"
        )

    def test_pausing_and_resuming_twice_changes_nothing(self, ledger: Ledger) -> None:
        ledger.put_schedule(new())
        first = ledger.pause_schedule("nightly", by="me")
        assert ledger.pause_schedule("nightly", by="you") == first
        resumed = ledger.resume_schedule("nightly")
        assert ledger.resume_schedule("nightly") == resumed

    def test_a_change_does_not_end_a_pause(self, ledger: Ledger) -> None:
        ledger.put_schedule(new())
        ledger.pause_schedule("nightly")
        changed = ledger.put_schedule(new(spec=HOURLY))
        assert changed.paused_at is not None
        assert changed.next_due_at is None


class TestDeploys:
    def sync(
        self, ledger: Ledger, generation: int, *schedules: NewSchedule, jobs: tuple[str, ...] = ("report",)
    ) -> Any:
        return ledger.sync_code(generation=generation, jobs=jobs, schedules=schedules)

    def test_a_deploy_makes_changes_and_deletes(self, ledger: Ledger) -> None:
        assert self.sync(ledger, 1, new("a"), new("b")).made == ("a", "b")
        synced = self.sync(ledger, 2, new("b", spec=HOURLY), new("c"))
        assert (synced.made, synced.changed, synced.deleted, synced.kept) == (("c",), ("b",), ("a",), ())
        assert {each.id: each.spec for each in ledger.schedules()} == {"b": HOURLY, "c": MINUTELY}

    def test_a_second_node_of_the_same_deploy_changes_nothing(self, ledger: Ledger) -> None:
        self.sync(ledger, 1, new("a"))
        before = ledger.schedule("a")
        assert not any(self.sync(ledger, 1, new("a")))
        assert ledger.schedule("a") == before

    def test_an_older_deploy_never_overwrites_a_newer_one(self, ledger: Ledger) -> None:
        self.sync(ledger, 2, new("a", spec=HOURLY), new("b"))
        synced = self.sync(ledger, 1, new("a"), new("c"))
        assert (synced.made, synced.kept) == (("c",), ("a", "b"))
        assert {each.id: each.spec for each in ledger.schedules()} == {"a": HOURLY, "b": MINUTELY, "c": MINUTELY}

    def test_an_older_deploy_does_not_bring_back_what_a_newer_one_dropped(self, ledger: Ledger) -> None:
        self.sync(ledger, 1, new("a"))
        self.sync(ledger, 2)
        assert self.sync(ledger, 1, new("a")).kept == ("a",)
        assert ledger.schedules() == []

    def test_a_deploy_that_changes_nothing_still_raises_the_generation(self, ledger: Ledger) -> None:
        self.sync(ledger, 1, new("a"))
        self.sync(ledger, 5, new("a"))
        assert ledger.schedule("a").generation == 5
        assert self.sync(ledger, 4, new("a", spec=HOURLY)).kept == ("a",)

    def test_schedules_of_jobs_this_process_does_not_know_are_left_alone(self, ledger: Ledger) -> None:
        self.sync(ledger, 1, new("a", job="report"), jobs=("report",))
        synced = self.sync(ledger, 1, new("b", job="clean"), jobs=("clean",))
        assert (synced.made, synced.deleted) == (("b",), ())
        assert [each.id for each in ledger.schedules()] == ["a", "b"]

    def test_what_was_made_at_run_time_stays(self, ledger: Ledger) -> None:
        ledger.put_schedule(new("a", spec=HOURLY))
        ledger.put_schedule(new("z"))
        synced = self.sync(ledger, 3, new("a"))
        assert (synced.kept, synced.deleted) == (("a",), ())
        assert ledger.schedule("a").spec == HOURLY

    def test_what_stands_in_the_code_is_changed_there(self, ledger: Ledger) -> None:
        self.sync(ledger, 1, new("a"))
        for act in (lambda: ledger.put_schedule(new("a", spec=HOURLY)), lambda: ledger.delete_schedule("a")):
            with pytest.raises(LedgerRefused, match="stands in the code of job 'report'"):
                act()
        ledger.delete_schedule("a", even_of_code=True)
        assert ledger.schedules() == []

    def test_a_pause_outlasts_deploys_even_one_that_dropped_the_schedule(self, ledger: Ledger) -> None:
        self.sync(ledger, 1, new("a"))
        ledger.pause_schedule("a", by="me")
        self.sync(ledger, 2, new("a", spec=HOURLY))
        self.sync(ledger, 3)
        self.sync(ledger, 4, new("a"))
        kept = ledger.schedule("a")
        assert (kept.paused_by, kept.next_due_at) == ("me", None)

    def test_planned_through_never_falls_through_deploys(self, ledger: Ledger) -> None:
        self.sync(ledger, 1, new("a"))
        ahead = ledger.schedule("a").planned_through + 3600 * SECOND_US
        set_back(ledger, "a", planned_through=ahead)
        for generation, declared in ((2, [new("a", spec=HOURLY)]), (3, []), (4, [new("a")])):
            self.sync(ledger, generation, *declared)
            [row] = ledger.schedules(with_deleted=True)
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
