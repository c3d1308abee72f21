"""Readers by ranges of ids on each database: every row once, in few steps however sparse, up to an end that stays."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine

from fencepost.bulk import id_range
from fencepost.errors import BrokenInput, InvalidBulk
from tests.bulk.sources import Source

QUERY = "SELECT id, amount FROM orders WHERE id > :after AND id <= :upto"
IDS = {
    "none": [],
    "one": [7],
    "dense": range(1, 60),
    "negative": range(-30, 30),
    "gaps": [1, 2, 3, 1_000_000, 1_000_001, 2**62, 2**62 + 5],
    "sparse": range(0, 10**15, 3 * 10**13),
    "sparse, then dense": [*range(0, 10_000, 500), *range(10_000, 10_060)],
}


@pytest.fixture
def source(engine: Engine) -> Source:
    return Source(engine)


def reader(query: str = QUERY) -> Any:
    return id_range(query, key="id", of="orders")


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
def test_every_row_comes_once_in_order(source: Source, ids: Any) -> None:
    source.orders(ids)
    for limit in (1, 7, 1000):
        assert [row.id for row in source.read(reader(), limit=limit)] == list(ids)
    plan = source.divided(reader(), 3)
    assert [row.id for part in plan for row in source.read(reader(), part, limit=4)] == list(ids)


def test_rows_that_the_query_leaves_out_are_passed_over(source: Source) -> None:
    source.orders(range(1, 300))
    few = reader(f"{QUERY} AND id % 50 = 1")
    assert [row.id for row in source.read(few, limit=3)] == [1, 51, 101, 151, 201, 251]
    assert source.read(reader(f"{QUERY} AND amount = 6"), limit=3) == []


def test_it_goes_on_after_any_item_of_a_page(source: Source) -> None:
    source.orders(range(0, 100, 7))
    feed = source.open(reader())
    page = feed.read(None, 5)
    assert page.position_after(2) == [14]
    assert [row.id for row in feed.read(page.position_after(2), 3).items] == [21, 28, 35]
    assert [row.id for row in feed.read([35], 3).items] == [42, 49, 56]
    feed.close()


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_wide_gap_is_one_step(source: Source) -> None:
    source.orders([*range(1, 11), *range(2**62, 2**62 + 10)])
    feed: Any = source.open(reader())
    asked: list[Any] = []
    fetch = feed._reading.fetch
    feed._reading.fetch = lambda sql, values: asked.append(values) or fetch(sql, values)
    after, ids = None, []
    while True:
        page = feed.read(after, 5)
        ids += [row.id for row in page.items]
        if page.is_last:
            break
        after = page.position_after(len(page.items) - 1)
    feed.close()
    assert len(ids) == 20
    assert len(asked) < 16


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_range_has_no_more_rows_than_a_few_pages_even_where_sparse_ids_become_dense(source: Source) -> None:
    source.orders([*range(0, 1_000_000, 10_000), *range(1_000_000, 1_002_000)])
    feed: Any = source.open(reader())
    after, most = None, 0
    while True:
        page = feed.read(after, 10)
        most = max(most, len(feed._kept))
        if page.is_last:
            break
        after = page.position_after(len(page.items) - 1)
    feed.close()
    assert most <= 80


def test_the_end_is_that_of_the_plan(source: Source) -> None:
    source.orders(range(1, 11))
    (whole,) = source.divided(reader(), 1)
    assert whole == {"upto": [10], "expected": 10}
    source.fill("orders", "id, amount", [(11, 1), (12, 1)])
    assert [row.id for row in source.read(reader(), whole)] == list(range(1, 11))
    assert [row.id for row in source.read(reader())] == list(range(1, 13))


def test_a_query_with_joins_and_groups_needs_no_order(source: Source) -> None:
    source.orders(range(1, 31))
    query = (
        "SELECT o.id, count(*) AS n FROM orders AS o JOIN orders p ON p.id <= o.id "
        "WHERE o.id > :after AND o.id <= :upto GROUP BY o.id"
    )
    rows = source.read(reader(query), limit=4)
    assert [(row.id, row.n) for row in rows] == [(n, n) for n in range(1, 31)]


def test_an_id_that_occurs_twice_is_refused(source: Source) -> None:
    source.orders(range(1, 5))
    query = "SELECT o.id FROM orders o JOIN orders p ON p.id <= 2 WHERE o.id > :after AND o.id <= :upto"
    with pytest.raises(BrokenInput, match="id is not unique: 1 occurs twice"):
        source.read(reader(query))


def test_rows_from_outside_of_the_range_are_refused(source: Source) -> None:
    source.orders(range(1, 30))
    with pytest.raises(BrokenInput, match=r"outside its range.*parentheses around an OR"):
        source.read(reader(QUERY.replace("WHERE", "WHERE amount = 5 OR")), limit=5)


def test_a_key_that_is_no_whole_number_is_refused_with_another_reader(source: Source) -> None:
    source.execute("CREATE TABLE orders (id VARCHAR(10) PRIMARY KEY, amount INTEGER)")
    source.fill("orders", "id, amount", [("a", 1)])
    with pytest.raises(BrokenInput, match=r"integer key, and orders.id has 'a'; .*keyset"):
        source.read(reader())


def test_a_table_without_an_index_is_warned_about(source: Source) -> None:
    source.execute("CREATE TABLE orders (id INTEGER, amount INTEGER)")
    source.fill("orders", "id, amount", [(1, 1), (2, 1)])
    reader().check(source.surroundings())
    (warning,) = source.warnings
    assert "reads all of orders" in warning
    assert "CREATE UNIQUE INDEX orders_id_key ON orders (id)" in warning


REFUSED = {
    f"{QUERY} ORDER BY id": r"instead of ORDER BY: leave that out",
    f"{QUERY} LIMIT 10": r"instead of LIMIT: leave that out.*keyset",
    f"{QUERY} LIMIT 10 OFFSET 5": "OFFSET.*use the range instead",
    "SELECT id FROM orders WHERE id > :after": "must contain id > :after AND id <= :upto once",
    "SELECT id FROM orders WHERE id <= :upto": "must contain id > :after once",
    "SELECT id FROM orders WHERE id >= :after AND id <= :upto": "write id > :after",
    "SELECT id FROM orders WHERE id > :after AND id < :upto": "must contain id > :after AND id <= :upto once",
    "UPDATE orders SET id = 1": "must be a SELECT",
}


@pytest.mark.parametrize("query", REFUSED)
def test_a_query_that_is_not_about_a_range_is_refused_with_what_to_write(query: str) -> None:
    with pytest.raises(InvalidBulk, match=REFUSED[query]):
        reader(query)


@pytest.mark.parametrize("of", ["", "orders o", "orders; DROP", None, "(SELECT 1)"])
def test_what_names_no_table_is_refused(of: Any) -> None:
    with pytest.raises(InvalidBulk, match="must name the table"):
        id_range(QUERY, key="id", of=of)


def test_a_text_at_the_end_of_the_query_stays_and_a_comment_goes(source: Source) -> None:
    source.orders(range(1, 4))
    for end in ("AND 'a' = 'a'", "AND 'a' = 'a'; -- 'b'", "AND 1 = 1 /* c */ ;"):
        assert len(source.read(reader(f"{QUERY} {end}"))) == 3
