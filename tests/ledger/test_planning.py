"""Planning: due schedules become runs once, and waiting runs are queued in time, on each database."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from fencepost.core.runs import Requested
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.nodes import NewNode, join
from fencepost.ledger.planning import Left, PlannedBatch, SchedulePlan, ScheduleRow, plan
from fencepost.ledger.serving import Served, bring_back
from tests.ledger.scene import HORIZON_US, HOUR_US, Scene, tick

MINUTE_US = 60_000_000


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


def add_schedule(scene: Scene, name: str, next_due_at: int | None, *, planned_through: int = 0) -> None:
    scene.change(
        "INSERT INTO {schedule} (id, job, spec, params, origin, generation, planned_through, next_due_at, created_at, "
        "updated_at) VALUES (%s, 'job', '{{\"s\": 1}}', '{{}}', 'code', 3, %s, %s, 0, 0)",
        *(name, planned_through, next_due_at),
    )


def every_minute(now_us: int, row: ScheduleRow) -> SchedulePlan:
    """One run at the due time, the next a minute later."""
    due_at = row.next_due_at
    return SchedulePlan([tick(row.id, due_at, generation=row.generation)], due_at, due_at + MINUTE_US)


def planned(scene: Scene, limit: int = 100, decide=every_minute, horizon_us: int = HORIZON_US) -> PlannedBatch:
    return plan(scene.connection, horizon_us=horizon_us, limit=limit, decide=decide)


def schedule(scene: Scene, name: str) -> tuple[int, int | None]:
    [row] = scene.rows("SELECT planned_through, next_due_at FROM {schedule} WHERE id = %s", name)
    return tuple(row)


def runs(scene: Scene) -> list[tuple[str, int, str]]:
    rows = scene.rows("SELECT schedule, due_at, state FROM {run} WHERE schedule IS NOT NULL ORDER BY id")
    return [tuple(row) for row in rows]


class TestDueSchedules:
    def test_what_is_due_within_the_horizon_is_planned_and_nothing_else(self, scene: Scene) -> None:
        now_us = scene.now_us()
        add_schedule(scene, "late", now_us - MINUTE_US)
        add_schedule(scene, "soon", now_us + 1_000_000)
        add_schedule(scene, "later", now_us + MINUTE_US)
        add_schedule(scene, "never", None)
        got = planned(scene)
        assert (got.runs, got.more) == (2, False)
        assert got.now_us >= now_us
        assert runs(scene) == [("late", now_us - MINUTE_US, "queued"), ("soon", now_us + 1_000_000, "queued")]
        assert schedule(scene, "late") == (now_us - MINUTE_US, now_us)
        assert schedule(scene, "later") == (0, now_us + MINUTE_US)
        assert got.next_due_at_us == now_us

    def test_decide_sees_the_schedule_and_its_jobs_policy(self, scene: Scene) -> None:
        now_us = scene.now_us()
        scene.change(
            "INSERT INTO {job} (name, type, policy, signature, generation, seen_at) VALUES ('job', 'scheduled', "
            "'{{\"timeout\": 5}}', '{{}}', 0, 0)"
        )
        add_schedule(scene, "s", now_us, planned_through=7)
        seen: list[tuple[int, ScheduleRow]] = []

        def decide(at_us: int, row: ScheduleRow) -> SchedulePlan:
            seen.append((at_us, row))
            return SchedulePlan([], now_us, None)

        got = planned(scene, decide=decide)
        assert seen == [(got.now_us, ("s", "job", '{"s": 1}', "{}", "code", 3, 7, now_us, '{"timeout": 5}'))]
        assert schedule(scene, "s") == (now_us, None)
        assert got[:4] == (got.now_us, 0, None, False)

    def test_all_that_was_asked_for_is_recorded(self, scene: Scene) -> None:
        now_us = scene.now_us()
        add_schedule(scene, "s", now_us)
        wanted = Requested(
            *("job", "bulk", '{"x": "é"}', "hash", f"tick:s:{now_us}", "s", now_us - 9, now_us, 4, now_us - 99, now_us),
            available_at_us=now_us + 5,
            priority=-7,
            queue="night",
            exclusive_key="k",
            sla_us=1000,
            requested_by="ann",
            reason="why not",
            retry_of=12,
            generation=3,
        )
        planned(scene, decide=lambda now_us, row: SchedulePlan([wanted], now_us, None))
        run = scene.run(scene.last_id())
        asked = {name: value for name, value in wanted._asdict().items() if name not in ("sla_us", "search")}
        expected = {name.removesuffix("_us"): value for name, value in asked.items()}
        assert {name: run[name] for name in expected} == expected
        assert (run["sla_at"], run["ended_at"], run["waits_for"], run["attempts"]) == (now_us + 1000, None, None, 0)

    def test_what_did_not_run_is_on_record_and_over(self, scene: Scene) -> None:
        now_us = scene.now_us()
        add_schedule(scene, "s", now_us)
        missed = tick("s", now_us, state="misfired", why="too late", ticks=60)
        got = planned(scene, decide=lambda now_us, row: SchedulePlan([missed], now_us, None))
        run = scene.run(scene.last_id())
        assert (run["state"], run["why"], run["ticks"], run["ended_at"]) == ("misfired", "too late", 60, got.now_us)
        assert scene.claim().claims == []

    def test_tick_whose_key_is_taken_when_it_is_planned_is_queued_all_the_same(self, scene: Scene) -> None:
        scene.add_one(exclusive_key="k")
        assert len(scene.claim().claims) == 1
        due_at = scene.now_us() + HORIZON_US // 2
        add_schedule(scene, "s", due_at)
        planned(scene, decide=lambda now_us, row: SchedulePlan([tick("s", due_at, exclusive_key="k")], due_at, None))
        assert runs(scene) == [("s", due_at, "queued")]

    def test_tick_is_recorded_once_even_if_asked_for_again(self, scene: Scene) -> None:
        now_us = scene.now_us()
        for name in ("s", "t"):
            add_schedule(scene, name, now_us)
        planned(scene)
        scene.change("UPDATE {schedule} SET next_due_at = %s", now_us)  # as if a deploy had set it back
        planned(scene)
        assert runs(scene) == [("s", now_us, "queued"), ("t", now_us, "queued")]

    def test_planned_through_never_goes_back(self, scene: Scene) -> None:
        now_us = scene.now_us()
        add_schedule(scene, "s", now_us, planned_through=now_us + HOUR_US)
        planned(scene)
        assert schedule(scene, "s")[0] == now_us + HOUR_US

    def test_more_is_said_when_the_limit_was_reached(self, scene: Scene) -> None:
        now_us = scene.now_us()
        for number in range(5):
            add_schedule(scene, f"s{number}", now_us - number)
        assert planned(scene, limit=4)[1:4] == (4, now_us, True)
        assert planned(scene, limit=4).runs == 1

    def test_unserved_schedules_are_set_aside_and_starve_nobody(self, scene: Scene) -> None:
        now_us = scene.now_us()
        for number in range(5):
            add_schedule(scene, f"unserved{number}", now_us - MINUTE_US, planned_through=7)
        add_schedule(scene, "served", now_us)

        def decide(at_us: int, row: ScheduleRow) -> SchedulePlan | Left:
            return every_minute(at_us, row) if row.id == "served" else Left.UNSERVED

        assert [planned(scene, limit=4, decide=decide).runs for _ in range(3)] == [0, 1, 0]
        assert schedule(scene, "unserved0") == (7, now_us - MINUTE_US)
        assert bring_back(scene.connection, Served([({"other"}, {"default"}), ({"job"}, {"heavy"})])) == 0
        assert planned(scene).runs == 0
        assert bring_back(scene.connection, Served([({"job"}, {"default"})])) == 5
        assert planned(scene).runs == 5

    def test_nothing_is_set_aside_that_a_node_serves_by_now(self, scene: Scene) -> None:
        add_schedule(scene, "s", scene.now_us())
        join(scene.ledger, NewNode("n", "n", "g", 1, 0, "test", 1, ("default",), ("job",)))
        got = planned(scene, decide=lambda now_us, row: Left.UNSERVED)
        assert got.has_served
        assert planned(scene).runs == 1

    def test_what_decide_raises_leaves_everything_as_it_was(self, scene: Scene) -> None:
        now_us = scene.now_us()
        for name in ("a", "b"):
            add_schedule(scene, name, now_us)

        def decide(now_us: int, row: ScheduleRow) -> SchedulePlan:
            if row.id == "b":
                raise ZeroDivisionError
            return every_minute(now_us, row)

        with pytest.raises(ZeroDivisionError):
            planned(scene, decide=decide)
        assert runs(scene) == []
        assert planned(scene).runs == 2

    def test_two_planners_plan_every_tick_once(self, scene: Scene) -> None:
        now_us = scene.now_us()
        names = [f"s{number:03}" for number in range(60)]
        for name in names:
            add_schedule(scene, name, now_us - 1)
        counts: list[int] = []

        def work() -> None:
            here = Scene(scene.ledger)
            while True:
                got = planned(here, limit=8)
                counts.append(got.runs)
                if got.next_due_at_us is not None and got.next_due_at_us > now_us:
                    break
            here.close()

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(name for name, _, _ in runs(scene)) == names
        assert sum(counts) == 60


class TestWaitingRuns:
    def test_run_of_the_far_future_waits_and_is_queued_when_near(self, scene: Scene) -> None:
        run_id = scene.add_one(available_at_us=scene.now_us() + HOUR_US)
        assert (scene.state(run_id), scene.run(run_id)["waits_for"]) == ("waiting", "time")
        assert planned(scene).runs == 0
        got = planned(scene, horizon_us=HOUR_US)
        assert got.runs == 1
        assert (scene.state(run_id), scene.run(run_id)["waits_for"]) == ("queued", None)

    def test_jittered_tick_beyond_the_horizon_waits(self, scene: Scene) -> None:
        now_us = scene.now_us()
        add_schedule(scene, "s", now_us)
        late = tick("s", now_us, available_at_us=now_us + HOUR_US)
        planned(scene, decide=lambda now_us, row: SchedulePlan([late], now_us, None))
        assert runs(scene) == [("s", now_us, "waiting")]

    def test_those_who_wait_for_a_key_or_a_person_stay(self, scene: Scene) -> None:
        ids = scene.add(*[Requested("job", "manual", exclusive_key="k")] * 2)
        scene.claim()
        held = scene.add_one()
        scene.change("UPDATE {run} SET state = 'waiting', waits_for = 'person' WHERE id = %s", held)
        assert planned(scene).runs == 0
        assert scene.states([*ids, held]) == ["running", "waiting", "waiting"]
