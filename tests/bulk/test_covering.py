"""Readers that take keys from an index and then their rows, on each database."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine

from fencepost.bulk import covering
from fencepost.errors import BrokenInput, InvalidBulk
from tests.bulk.sources import Source

KEYS = "SELECT id FROM orders WHERE amount = 5 AND id > :after ORDER BY id LIMIT :limit"
ROWS = "SELECT amount, id FROM orders WHERE id IN (:keys)"


@pytest.fixture
def source(engine: Engine) -> Source:
    return Source(engine)


def reader(rows: str = ROWS, keys: str = KEYS) -> Any:
    return covering(keys=keys, rows=rows, key="id")


def test_every_row_comes_once_in_the_order_of_the_keys(source: Source) -> None:
    source.orders(range(1, 60))
    for limit in (1, 7, 1000):
        assert [row.id for row in source.read(reader(), limit=limit)] == list(range(1, 60))
    assert [row.id for row in source.read(reader(f"{ROWS} ORDER BY id DESC"), limit=9)] == list(range(1, 60))
    plan = source.divided(reader(), 4)
    assert [row.id for part in plan for row in source.read(reader(), part, limit=4)] == list(range(1, 60))
    assert [each["expected"] for each in plan] == [15, 15, 15, 14]
    assert reader().label(source.read(reader())[0]) == "id=1"


def test_keys_may_be_texts_and_more_than_a_statement_takes_parameters(source: Source) -> None:
    source.execute("CREATE TABLE orders (id VARCHAR(20) PRIMARY KEY, amount INTEGER)")
    source.fill("orders", "id, amount", ((f"it's {n:05} % :x", 5) for n in range(11_000)))
    rows = source.read(reader(), limit=20_000)
    assert [row.id for row in rows] == [f"it's {n:05} % :x" for n in range(11_000)]


@pytest.mark.parametrize("limit", [2, 3, 100])
def test_rows_that_vanish_between_keys_and_rows_are_not_read(source: Source, limit: int) -> None:
    source.orders(range(1, 13))
    gone = reader(f"{ROWS} AND id NOT IN (2, 5, 6, 7, 8, 12)")  # as if they were deleted just then
    assert [row.id for row in source.read(gone, limit=limit)] == [1, 3, 4, 9, 10, 11]
    assert source.read(reader(f"{ROWS} AND id > 100"), limit=limit) == []


def test_it_goes_on_after_any_item_of_a_page(source: Source) -> None:
    source.orders(range(1, 13))
    feed = source.open(reader())
    page = feed.read(None, 5)
    assert [row.id for row in feed.read(page.position_after(2), 3).items] == [4, 5, 6]
    feed.close()


def test_both_queries_may_name_the_parameters_of_the_run(source: Source) -> None:
    source.orders(range(1, 13))
    named = reader(f"{ROWS} AND id <> :without", KEYS.replace("amount = 5", "id <= :most"))
    assert [row.id for row in source.read(named, most=4, without=2)] == [1, 3, 4]


def test_several_rows_for_a_key_are_refused(source: Source) -> None:
    source.orders(range(1, 4))
    rows = "SELECT o.id FROM orders o JOIN orders p ON p.id <= 2 WHERE o.id IN (:keys)"
    with pytest.raises(BrokenInput, match=r"more than one row for the id 1.*keyset"):
        source.read(reader(rows))


def test_rows_without_their_key_are_refused(source: Source) -> None:
    source.orders(range(1, 4))
    with pytest.raises(BrokenInput, match="does not return its key id"):
        source.read(reader("SELECT amount FROM orders WHERE id IN (:keys)"))


REFUSED = {
    "SELECT id FROM orders": r"must contain id IN \(:keys\) once",
    "SELECT id FROM orders WHERE id NOT IN (:keys)": r"must contain id IN \(:keys\) once",
    "SELECT id FROM orders WHERE id = :keys": r"must contain id IN \(:keys\) once",
    "SELECT id FROM orders WHERE id IN (:keys) OR id IN (:keys)": "once",
    f"{ROWS} LIMIT 10": "only keys= needs one",
    f"{ROWS} LIMIT 10 OFFSET 1": "OFFSET",
    "DELETE FROM orders WHERE id IN (:keys)": "rows= must be a SELECT",
}


@pytest.mark.parametrize("rows", REFUSED)
def test_a_query_that_does_not_name_its_rows_is_refused_with_what_to_write(rows: str) -> None:
    with pytest.raises(InvalidBulk, match=REFUSED[rows]):
        reader(rows)


def test_a_key_of_several_columns_is_refused_with_another_reader() -> None:
    key: Any = ("region", "id")
    with pytest.raises(InvalidBulk, match=r"one column.*use keyset"):
        covering(keys=KEYS, rows=ROWS, key=key)


def test_the_query_for_the_keys_is_checked_like_any_other() -> None:
    with pytest.raises(InvalidBulk, match="no ORDER BY"):
        reader(keys="SELECT id FROM orders WHERE id > :after LIMIT :limit")
