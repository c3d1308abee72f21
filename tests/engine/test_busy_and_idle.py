"""Nodes that have more to do than places, or nothing at all: neither keeps others waiting, nor the server busy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise

import psycopg
import pytest

from fencepost.core.names import NODE_LEASE
from fencepost.core.schedule import every
from fencepost.ledger import history
from fencepost.ledger.database import POOL_SIZE
from fencepost.ledger.history import attempts
from fencepost.ledger.requests import cancel
from fencepost.testing import until
from testbed.postgres import Postgres
from tests.engine.crew import RUNTIME, crew, job
from tests.engine.test_node import _vanish


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_node_without_a_free_place_still_finds_the_dead(ledger_url: str, go_on: threading.Event) -> None:
    began: list[int] = []

    def work(run) -> None:
        began.append(run.id)
        go_on.wait(40)

    with crew(ledger_url, [job(work)]) as made:
        [first] = made.enqueue("work")
        doomed = made.node(slots=1, ttl="3s")
        until(lambda: first in began, 20, "the first node has something to do")
        [second] = made.enqueue("work")
        made.node(slots=1, ttl="3s")
        until(lambda: second in began, 20, "the second node has no place left")
        _vanish(doomed)
        until(lambda: [each.outcome for each in attempts(made.ledger, first)] == ["lost"], 30, "the dead is found")
        go_on.set()
        rows = made.until_state("succeeded", 2)
    assert {row.id: row.attempts for row in rows} == {first: 2, second: 1}


def test_node_without_a_free_place_still_hears_of_cancellations(ledger_url: str, go_on: threading.Event) -> None:
    began = threading.Event()

    def work(run) -> None:
        began.set()
        until(run.check, 40, "the run is told to stop")

    with crew(ledger_url, [job(work)]) as made:
        [run_id] = made.enqueue("work")
        made.node(slots=1)
        assert began.wait(20)
        made.enqueue("work")
        cancel(made.ledger, run_id, by="anna")
        [row] = made.until_state("cancelled", 1, 20)
    assert row.id == run_id


def test_node_without_a_free_place_still_plans(ledger_url: str, go_on: threading.Event) -> None:
    def hog() -> None:
        go_on.wait(40)

    def tick() -> None: ...

    with crew(ledger_url, [job(hog), job(tick, every("1s"), overlap="queue")]) as made:
        made.enqueue("hog")
        made.node(slots=1)
        later_us = made.ledger.now_us() + 3_000_000
        [waiting] = made.enqueue("hog", available_at_us=later_us)
        until(lambda: history.run(made.ledger, waiting).state == "queued", 20, "what waits for its time is queued")
        until(lambda: len([row for row in made.runs() if row.job == "tick"]) >= 5, 20, "ticks are planned")
        go_on.set()


def test_node_joins_again_though_its_users_have_all_shared_connections(ledger_url: str) -> None:
    def work() -> None: ...

    with crew(ledger_url, [job(work)]) as made:
        node = made.node()
        first, pool = node.node_id, node._state.ledger.pool
        with ExitStack() as users:
            for _ in range(POOL_SIZE):
                users.enter_context(pool.borrow(5.0))
            made._locks[0].revoke(f"{NODE_LEASE}{first}")
            until(lambda: node.node_id not in (first, None), 30, "it is somebody else")


def test_when_the_leader_is_gone_another_plans_what_it_left_out(ledger_url: str) -> None:
    def tick() -> None: ...

    with crew(ledger_url, [job(tick, every("500ms"), overlap="queue", misfire="all", grace="500ms")]) as made:
        nodes = [made.node(leader=True, ttl="3s") for _ in range(2)]
        leader = until(lambda: next((node for node in nodes if node._state.may_lead), None), 20, "one leads")
        made.until_state("succeeded", 2)
        assert [node._state.may_lead for node in nodes].count(True) == 1
        _vanish(leader)
        leader._state.election._is_stopping = True
        gone_us = made.ledger.now_us()
        until(lambda: _has_succeeded_since(made, gone_us + 3_000_000), 30, "another plans")
        rows = sorted(made.runs(), key=lambda row: row.due_at)
    assert all(later.due_at == earlier.due_at + 500_000 for earlier, later in pairwise(rows))


def _has_succeeded_since(made, at_us: int) -> bool:
    return any(row.state == "succeeded" and row.due_at > at_us for row in made.runs())


_TRANSACTIONS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencepost'"


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
def test_idle_node_asks_less_than_once_a_second_on_few_connections(ledger_url: str, postgres: Postgres) -> None:
    def work() -> None: ...

    with crew(ledger_url, [job(work)]) as made:
        made.node(ttl="30s")
        made.ledger.close()
        with psycopg.connect(postgres.url, autocommit=True) as connection:

            def number(sql: str) -> int:
                return connection.execute(sql).fetchone()[0]

            until(lambda: number(_CONNECTIONS) <= 5, 20, "it has begun")
            RUNTIME.sleep(5.0)  # what was done to begin is still being counted
            seconds, most, ours = 12, 0, 13
            for _ in range(2):  # on a busy machine the server may count what was done long before
                if ours <= seconds:
                    break
                before = number(_TRANSACTIONS)
                for _ in range(seconds):
                    RUNTIME.sleep(1.0)
                    most = max(most, number(_CONNECTIONS))
                ours = number(_TRANSACTIONS) - before - seconds
        assert most <= 5  # one of them for what a lease store does when it begins; a heartbeat closes it
        assert ours <= seconds
