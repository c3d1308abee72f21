"""Warnings of pages that read or sort the whole table, on each database."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from fencepost.bulk import keyset
from fencepost.bulk.readers.plans import Keyed, estimated_rows
from tests.bulk.sources import Source

ORDERS = "SELECT id, amount FROM orders WHERE id > :after ORDER BY id LIMIT :limit"
TWO = "SELECT region, id FROM orders WHERE (region, id) > (:after_region, :after_id) ORDER BY region, id LIMIT :limit"


@pytest.fixture
def source(engine: Engine) -> Source:
    return Source(engine)


def warnings(source: Source, query: str, key: str | tuple[str, ...] = "id", **values: object) -> str:
    source.warnings.clear()
    keyset(query, key=key).check(source.surroundings(**values))
    return "\n".join(source.warnings)


def test_a_key_without_an_index_is_warned_about_with_the_index_to_create(source: Source) -> None:
    source.execute("CREATE TABLE orders (id INTEGER, amount INTEGER)")
    source.fill("orders", "id, amount", ((n, n) for n in range(50)))
    told = warnings(source, ORDERS)
    assert "each page of the query" in told
    assert "sorts all of its rows" in told
    assert told.endswith("create one: CREATE UNIQUE INDEX orders_id_key ON orders (id)")
    source.execute("CREATE UNIQUE INDEX orders_id_key ON orders (id)")
    assert warnings(source, ORDERS) == ""


def test_the_index_is_told_for_the_table_and_not_for_its_other_name(source: Source) -> None:
    source.execute("CREATE TABLE orders (region VARCHAR(9), id INTEGER)", "CREATE TABLE regions (name VARCHAR(9))")
    source.fill("orders", "region, id", ((f"r{n % 3}", n) for n in range(30)))
    source.fill("regions", "name", [("r0",), ("r1",), ("r2",)])
    query = (
        "SELECT o.region, o.id FROM regions JOIN orders AS o ON o.region = regions.name "
        "WHERE (o.region, o.id) > (:after_region, :after_id) ORDER BY o.region, o.id LIMIT :limit"
    )
    told = warnings(source, query, ("region", "id"))
    assert told.endswith("CREATE UNIQUE INDEX orders_region_id_key ON orders (region, id)")


def test_nothing_is_said_where_an_index_serves_however_small_the_table(source: Source) -> None:
    source.orders(range(3))
    assert warnings(source, ORDERS) == ""
    assert (
        warnings(
            source, "SELECT o.id FROM orders o WHERE o.amount = :a AND o.id > :after ORDER BY o.id LIMIT :limit", a=5
        )
        == ""
    )


def test_nothing_is_said_of_a_key_of_several_columns_with_its_index(source: Source) -> None:
    source.execute("CREATE TABLE orders (region VARCHAR(9), id INTEGER, PRIMARY KEY (region, id))")
    source.fill("orders", "region, id", ((f"r{n % 3}", n) for n in range(300)))
    assert warnings(source, TWO, ("region", "id")) == ""


def test_nothing_is_said_of_an_empty_table(source: Source) -> None:
    source.execute("CREATE TABLE orders (id INTEGER, amount INTEGER)")
    assert warnings(source, ORDERS) == ""


@pytest.mark.parametrize("kind", ["postgresql"])
def test_what_was_set_to_see_the_plan_is_not_left_behind(source: Source) -> None:
    source.orders(range(3))
    warnings(source, ORDERS)
    with source.engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW enable_seqscan").scalar() == "on"


def test_a_plan_that_cannot_be_had_fails_nothing(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    source.orders(range(3))

    def fail(*_: object) -> None:
        raise RuntimeError("no EXPLAIN here; the password is 'secret'")

    monkeypatch.setattr("fencepost.bulk.readers.plans._objections", fail)
    assert warnings(source, ORDERS) == "the plan of the query is not available: RuntimeError"


def test_databases_with_statistics_estimate_rows(source: Source) -> None:
    source.orders(range(500))
    analyze = {"postgresql": "ANALYZE orders", "mysql": "SELECT 1", "sqlite": "ANALYZE"}
    source.execute(analyze[source.kind])
    found = estimated_rows("SELECT id FROM orders", source.surroundings())
    assert found is None if source.kind == "sqlite" else found in range(400, 600)
    assert estimated_rows("SELECT nothing FROM nowhere WHERE x = :y", source.surroundings()) is None


@pytest.mark.parametrize(
    ("sql", "column", "table", "called"),
    [
        ("SELECT id FROM orders WHERE id > 1", "id", "orders", "orders"),
        ("SELECT id FROM shop.orders o WHERE id > 1", "id", "shop.orders", "o"),
        ("SELECT o.id FROM a, shop.orders AS o WHERE o.id > 1", "o.id", "shop.orders", "o"),
        ('SELECT id FROM "Orders" WHERE "id" > 1', '"id"', '"Orders"', "Orders"),
        ("SELECT orders.id FROM orders WHERE orders.id > 1", "orders.id", "orders", "orders"),
        ("SELECT id FROM (SELECT * FROM x) q WHERE id > 1", "id", "the table", "the table"),
    ],
)
def test_the_table_of_the_key_is_found_in_the_query(sql: str, column: str, table: str, called: str) -> None:
    found = Keyed.of(sql, (column,))
    assert (found.table, found.called) == (table, called)
