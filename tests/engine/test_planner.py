"""The planner, step by step: every due time is covered once, whatever else is in the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from fencepost.core.events import Event
from fencepost.core.policy import Policy
from fencepost.core.runs import Requested
from fencepost.core.schedule import every, schedule_to_json
from fencepost.engine.jobs import Jobs
from fencepost.engine.planner import Planner
from fencepost.errors import InvalidSchedule
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.nodes import NewNode, join
from fencepost.ledger.planning import SchedulePlan, ScheduleRow
from fencepost.ledger.run_rows import HORIZON_US
from fencepost.testing import until
from tests.engine.exchange_stand import PuppetMember, SkippingRuntime, node_state
from tests.ledger.scene import Scene

SECOND_US = 1_000_000


class Stand:
    """One planner on a real ledger."""

    def __init__(self, ledger: Ledger, name: str = "first") -> None:
        self.ledger = ledger
        self.scene = Scene(ledger)
        self.runtime = SkippingRuntime()
        self.events: list[Event] = []
        self.node = node_state(ledger, self.runtime, Jobs([]), emit=self.events.append)
        self.node.joined = PuppetMember(name)  # type: ignore[assignment]
        join(ledger, NewNode(name, name, "grant", 1, 0, "test", 10, ("default",), ("job", "keyed")))
        self.clock = self.node.clock
        self.planner = Planner(self.node)
        self.ticks = self.planner._ticks

    def schedule(self, name: str, due_us: int | None = None, **columns: Any) -> None:
        """Add a schedule that is due every second from `due_us` on."""
        due_us = self.scene.now_us() if due_us is None else due_us
        spec = schedule_to_json(every("1s"))
        row = {
            **dict.fromkeys(("created_at", "updated_at", "generation"), 0),
            **dict(zip(("id", "job", "spec", "params", "origin"), (name, "job", spec, "{}", "code"), strict=True)),
            "planned_through": due_us - 1,
            "next_due_at": due_us,
        } | columns
        marks = ", ".join(["%s"] * len(row))
        self.scene.change(f"INSERT INTO {{schedule}} ({', '.join(row)}) VALUES ({marks})", *row.values())

    def policy(self, job: str = "job", **policy: Any) -> None:
        self.scene.change(
            "INSERT INTO {job} (name, type, policy, signature, generation, seen_at) "
            "VALUES (%s, 'scheduled', %s, '', 0, 0)",
            *(job, Policy.of("scheduled", **policy).to_json()),
        )

    def step(self) -> float:
        now = self.runtime.monotonic()
        return self.planner.step(now) - now

    def settle(self) -> float:
        """Step until nothing is due for a while; return how long that is."""
        return until(lambda: nap_s if (nap_s := self.step()) > 0.05 else None, 30, "everything is planned")

    def runs(self, schedule: str) -> list[tuple[int, int, int, str]]:
        rows = self.scene.rows(
            "SELECT first_due_at, due_at, ticks, state FROM {run} WHERE schedule = %s ORDER BY due_at", schedule
        )
        return [tuple(row) for row in rows]

    def close(self) -> None:
        self.planner.close()
        self.scene.close()


@pytest.fixture
def made(ledger: Ledger) -> Iterator[Stand]:
    one = Stand(ledger)
    yield one
    one.close()


@pytest.mark.parametrize(
    "columns",
    [
        {"spec": "no json"},
        {"spec": "[]"},
        {"spec": '{"kind": "from the future"}'},
        {"params": "no json"},
        {"job": "keyed"},
    ],
    ids=str,
)
def test_schedule_that_cannot_be_planned_keeps_no_other_from_it(made: Stand, columns: dict[str, str]) -> None:
    made.policy("keyed", exclusive="account:{account}")
    made.schedule("bad", **columns)
    made.schedule("good")
    made.settle()
    assert made.runs("good") != []
    assert made.runs("bad") == []
    assert "'bad'" in str(made.events[0].reason)


class TestUnreadable:
    """One node cannot read schedules (older time zones, an older version); others can."""

    @pytest.fixture
    def older(self, ledger: Ledger) -> Iterator[Stand]:
        older = Stand(ledger, "older")
        decide = older.ticks._planned

        def planned(now_us: int, row: ScheduleRow) -> SchedulePlan:
            if row.id.startswith("new"):
                raise InvalidSchedule("there is no time zone 'Mars/Olympus'")
            return decide(now_us, row)

        older.ticks._planned = planned  # type: ignore[method-assign]
        yield older
        older.close()

    def test_node_that_cannot_read_a_schedule_leaves_it_to_those_who_can(self, made: Stand, older: Stand) -> None:
        due_us = made.scene.now_us() // SECOND_US * SECOND_US
        made.schedule("new", due_us)
        older.settle()
        assert made.scene.rows("SELECT planned_through, next_due_at FROM {schedule}") == [(due_us - 1, due_us)]
        made.settle()
        assert made.runs("new")[0] == (due_us, due_us, 1, "queued")

    def test_those_it_passes_by_starve_nobody_and_are_logged_once(self, made: Stand, older: Stand) -> None:
        for number in range(501):
            made.schedule(f"new{number}")
        made.schedule("old")
        older.settle()
        assert older.runs("old") != []
        for _ in range(3):
            older.runtime.skipped_s += 1.0
            older.planner.due_at(1, None)  # what a look says: the first of those that are passed by
            older.settle()
        assert len(older.events) == 501

    def test_it_is_tried_again_after_a_while(self, older: Stand) -> None:
        older.schedule("new")
        older.settle()
        del older.ticks._planned  # the machine's time zones were updated
        older.runtime.skipped_s += 61.0
        until(lambda: older.step() and older.runs("new"), 30, "it is planned")


def test_all_that_waits_for_a_time_near_is_queued_though_it_is_more_than_a_batch(made: Stand) -> None:
    later_us = made.scene.now_us() + 5 * SECOND_US
    made.scene.add(*[Requested("job", "manual", available_at_us=later_us)] * 1200)
    made.settle()
    made.planner.due_at(None, later_us)
    made.scene.change("UPDATE {run} SET available_at = %s", made.scene.now_us() + SECOND_US)
    made.runtime.skipped_s += 5.0
    made.settle()
    assert made.scene.rows("SELECT DISTINCT state FROM {run}") == [("queued",)]


def test_what_a_look_tells_while_it_plans_is_not_forgotten(made: Stand) -> None:
    decide = made.ticks.plan

    def told_meanwhile(now_us: int, row: ScheduleRow) -> SchedulePlan:
        made.planner.due_at(now_us + 5 * SECOND_US, None)
        return decide(now_us, row)._replace(next_due_at_us=None)

    made.ticks.plan = told_meanwhile  # type: ignore[method-assign]
    made.schedule("s")
    assert made.step() < 4.0


def test_slow_planning_makes_nobody_late(made: Stand) -> None:
    decide = made.ticks.plan

    def slowly(now_us: int, row: ScheduleRow) -> SchedulePlan:
        plan = decide(now_us, row)
        made.runtime.skipped_s += 0.1
        return plan

    made.ticks.plan = slowly  # type: ignore[method-assign]
    for number in range(5):
        made.schedule(f"s{number}")
    at_us = made.scene.now_us() + SECOND_US
    began_at = made.runtime.monotonic()
    made.step()
    assert made.clock.here(at_us) - began_at < 1.2


@pytest.mark.parametrize(
    ("misfire", "runs", "misfired"), [("once", 1, 0), ("skip", 0, 1), ("all:2500", 2500, 1), ("all:10", 10, 1)]
)
def test_thousands_of_missed_ticks_are_covered_once_each(made: Stand, misfire: str, runs: int, misfired: int) -> None:
    made.policy(misfire=misfire)
    day_ago_us = (made.scene.now_us() // SECOND_US - 86_400) * SECOND_US
    made.schedule("s", day_ago_us)
    made.settle()
    rows = made.runs("s")
    assert rows[0][0] == day_ago_us
    assert all(later[0] == earlier[1] + SECOND_US for earlier, later in pairwise(rows))
    assert all(last - first == (ticks - 1) * SECOND_US for first, last, ticks, _ in rows)
    assert sum(state == "misfired" for *_, state in rows) == misfired
    timely = round(made.ledger.now_us() / SECOND_US) - day_ago_us // SECOND_US - 86_400 + 10 + HORIZON_US / SECOND_US
    assert runs <= sum(state == "queued" for *_, state in rows) <= runs + timely + 3


def test_params_of_a_schedule_reach_its_runs(made: Stand) -> None:
    made.schedule("s", params=json.dumps({"month": 3}))
    made.settle()
    assert made.scene.rows("SELECT DISTINCT params FROM {run}") == [('{"month": 3}',)]
