"""A server's clock is stepped, forward and back, by any amount: no living node ends, and no run is taken from one.

The clock is that of a real PostgreSQL: `clock_timestamp` of one database is shadowed by one that is off by what a table
says. That is what every statement of ours reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from fencepost.core.duration import seconds
from fencepost.core.events import What
from fencepost.ledger import migrations
from fencepost.ledger.history import attempts
from fencepost.ledger.ledger import open_ledger
from fencepost.ledger.nodes import nodes
from fencepost.testing import until
from testbed.postgres import Postgres
from tests.engine.crew import RUNTIME, TTL, Crew, crew, job, seldom

TTL_S = seconds(TTL)

_SHADOW = """
CREATE SCHEMA shifted;
CREATE TABLE shifted.step (by_s double precision NOT NULL);
INSERT INTO shifted.step VALUES (0);
CREATE FUNCTION shifted.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
  'SELECT pg_catalog.clock_timestamp() + (SELECT by_s FROM shifted.step) * interval ''1 second''';
"""


class Stepped:
    """A database whose clock can be stepped, with an empty ledger in it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def step(self, by_s: float) -> None:
        """Step the clock, forward or back."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("UPDATE shifted.step SET by_s = by_s + %s", (by_s,))


@pytest.fixture(scope="module")
def stepped_database(postgres: Postgres) -> str:
    name = f"stepped_{RUNTIME.new_id()[:10]}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        connection.execute(f"ALTER DATABASE {name} SET search_path = shifted, pg_catalog, public")
    url = f"{postgres.url.rpartition('/')[0]}/{name}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_SHADOW)
    return url


@pytest.fixture
def stepped(stepped_database: str) -> Stepped:
    return Stepped(stepped_database)


@contextmanager
def busy_crew(stepped: Stepped) -> Iterator[tuple[Crew, Callable[[], None]]]:
    """Yield two nodes, one of which is in the middle of a run, and what lets the run end."""
    begun, go = RUNTIME.event(), RUNTIME.event()
    beside: list[int] = []

    def work() -> None:
        beside.append(1)
        assert len(beside) == 1, "it runs twice at once"
        begun.set()
        go.wait(30)
        beside.pop()

    url = f"{stepped.url}?prefix=c{RUNTIME.new_id()[:10]}_"
    ledger = open_ledger(url, RUNTIME)
    migrations.migrate(ledger)
    ledger.close()
    with crew(url, [job(work, crash_limit=3, exclusive="one")]) as made:
        for _ in range(2):
            made.node()
        made.enqueue("work", exclusive_key="one")
        assert begun.wait(30)
        # Each has watched the other for a whole ttl, so that it would be its right to declare it dead.
        until(
            seldom(lambda: all(node._state.clock.contact_s() > TTL_S for node in made.nodes)), 60, "they have watched"
        )
        try:
            yield made, go.set
        finally:
            go.set()


def until_renewed(made: Crew, times: int = 3) -> None:
    """Wait until the sessions of all nodes have been renewed so often, and everybody had time to do harm."""
    before = len(made.events)

    def is_renewed() -> bool:
        renewed = [event.holder for event in made.events[before:] if event.what is What.RENEWED]
        return all(renewed.count(locks.holder) >= times for locks in made._locks)

    until(seldom(is_renewed), 30, "all sessions were renewed")


@pytest.mark.parametrize("steps", [(60.0,), (3.0, 1800.0, -3600.0, 7200.0)], ids=str)
def test_no_step_of_the_servers_clock_ends_a_living_node_or_its_run(stepped: Stepped, steps: tuple[float, ...]) -> None:
    with busy_crew(stepped) as (made, let_go):
        for by_s in steps:
            stepped.step(by_s)
            until_renewed(made, times=2)
        assert {What.NODE_DIED, What.NODE_LOST, What.RUN_LOST, What.RUN_DEAD}.isdisjoint(made.whats())
        let_go()
        [row] = made.until_state("succeeded", 1)
        assert (row.attempts, row.crashes) == (1, 0)
        assert [each.outcome for each in attempts(made.ledger, row.id)] == ["succeeded"]
        assert all(node.is_living for node in nodes(made.ledger))
