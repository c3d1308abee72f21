"""Two programs on one ledger: a schedule is planned only while a living node has its job and its queue."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fencepost.core.identity import params_hash
from fencepost.core.policy import Policy
from fencepost.core.schedule import every
from fencepost.engine import membership as membership_module
from fencepost.engine import planner
from fencepost.engine.jobs import Job
from fencepost.ledger import history
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.history import RunRow
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.nodes import NewNode, join, leave
from fencepost.ledger.planning import PlannedBatch, plan
from fencepost.ledger.schedules import schedule
from fencepost.testing import until
from tests.engine.crew import Crew, crew, job, seldom

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US


def nightly() -> None:
    pass


def other() -> None:
    pass


def runs_of(crew: Crew, name: str) -> list[RunRow]:
    return [row for row in crew.runs() if row.job == name]


def until_runs(crew: Crew, name: str, count: int) -> list[RunRow]:
    def found() -> list[RunRow] | None:
        rows = [row for row in runs_of(crew, name) if row.state == "succeeded"]
        return rows if len(rows) >= count else None

    return until(seldom(found), 30, f"{count} runs of {name} have succeeded")


def since(ledger: Ledger, name: str) -> int | None:
    return schedule(ledger, name).no_node_since


def until_set_aside(crew: Crew, name: str) -> int:
    return until(seldom(lambda: since(crew.ledger, name)), 30, f"schedule {name} is set aside")


class TestAnotherProgramLives:
    def test_schedule_without_a_node_is_not_planned(self, ledger_url: str) -> None:
        with (
            crew(ledger_url, [job(nightly, every("1s"))]) as mine,
            crew(ledger_url, [job(other, every("1s"))]) as others,
        ):
            through_us = schedule(mine.ledger, "nightly").planned_through
            others.node()
            until_runs(others, "other", 3)
            assert runs_of(mine, "nightly") == []
            assert since(mine.ledger, "nightly") is not None
            assert schedule(mine.ledger, "nightly").planned_through == through_us

    def test_misfire_once_makes_one_run_when_its_node_returns(self, ledger_url: str) -> None:
        with (
            crew(ledger_url, [job(nightly, every("1s"), grace="1s")]) as mine,
            crew(ledger_url, [job(other)]) as others,
        ):
            others.node()
            until_set_aside(others, "nightly")
            began_us = mine.ledger.now_us()
            go_back(mine.ledger, "nightly", HOUR_US)
            mine.node()
            until_runs(mine, "nightly", 2)
            late = [row for row in runs_of(mine, "nightly") if (row.first_due_at or 0) < began_us - 2_000_000]
            assert [(row.state, row.ticks > 3000) for row in late] == [("succeeded", True)]
            assert since(mine.ledger, "nightly") is None

    def test_node_that_takes_no_runs_from_its_queue_does_not_count(self, ledger_url: str) -> None:
        with crew(ledger_url, [job(nightly, every("1s"), queue="heavy"), job(other, every("1s"))]) as both:
            both.node(queues=("default",))
            until_set_aside(both, "nightly")
            assert runs_of(both, "nightly") == []
            both.node(queues=("heavy",))
            until_runs(both, "nightly", 1)

    @pytest.mark.parametrize("overlap", ["forbid", "allow"])
    def test_ticks_that_an_older_node_has_planned_meanwhile_become_one_run(self, ledger_url: str, overlap: str) -> None:
        with crew(ledger_url, [job(nightly, every("1h"), overlap=overlap)]) as mine:
            now_us = mine.ledger.now_us()
            key = "job:nightly" if overlap == "forbid" else None
            for due_us in range(now_us - HOUR_US, now_us - HOUR_US + 24 * MINUTE_US, MINUTE_US):
                wishes = {"due_at_us": due_us, "available_at_us": due_us, "exclusive_key": key}
                mine.enqueue("nightly", origin_key=f"tick:{due_us}:nightly", schedule="nightly", **wishes)
            mine.node()
            until_runs(mine, "nightly", 1)
            assert [(row.state, row.ticks) for row in runs_of(mine, "nightly")] == [("succeeded", 24)]

    def test_tick_planned_before_an_outage_is_one_run_with_those_that_passed_in_it(
        self, ledger_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        began = threading.Event()

        def plan_late(*args: Any, **kwargs: Any) -> PlannedBatch:
            began.wait(1)  # the exchange has all the time it wants to be first
            return plan(*args, **kwargs)

        monkeypatch.setattr(planner, "plan", plan_late)
        with crew(ledger_url, [Job.of(began.set, name="hourly", policy=Policy.of(), schedules=[every("1h")])]) as mine:
            last_us = mine.ledger.now_us() // HOUR_US * HOUR_US - 24 * HOUR_US
            wishes = {"due_at_us": last_us, "first_due_at_us": last_us, "available_at_us": last_us}
            mine.enqueue(
                "hourly",
                origin_key=f"tick:{last_us}:hourly",
                schedule="hourly",
                params_hash=params_hash("hourly", {}),
                window_start_us=last_us - HOUR_US,
                window_end_us=last_us,
                **wishes,
            )
            table = mine.ledger.tables.name("schedule")
            sql = f"UPDATE {table} SET planned_through = {last_us}, next_due_at = {last_us + HOUR_US}"
            mine.ledger.write(lambda cursor: cursor.execute(sql))
            mine.node()
            until_runs(mine, "hourly", 1)
            through_us = last_us + 24 * HOUR_US
            [run] = [row for row in runs_of(mine, "hourly") if (row.first_due_at or 0) < through_us]
            assert (run.ticks >= 24, run.first_due_at, run.window_start) == (True, last_us, last_us - HOUR_US)


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_of_two_nodes_that_leave_at_once_one_queues_what_is_set_aside(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with crew(ledger_url, [job(nightly)]) as mine, crew(ledger_url, [job(other)]) as made:
        join(made.ledger, NewNode("older", "older", "g", 1, 0, "0.1.0/0003", 1, ("default",), ("other",)))
        leave(made.ledger, "older")
        [run] = mine.enqueue("nightly")
        table = made.ledger.tables.name("run")
        made.ledger.write(lambda cursor: cursor.execute(f"UPDATE {table} SET state = 'waiting', waits_for = 'node'"))
        first, second = made.node(version="0.1.0/0004"), made.node(version="0.1.0/0004")
        looks = membership_module.unpark_for_older

        def and_the_other_leaves(connection: LedgerConnection, *, node: str) -> int:
            count = looks(connection, node=node)
            second.stop(5)
            return count

        monkeypatch.setattr(membership_module, "unpark_for_older", and_the_other_leaves)
        first.stop(5)
        assert history.run(made.ledger, run).state == "queued"


def go_back(ledger: Ledger, name: str, us: int) -> None:
    table = ledger.tables.name("schedule")
    sql = f"UPDATE {table} SET planned_through = planned_through - {us}, next_due_at = next_due_at - {us}"
    ledger.write(lambda cursor: cursor.execute(sql))
