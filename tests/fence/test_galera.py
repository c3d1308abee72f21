"""Effects on a node of a Galera cluster: the fence is part of what the cluster certifies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from fencepost.core.fencing import FencingToken
from fencepost.errors import LeaseLost
from fencepost.fence.fence_row import FenceRow
from testbed.mariadb import MariaDB
from tests.fence.grounds import EFFECTS, Ground
from tests.test_testbed import needs


@pytest.fixture(scope="module")
def galera() -> Iterator[MariaDB]:
    with MariaDB(galera=True) as server:
        yield server


@pytest.fixture
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    server = request.getfixturevalue(request.param)
    made = Ground(f"sqlite:///{tmp_path}/ledger.db", server.url)
    yield made
    made.change(f"DELETE FROM {made.fence_table} WHERE `key` <> ''")
    made.close()


on_galera = pytest.mark.parametrize("ground", [pytest.param("galera", marks=needs("galera"))], indirect=True)
on_both = pytest.mark.parametrize(
    ("ground", "writes"), [pytest.param("galera", True, marks=needs("galera")), ("mariadb", False)], indirect=["ground"]
)


def raised_at(ground: Ground) -> list[Any]:
    return ground.rows(f"SELECT raised_at FROM {ground.fence_table} WHERE `key` <> ''")


def write(tx: Any, number: int) -> None:
    tx.execute(text(f"INSERT INTO {EFFECTS} (n) VALUES (:n)"), {"n": number})


@on_both
def test_a_fenced_transaction_writes_the_row_of_its_fence_where_nodes_compare_what_was_written(
    ground: Ground, writes: bool
) -> None:
    """A share lock is known to one node alone; rows that two nodes have written are compared by all of them."""
    run = ground.run()
    for number in (1, 2):
        before = raised_at(ground)
        with run.transaction(ground.engine) as tx:
            write(tx, number)
        assert number == 1 or (raised_at(ground) != before) == writes
    assert ground.effects() == [1, 2]


@on_galera
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_a_stale_writer_is_refused_there_too(ground: Ground, isolation: str) -> None:
    run = ground.run(isolation=isolation)
    with run.transaction(ground.engine) as tx:
        write(tx, 1)
    with pytest.raises(LeaseLost), run.transaction(ground.engine) as tx:
        write(tx, 2)
        ground.take_over(run)
    assert ground.effects() == [1]


@pytest.mark.parametrize("ground", ["mariadb"], indirect=True)
@pytest.mark.parametrize("former", [None, "old"])
def test_all_rows_of_a_fence_are_written(ground: Ground, former: str | None) -> None:
    row = FenceRow(ground.fence_table, "", FencingToken("new", 7, "a"), "the run", former)
    for key in row.keys:
        values = f"('{key}', 7, 'a', 1)"
        ground.change(f"INSERT INTO {ground.fence_table} (`key`, token, grant_id, raised_at) VALUES {values}")
    with ground.engine.begin() as connection:
        assert connection.exec_driver_sql(row.touch, row.values).rowcount == len(row.keys)
    assert raised_at(ground) == [(2,)] * len(row.keys)
