"""Writers: what they take for an item, what they refuse, and that what they write is part of the transaction."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from fencepost.bulk import copy, executemany, unnest
from fencepost.bulk.failures import ChunkVerdict, verdict_of
from fencepost.bulk.writers.values import values_of
from fencepost.errors import InvalidBulk

COLUMNS = ("id", "amount")
Row = namedtuple("Row", COLUMNS)
Wider = namedtuple("Wider", ("note", "amount", "id"))
WRITERS: dict[str, Callable[..., Any]] = {"copy": copy, "unnest": unnest, "executemany": executemany}
only_on_postgresql = pytest.mark.parametrize("kind", ["postgresql"])


@dataclass
class Order:
    """An item that is an object of the user's own."""

    id: int
    amount: int
    more: str = "not written"


@pytest.fixture
def settled(engine: Engine) -> Engine:
    """A table to write to."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE settled (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL)"))
    return engine


def written(engine: Engine, table: str = "settled") -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(f"SELECT * FROM {table} ORDER BY 1"))]


@contextmanager
def opened(engine: Engine, way: str) -> Iterator[Any]:
    """A transaction by one kind of connection, committed at the end."""
    if way == "session":
        with Session(engine) as session, session.begin():
            yield session
        return
    with engine.begin() as connection:
        yield connection.connection.driver_connection if way == "driver" else connection


# -- items -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "item",
    [(1, 10), [1, 10], Row(1, 10), Wider("x", 10, 1), {"id": 1, "amount": 10, "more": 0}, Order(1, 10)],
    ids=["tuple", "list", "named tuple", "wider named tuple", "mapping", "object"],
)
def test_an_item_may_be_a_sequence_a_mapping_or_an_object(item: Any) -> None:
    assert [tuple(row) for row in values_of([item, item], COLUMNS)] == [(1, 10), (1, 10)]


def test_items_of_several_kinds_are_told_apart() -> None:
    items = [(1, 10), Wider("x", 20, 2), {"amount": 30, "id": 3}, Order(4, 40)]
    assert [tuple(row) for row in values_of(items, COLUMNS)] == [(1, 10), (2, 20), (3, 30), (4, 40)]


def test_one_column_is_a_row_too() -> None:
    assert [tuple(row) for row in values_of([{"id": 1}, {"id": 2}], ("id",))] == [(1,), (2,)]
    assert [tuple(row) for row in values_of([Order(3, 0)], ("id",))] == [(3,)]
    assert [tuple(row) for row in values_of([Row(4, 0)], ("id",))] == [(4,)]


def test_rows_that_fit_are_passed_on_as_they_are() -> None:
    items = [Row(1, 10), Row(2, 20)]
    assert values_of(items, COLUMNS) is items


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ((1,), "has 1 values"),
        ((1, 2, 3), "has 3 values"),
        ("ab", "is a string"),
        ({"id": 1}, "amount"),
        (Order, "does not have all of"),
        (7, "does not have all of"),
        (namedtuple("Odd", ("id", "total"))(1, 2), "but not amount"),
    ],
)
def test_an_item_that_does_not_fit_is_found_by_division(item: Any, told: str) -> None:
    with pytest.raises((ValueError, TypeError), match=told) as caught:
        values_of([(1, 10), item] if isinstance(item, tuple) else [item], COLUMNS)
    assert verdict_of(caught.value) is ChunkVerdict.ITEM


# -- what is refused before anything runs ----------------------------------------------------------------------------


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("a; DROP TABLE b", COLUMNS),
        ('a"b', COLUMNS),
        ("a.b.c", COLUMNS),
        ("", COLUMNS),
        (7, COLUMNS),
        ("settled", ()),
        ("settled", ("id", 'amount") VALUES (1) --')),
        ("settled", ("id", "id")),
        ("settled", ("id", 7)),
        ("settled", {"id": 1}),
    ],
)
def test_names_that_are_none_are_refused(writer: Callable[..., Any], table: Any, columns: Any) -> None:
    with pytest.raises(InvalidBulk):
        writer(table, columns)


@pytest.mark.parametrize(
    "call",
    [
        lambda: unnest("settled", COLUMNS, types=["integer"]),
        lambda: unnest("settled", COLUMNS, types=["integer", "integer[]) x; --"]),
        lambda: unnest("settled", COLUMNS, on_conflict="ignore"),
        lambda: unnest("settled", COLUMNS, on_conflict="DO NOTHING; DROP TABLE settled"),
        lambda: executemany("settled"),
        lambda: executemany("SELECT 1 FROM settled WHERE id = :id"),
        lambda: executemany("INSERT INTO settled VALUES (%s, %s)"),
    ],
)
def test_what_could_not_work_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(InvalidBulk):
        call()


def test_writers_show_how_they_were_made() -> None:
    assert repr(copy("settled", ["id", "amount"])) == "copy('settled', ('id', 'amount'))"
    assert repr(unnest("settled", "id")) == "unnest('settled', ('id',))"
    assert repr(executemany("settled", COLUMNS)) == "executemany('settled', ('id', 'amount'))"


# -- every database --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["connection", "session", "driver"])
def test_executemany_writes_on_every_database(settled: Engine, way: str) -> None:
    with opened(settled, way) as tx:
        executemany("settled", COLUMNS)(tx, [(1, 10), (2, 20)])
        executemany("settled", ("amount", "id"))(tx, [Row(3, 30)])
        executemany("INSERT INTO settled (id, amount) VALUES (:id, :amount)")(tx, [Order(4, 40), Order(5, 50)])
        executemany("UPDATE settled SET amount = :amount + :id WHERE id = :id AND '%' <> ':no'")(tx, [(60, 5)])
        executemany("settled", COLUMNS)(tx, [])
    assert written(settled) == [(1, 10), (2, 20), (3, 30), (4, 40), (5, 65)]


def test_what_was_written_is_rolled_back_with_its_transaction(settled: Engine) -> None:
    with pytest.raises(RuntimeError, match="no"), settled.begin() as tx:
        executemany("settled", COLUMNS)(tx, [(1, 10)])
        raise RuntimeError("no")
    assert written(settled) == []


def test_names_that_are_words_of_sql_are_quoted(engine: Engine) -> None:
    quote = engine.dialect.identifier_preparer.quote_identifier
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE {quote('order')} ({quote('select')} INTEGER)"))
    with engine.begin() as tx:
        executemany("order", ("select",))(tx, [(1,), (2,)])
    assert written(engine, quote("order")) == [(1,), (2,)]


@pytest.mark.parametrize("call", [("nowhere", COLUMNS), ("INSERT INTO nowhere (id) VALUES (:id)",)])
def test_a_table_that_is_missing_is_told(settled: Engine, call: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidBulk, match="nowhere"), settled.begin() as tx:
        executemany(*call)(tx, [Row(1, 10)])


def test_a_column_that_is_missing_is_told(settled: Engine) -> None:
    with pytest.raises(InvalidBulk, match="price"), settled.begin() as tx:
        executemany("settled", ("id", "price"))(tx, [(1, 10)])


def test_a_value_that_no_driver_can_spell_is_about_its_item(settled: Engine) -> None:
    with pytest.raises(Exception) as caught, settled.begin() as tx:  # noqa: PT011 - PyMySQL has its own words
        executemany("settled", COLUMNS)(tx, [(1, object())])
    assert verdict_of(caught.value) is ChunkVerdict.ITEM


def test_a_row_that_is_there_already_is_about_its_item(settled: Engine) -> None:
    with pytest.raises(Exception) as caught, settled.begin() as tx:  # noqa: PT011 - each driver has its own
        executemany("settled", COLUMNS)(tx, [(1, 10), (1, 20)])
    assert verdict_of(caught.value) is ChunkVerdict.ITEM


@pytest.mark.parametrize("kind", ["sqlite", "mysql"])
@pytest.mark.parametrize("writer", [copy, unnest])
def test_ways_of_postgresql_are_refused_elsewhere_with_what_to_use(settled: Engine, writer: Any) -> None:
    instead = r"use executemany\('settled', \('id', 'amount'\)\)"
    with pytest.raises(InvalidBulk, match=instead), settled.begin() as tx:
        writer("settled", COLUMNS)(tx, [(1, 10)])


# -- PostgreSQL ------------------------------------------------------------------------------------------------------


@only_on_postgresql
@pytest.mark.parametrize("way", ["connection", "session", "driver"])
@pytest.mark.parametrize("writer", [copy, unnest])
def test_postgresql_is_written_by_its_own_ways(settled: Engine, writer: Any, way: str) -> None:
    with opened(settled, way) as tx:
        write = writer("public.settled", COLUMNS)
        write(tx, [(1, 10), (2, 20)])
        write(tx, [Order(3, 30)])
        write(tx, [])
    assert written(settled) == [(1, 10), (2, 20), (3, 30)]


@only_on_postgresql
@pytest.mark.parametrize("writer", [copy, unnest])
def test_what_is_missing_is_told_by_name(settled: Engine, writer: Any) -> None:
    with pytest.raises(InvalidBulk, match="there is no table nowhere"), settled.begin() as tx:
        writer("nowhere", COLUMNS)(tx, [(1, 10)])
    with pytest.raises(InvalidBulk, match="price"), settled.begin() as tx:
        writer("settled", ("id", "price"))(tx, [(1, 10)])


@only_on_postgresql
@pytest.mark.parametrize("writer", [copy, unnest])
@pytest.mark.parametrize("item", [(1, None), (1, "no number"), (1, 2**70), (1, object()), (0, 0)])
def test_data_that_is_refused_is_about_its_item(settled: Engine, writer: Any, item: Any) -> None:
    with settled.begin() as tx:
        copy("settled", COLUMNS)(tx, [(0, 0)])
    with pytest.raises(Exception) as caught, settled.begin() as tx:  # noqa: PT011 - of several classes
        writer("settled", COLUMNS)(tx, [(5, 5), item])
    assert verdict_of(caught.value) is ChunkVerdict.ITEM
    assert written(settled) == [(0, 0)]


@only_on_postgresql
def test_unnest_says_what_becomes_of_rows_that_are_there(settled: Engine) -> None:
    more = "ON CONFLICT (id) DO UPDATE SET amount = excluded.amount % 100"
    with settled.begin() as tx:
        unnest("settled", COLUMNS)(tx, [(1, 10)])
        unnest("settled", COLUMNS, on_conflict="DO NOTHING")(tx, [(1, 11), (2, 20)])
        unnest("settled", COLUMNS, on_conflict=more)(tx, [(2, 321), (3, 30)])
    assert written(settled) == [(1, 10), (2, 21), (3, 30)]


@only_on_postgresql
def test_unnest_knows_the_types_of_the_columns(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TYPE mood AS ENUM ('glad', 'sad')"))
        connection.execute(
            text("CREATE TABLE typed (n numeric(12, 2), v varchar(3), c char(3), m mood, d date, j jsonb, u uuid)")
        )
    try:
        columns = ("n", "v", "c", "m", "d", "j", "u")
        item = (Decimal("1.50"), "abc", "xy", "sad", "2026-01-02", '{"a": 1}', None)
        with engine.begin() as tx:
            unnest("typed", columns)(tx, [item, item])
        assert [str(each) for each in written(engine, "typed")[1][:6]] == [
            *("1.50", "abc", "xy ", "sad", "2026-01-02", "{'a': 1}")
        ]
        with pytest.raises(psycopg.errors.StringDataRightTruncation), engine.begin() as tx:
            unnest("typed", columns)(tx, [(item[0], "abcd", *item[2:])])
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE typed; DROP TYPE mood"))


@only_on_postgresql
def test_unnest_takes_types_that_are_given(settled: Engine) -> None:
    with settled.begin() as tx:
        unnest("settled", COLUMNS, types=("bigint", "numeric(12, 2)"))(tx, [(1, "10.4")])
    assert written(settled) == [(1, 10)]


@only_on_postgresql
def test_unnest_refuses_a_column_of_arrays(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE tagged (id int, tags text[])"))
    with pytest.raises(InvalidBulk, match="use copy"), engine.begin() as tx:
        unnest("tagged", ("id", "tags"))(tx, [(1, ["a"])])
    with engine.begin() as tx:
        copy("tagged", ("id", "tags"))(tx, [(1, ["a", "b,c"]), (2, None)])
    assert written(engine, "tagged") == [(1, ["a", "b,c"]), (2, None)]


TEXTS = ["tab\there", "line\nbreak", "", "NULL", "{}", "a,b", "it's", "%s", "ünïcödé"]
ODD_TEXTS = [["back\\slash"], ["\\N"], ['a "quoted" one'], ['","', "x"], [None], ['"'] * 3]


@only_on_postgresql
@pytest.mark.parametrize("writer", [copy, unnest])
@pytest.mark.parametrize("odd", [[], *ODD_TEXTS])
def test_texts_are_written_as_they_are(engine: Engine, writer: Any, odd: list[str | None]) -> None:
    texts = [*TEXTS, *odd]
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE said (id int, words text)"))
    with engine.begin() as tx:
        writer("said", ("id", "words"))(tx, list(enumerate(texts)))
    assert written(engine, "said") == list(enumerate(texts))


@only_on_postgresql
@pytest.mark.parametrize("values", [[1, -(2**62), 0], [True, False], [1, None], [Decimal("1.0"), 2]])
def test_numbers_are_written_as_they_are(engine: Engine, values: list[Any]) -> None:
    with engine.begin() as connection:
        kind = "boolean" if isinstance(values[0], bool) else "bigint"
        connection.execute(text(f"CREATE TABLE counted (id int, n {kind})"))
    with engine.begin() as tx:
        unnest("counted", ("id", "n"))(tx, list(enumerate(values)))
    assert written(engine, "counted") == list(enumerate(values))
