"""A change at the very end of a fenced transaction: made with all the rest, or nothing is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest

from fencepost.engine.transactions import RunTransaction
from fencepost.errors import LeaseLost
from fencepost.fence.final_update import FinalUpdate
from tests.fence.grounds import EFFECTS, Ground, driver_connection, write
from tests.fence.test_transactions import urls

COUNTER = 100
ISOLATIONS = ["read committed", "repeatable read", "serializable"]


class Missed(Exception):
    """It was not where we believed it to be."""


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "mysql"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    ground = Ground(*urls(request.param, "other", request, tmp_path_factory.mktemp("ground")))
    yield ground
    ground.close()


@pytest.fixture
def ground(shared: Ground) -> Ground:
    shared.change(f"DELETE FROM {EFFECTS}")
    shared.change(f"INSERT INTO {EFFECTS} VALUES ({COUNTER}, 0)")
    return shared


def moved(before: int, after: int, meanwhile: Callable[[], None] | None = None) -> FinalUpdate:
    sql = f"UPDATE {EFFECTS} SET x = %s WHERE n = %s AND x = %s"
    return FinalUpdate(sql, (after, COUNTER, before), Missed("somebody else has moved it"), meanwhile)


def written(ground: Ground) -> list[tuple[Any, ...]]:
    return ground.rows(f"SELECT n, x FROM {EFFECTS} ORDER BY n")


def fenced(run: Any, source: Any) -> RunTransaction:
    return RunTransaction(run, source, final=False)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_it_commits_with_the_rest(ground: Ground, isolation: str) -> None:
    transaction = fenced(ground.run(isolation=isolation), ground.engine)
    with transaction as tx:
        write(tx)
        transaction.end_with(moved(0, 1))
    assert written(ground) == [(1, 0), (COUNTER, 1)]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_when_it_finds_nothing_nothing_is_written(ground: Ground, isolation: str) -> None:
    run = ground.run(isolation=isolation)
    transaction = fenced(run, ground.engine)
    with pytest.raises(Missed), transaction as tx:
        write(tx)
        transaction.end_with(moved(7, 8))
    assert written(ground) == [(COUNTER, 0)]
    with run.transaction(ground.engine) as tx:  # the run and its connections go on
        write(tx, 2)
    assert written(ground) == [(2, 0), (COUNTER, 0)]


def test_it_is_made_on_a_drivers_own_connection(ground: Ground) -> None:
    connection = driver_connection(ground.url)
    transaction = fenced(ground.run(), connection)
    with transaction as tx:
        write(tx)
        transaction.end_with(moved(0, 1))
    with pytest.raises(Missed), transaction as tx:
        write(tx, 2)
        transaction.end_with(moved(0, 1))
    connection.close()
    assert written(ground) == [(1, 0), (COUNTER, 1)]


def test_a_stale_writer_changes_nothing(ground: Ground) -> None:
    if ground.kind == "sqlite":
        pytest.skip("nobody else can write to the file meanwhile")
    run = ground.run()
    transaction = fenced(run, ground.engine)
    with pytest.raises(LeaseLost), transaction as tx:
        write(tx)
        transaction.end_with(moved(0, 1))
        ground.take_over(run)
    assert written(ground) == [(COUNTER, 0)]


def test_an_exception_leaves_it_out(ground: Ground) -> None:
    transaction = fenced(ground.run(), ground.engine)
    with pytest.raises(ZeroDivisionError), transaction as tx:
        transaction.end_with(moved(0, 1))
        write(tx)
        raise ZeroDivisionError
    assert written(ground) == [(COUNTER, 0)]


def test_it_belongs_into_the_block(ground: Ground) -> None:
    with pytest.raises(RuntimeError, match="inside the block"):
        fenced(ground.run(), ground.engine).end_with(moved(0, 1))


@pytest.mark.parametrize("is_stale", [False, True])
@pytest.mark.parametrize("before", [0, 7])
def test_what_is_done_meanwhile_changes_nothing_about_it(ground: Ground, before: int, is_stale: bool) -> None:
    if ground.kind == "sqlite" and is_stale:
        pytest.skip("nobody else can write to the file meanwhile")
    called: list[int] = []
    run = ground.run()
    transaction = fenced(run, ground.engine)
    expected = Missed if before else LeaseLost if is_stale else None
    with pytest.raises(expected) if expected else nullcontext(), transaction as tx:
        write(tx)
        transaction.end_with(moved(before, 9, lambda: called.append(len(ground.rows(f"SELECT n FROM {EFFECTS}")))))
        if is_stale:
            ground.take_over(run)
    assert written(ground) == ([(COUNTER, 0)] if expected else [(1, 0), (COUNTER, 9)])
    assert len(called) <= 1
    assert called or ground.kind != "postgresql"


def test_it_is_an_error_of_the_connection_if_that_breaks_meanwhile(ground: Ground) -> None:
    if ground.kind != "postgresql":
        pytest.skip("there nothing is done meanwhile")
    connection = driver_connection(ground.url)
    pid = connection.info.backend_pid
    transaction = fenced(ground.run(), connection)

    def kill() -> None:
        ground.rows(f"SELECT pg_terminate_backend({pid}, 5000)")

    with pytest.raises(psycopg.OperationalError), transaction as tx:
        write(tx)
        transaction.end_with(
            FinalUpdate(f"UPDATE {EFFECTS} SET x = 1 WHERE n = %s AND pg_sleep(10) IS NULL", (1,), Missed(), kill)
        )
    connection.close()
    assert written(ground) == [(COUNTER, 0)]
