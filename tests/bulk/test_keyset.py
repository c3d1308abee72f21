"""Keyset readers on each database: every row once, in order, and what is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine

from fencepost.bulk import keyset
from fencepost.errors import BrokenInput, InvalidBulk
from tests.bulk.sources import Source

ORDERS = "SELECT id, amount FROM orders WHERE id > :after ORDER BY id LIMIT :limit"
TWO = "SELECT region, id FROM orders WHERE (region, id) > (:after_region, :after_id) ORDER BY region, id LIMIT :limit"


@pytest.fixture
def source(engine: Engine) -> Source:
    return Source(engine)


class TestReading:
    def test_every_row_comes_once_in_order_whatever_the_size_of_a_page(self, source: Source) -> None:
        source.orders(range(1, 102))
        for limit in (1, 2, 7, 100, 101, 102, 1000):
            rows = source.read(keyset(ORDERS, key="id"), limit=limit)
            assert [row.id for row in rows] == list(range(1, 102))

    def test_an_empty_table_is_one_empty_page_that_is_the_last(self, source: Source) -> None:
        source.orders([])
        feed = source.open(keyset(ORDERS, key="id"))
        page = feed.read(None, 10)
        feed.close()
        assert (list(page.items), page.is_last) == ([], True)

    def test_it_goes_on_after_any_item_of_a_page(self, source: Source) -> None:
        source.orders(range(1, 21))
        feed = source.open(keyset(ORDERS, key="id"))
        page = feed.read(None, 10)
        assert page.position_after(3) == [4]
        again = feed.read(page.position_after(3), 10)
        feed.close()
        assert [row.id for row in again.items] == list(range(5, 15))

    def test_a_slice_begins_behind_its_lower_bound_and_ends_with_its_upper_one(self, source: Source) -> None:
        source.orders(range(1, 21))
        rows = source.read(keyset(ORDERS, key="id"), {"after": [5], "upto": [12]}, limit=3)
        assert [row.id for row in rows] == list(range(6, 13))

    def test_rows_are_tuples_with_names(self, source: Source) -> None:
        source.orders([7])
        (row,) = source.read(keyset(ORDERS, key="id"))
        assert (row.id, row.amount, tuple(row)) == (7, 5, (7, 5))
        assert keyset(ORDERS, key="ID").label(row) == "ID=7"

    def test_parameters_of_the_run_may_be_named(self, source: Source) -> None:
        source.orders(range(1, 11))
        reader = keyset(ORDERS.replace("WHERE", "WHERE id <= :most AND id % :parts = :part AND"), key="id")
        rows = source.read(reader, {"part": 1, "parts": 3}, most=8)
        assert [row.id for row in rows] == [1, 4, 7]

    def test_a_parameter_that_the_run_does_not_have_is_named(self, source: Source) -> None:
        source.orders([1])
        with pytest.raises(BrokenInput, match=r":most, which is not a parameter of this run; it has .*:least"):
            source.read(keyset(ORDERS.replace("WHERE", "WHERE id <= :most AND"), key="id"), least=1)

    def test_given_values_of_a_partition_are_known(self, source: Source) -> None:
        source.orders(range(1, 11))
        reader = keyset(ORDERS.replace("WHERE", "WHERE id <= :most AND"), key="id")
        reader.check(source.surroundings())
        assert len(source.read(reader, {"values": {"most": 4}})) == 4

    def test_pages_that_were_asked_for_ahead_are_the_same(self, source: Source) -> None:
        source.orders(range(1, 21))
        feed: Any = source.open(keyset(ORDERS, key="id"))
        assert feed.can_ask == (source.kind == "postgresql")
        page = feed.read(None, 5)
        feed.ask(page.position_after(4), 5)
        assert [row.id for row in feed.read(page.position_after(4), 5).items] == [6, 7, 8, 9, 10]
        feed.ask([10], 5)
        assert feed.keys_between(1, 3, 9) == [2, 3]  # another question before the answer is taken
        assert [row.id for row in feed.read([10], 5).items] == [11, 12, 13, 14, 15]
        feed.ask([15], 5)  # and one whose answer nobody takes
        feed.close()

    def test_nothing_is_held_open_between_pages(self, source: Source) -> None:
        source.orders(range(1, 11))
        feed = source.open(keyset(ORDERS, key="id"))
        page = feed.read(None, 5)
        source.execute("DELETE FROM orders WHERE id = 7")
        assert [row.id for row in feed.read(page.position_after(4), 5).items] == [6, 8, 9, 10]
        feed.close()


KEYS: dict[str, tuple[dict[str, str], list[Any]]] = {
    "text": ({"": "VARCHAR(40)"}, ["", "100%", "a b", "don't", "x:after", "z\\"]),
    "decimal": ({"": "DECIMAL(20, 6)"}, [Decimal("-1.5"), Decimal("0.1"), Decimal("0.100001"), Decimal("7")]),
    "timestamp": (
        {"": "TIMESTAMP", "mysql": "DATETIME(6)"},
        [dt.datetime(2026, 1, 1, 0, 0, 0, n) for n in (0, 1, 999_999)] + [dt.datetime(2026, 1, 2)],
    ),
    "time zone": (
        {"": "TIMESTAMPTZ", "mysql": "DATETIME(6)"},
        [dt.datetime(2026, 3, 29, hour, tzinfo=dt.UTC) for hour in (0, 1, 2)],
    ),
    "date": ({"": "DATE"}, [dt.date(2026, 1, day) for day in (1, 2, 3)]),
    "uuid": ({"": "CHAR(36)", "postgresql": "UUID"}, [str(UUID(int=n << 70)) for n in (1, 2, 300)]),
    "bytes": ({"": "BLOB", "postgresql": "BYTEA", "mysql": "VARBINARY(20)"}, [b"\x00", b"\x00\xff", b"%", b"\xff"]),
    "number": ({"": "BIGINT"}, [-(2**63), -1, 0, 2**31, 2**63 - 1]),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_every_kind_are_gone_through_and_come_back_from_json(source: Source, name: str) -> None:
    types, values = KEYS[name]
    kind = types.get(source.kind, types[""])
    source.execute(f"CREATE TABLE things (k {kind} NOT NULL PRIMARY KEY, n INTEGER)")
    source.fill("things", "k, n", _spelled(source, ((value, n) for n, value in enumerate(values))))
    reader = keyset("SELECT k, n FROM things WHERE k > :after ORDER BY k LIMIT :limit", key="k")
    rows = source.read(reader, limit=1)
    assert [row.n for row in rows] == list(range(len(values)))
    plan = source.divided(reader, 2)
    assert [row.n for part in plan for row in source.read(reader, part, limit=2)] == list(range(len(values)))
    assert len(plan) == 2


def _spelled(source: Source, rows: Any) -> list[tuple[Any, ...]]:
    """SQLite has fewer types."""
    if source.kind != "sqlite":
        return list(rows)
    plain = (str, int, bytes)
    return [tuple(each if isinstance(each, plain) else _as_text(each) for each in row) for row in rows]


def _as_text(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else str(value)


class TestSpelling:
    def read(self, source: Source, query: str, key: Any = "id") -> list[int]:
        source.orders(range(1, 8))
        rows = [*source.read(keyset(query, key=key), limit=3)]
        assert rows == source.read(keyset(query, key=key), {"upto": [7]}, limit=2)
        return [row[0] for row in rows]

    def test_a_table_may_have_another_name(self, source: Source) -> None:
        query = "SELECT o.id FROM orders AS o WHERE o.amount = 5 AND o.id > :after ORDER BY o.id ASC LIMIT :limit;"
        assert self.read(source, query) == list(range(1, 8))

    def test_names_may_be_quoted(self, source: Source) -> None:
        query = 'SELECT o."id" FROM "orders" o WHERE o."id">:after ORDER BY o."id" LIMIT :limit'
        assert self.read(source, query.replace('"', "`") if source.kind == "mysql" else query) == list(range(1, 8))

    def test_comments_texts_and_per_cent_signs_are_left_alone(self, source: Source) -> None:
        query = """
            /* id > :after, 100% ; */
            SELECT id, ':after % ORDER BY amount LIMIT 3; it''s' AS t -- OFFSET 5, :nothing
            FROM orders WHERE 'a%b' LIKE 'a%' AND amount % 10 = 5 -- don't
              AND id /* the key */ > :after
            ORDER BY id  -- upwards
            LIMIT :limit ; -- and that is :all
        """
        assert self.read(source, query) == list(range(1, 8))

    def test_words_may_be_written_in_any_case_and_on_several_lines(self, source: Source) -> None:
        assert self.read(source, "select ID\nfrom orders\nwhere Id\n>\n:after\norder\nby iD\nlimit\n:limit") == [
            *range(1, 8)
        ]

    def test_inner_orders_and_limits_do_not_count(self, source: Source) -> None:
        query = (
            "SELECT id, (SELECT max(p.id) FROM orders p ORDER BY 1 DESC LIMIT 1) AS top FROM "
            "(SELECT * FROM orders ORDER BY amount, id LIMIT 100) o WHERE (amount > 0 AND id > :after) "
            "ORDER BY id LIMIT :limit"
        )
        assert self.read(source, query) == list(range(1, 8))

    def test_it_may_begin_with_a_common_table(self, source: Source) -> None:
        query = "WITH o AS (SELECT * FROM orders) SELECT id FROM o WHERE id > :after ORDER BY id LIMIT :limit"
        assert self.read(source, query) == list(range(1, 8))

    def test_values_may_be_cast(self, source: Source) -> None:
        query = "SELECT id FROM orders WHERE id > CAST(:after AS DECIMAL(20, 0)) ORDER BY id LIMIT :limit"
        assert self.read(source, query) == list(range(1, 8))

    @pytest.mark.parametrize("kind", ["postgresql"])
    @pytest.mark.parametrize("cast", ["::bigint", " :: numeric(20, 0)", "::double precision"])
    def test_values_may_be_cast_with_colons(self, source: Source, cast: str) -> None:
        query = f"SELECT id, '1'::int AS n FROM orders WHERE id > :after{cast} AND 1=1::int ORDER BY id LIMIT :limit"
        assert self.read(source, query) == list(range(1, 8))

    @pytest.mark.parametrize("kind", ["postgresql"])
    def test_a_colon_that_begins_no_name_is_written_with_a_backslash(self, source: Source) -> None:
        query = r"SELECT id, (ARRAY[1,2,3])[2\:amount] AS a FROM orders WHERE id > :after ORDER BY id LIMIT :limit"
        assert self.read(source, query) == list(range(1, 8))


class TestSeveralColumns:
    def test_rows_come_once_in_the_order_of_all_columns(self, source: Source) -> None:
        source.execute("CREATE TABLE orders (region VARCHAR(10), id INTEGER, PRIMARY KEY (region, id))")
        wanted = [(region, number) for region in ("eu", "jp", "us") for number in range(5)]
        source.fill("orders", "region, id", reversed(wanted))
        reader = keyset(TWO, key=("region", "id"))
        for limit in (1, 4, 5, 100):
            assert [tuple(row) for row in source.read(reader, limit=limit)] == wanted
        assert reader.label(source.read(reader)[0]) == "region=eu, id=0"
        plan = source.divided(reader, 4)
        assert [each["expected"] for each in plan] == [4, 4, 4, 3]
        assert [tuple(row) for part in plan for row in source.read(reader, part, limit=2)] == wanted

    def test_three_columns(self, source: Source) -> None:
        source.execute("CREATE TABLE t (a INTEGER, b INTEGER, c INTEGER, PRIMARY KEY (a, b, c))")
        wanted = [(a, b, c) for a in range(3) for b in range(3) for c in range(3)]
        source.fill("t", "a, b, c", wanted)
        query = "SELECT a, b, c FROM t x WHERE (x.a, x.b, x.c) > (:after_a, :after_b, :after_c) ORDER BY a, b, c"
        reader = keyset(f"{query} LIMIT :limit", key=["a", "b", "c"])
        assert [tuple(row) for row in source.read(reader, limit=2)] == wanted
        middle = {"after": [0, 2, 2], "upto": [2, 0, 1]}
        assert [tuple(row) for row in source.read(reader, middle, limit=2)] == wanted[9:20]

    @pytest.mark.parametrize("kind", ["mysql"])
    def test_mariadb_reads_no_more_rows_than_a_page_has(self, source: Source) -> None:
        source.execute("CREATE TABLE orders (region VARCHAR(10), id INTEGER, PRIMARY KEY (region, id))")
        source.fill("orders", "region, id", ((region, number) for region in ("eu", "us") for number in range(1000)))
        feed: Any = source.open(keyset(TWO, key=("region", "id")))

        def read_so_far() -> int:
            rows = feed.fetch("SHOW SESSION STATUS LIKE 'Handler_read%'").rows
            return sum(int(count) for name, count in rows if name != "Handler_read_rnd_next")  # those of SHOW itself

        before = read_so_far()
        assert len(feed.read(["us", 500], 10).items) == 10
        assert read_so_far() - before < 30
        feed.close()


class TestBadKeys:
    def table(self, source: Source, rows: list[tuple[Any, Any]], kind: str = "INTEGER") -> None:
        source.execute(f"CREATE TABLE orders (id {kind}, amount INTEGER)")
        source.fill("orders", "id, amount", rows)

    @pytest.mark.parametrize("limit", [1, 2, 3, 10])
    def test_a_key_that_occurs_twice_is_refused_within_a_page_and_at_its_end(self, source: Source, limit: int) -> None:
        self.table(source, [(1, 0), (2, 0), (2, 1), (3, 0)])
        with pytest.raises(BrokenInput, match=r"id is not unique: 2 occurs twice.*add a column to the key"):
            source.read(keyset(ORDERS, key="id"), limit=limit)

    def test_null_is_refused_before_anything_is_read(self, source: Source) -> None:
        self.table(source, [(n, 0) for n in range(20)] + [(None, 0)])
        with pytest.raises(BrokenInput, match=r"id is NULL in some row.*AND id IS NOT NULL"):
            keyset(ORDERS, key="id").check(source.surroundings())
        keyset(ORDERS.replace("WHERE", "WHERE id IS NOT NULL AND"), key="id").check(source.surroundings())

    def test_null_is_refused_where_it_is_read(self, source: Source) -> None:
        self.table(source, [(1, 0), (None, 0)])
        with pytest.raises(BrokenInput, match="NULL"):
            source.read(keyset(ORDERS, key="id"))

    def test_null_in_the_second_column_is_refused(self, source: Source) -> None:
        self.table(source, [(1, 0), (2, None), (3, 1)])
        query = "SELECT id, amount FROM orders WHERE (id, amount) > (:after_id, :after_amount) ORDER BY id, amount"
        reader = keyset(f"{query} LIMIT :limit", key=("id", "amount"))
        with pytest.raises(BrokenInput, match="NULL"):
            source.read(reader)
        with pytest.raises(BrokenInput, match="NULL"):
            reader.check(source.surroundings())

    def test_a_key_that_the_query_does_not_return_is_refused(self, source: Source) -> None:
        source.orders([1])
        query = "SELECT amount FROM orders WHERE id > :after ORDER BY id LIMIT :limit"
        with pytest.raises(BrokenInput, match=r"does not return its key id.*it returns amount: add id"):
            keyset(query, key="id").check(source.surroundings())

    def test_a_key_that_the_query_returns_twice_is_refused(self, source: Source) -> None:
        source.orders([1])
        query = "SELECT id, amount AS id FROM orders WHERE orders.id > :after ORDER BY orders.id LIMIT :limit"
        with pytest.raises(BrokenInput, match=r"two columns named id.*AS other_id"):
            source.read(keyset(query, key="id"))

    @pytest.mark.parametrize("kind", ["sqlite", "mysql"])
    @pytest.mark.parametrize("limit", [1, 2, 10])
    def test_texts_that_only_the_database_takes_for_one_are_refused(self, source: Source, limit: int) -> None:
        kind = "TEXT COLLATE NOCASE" if source.kind == "sqlite" else "VARCHAR(9)"
        self.table(source, [("a", 0), ("A", 1), ("b", 2)], kind)
        with pytest.raises(BrokenInput, match=r"'(a|A)' and '(a|A)' are the same to the database"):
            source.read(keyset(ORDERS, key="id"), limit=limit)

    @pytest.mark.parametrize("kind", ["mysql"])
    def test_so_are_those_that_differ_by_an_accent_at_the_end_of_a_page(self, source: Source) -> None:
        self.table(source, [("a", 0), ("e", 1), ("é", 2), ("f", 3)], "VARCHAR(9) COLLATE utf8mb4_general_ci")
        with pytest.raises(BrokenInput, match="are the same to the database"):
            source.read(keyset(ORDERS, key="id"), limit=2)

    def test_texts_that_differ_by_case_are_read_where_the_database_tells_them_apart(self, source: Source) -> None:
        kinds = {"mysql": "VARCHAR(9) COLLATE utf8mb4_bin"}
        self.table(source, [("A", 0), ("a", 1), ("b", 2)], kinds.get(source.kind, "VARCHAR(9)"))
        assert [row.amount for row in source.read(keyset(ORDERS, key="id"), limit=1)] == [0, 1, 2]
        assert [row.amount for row in source.read(keyset(ORDERS, key="id"), limit=9)] == [0, 1, 2]

    @pytest.mark.parametrize("kind", ["mysql"])
    def test_a_key_that_is_rounded_when_it_is_read_is_refused(self, source: Source) -> None:
        self.table(source, [(0.1, 0), (0.7, 1)], "FLOAT")
        with pytest.raises(BrokenInput, match=r"changes when it is read: 0.1 comes again"):
            source.read(keyset(ORDERS, key="id"), limit=1)

    def test_a_row_that_goes_away_between_two_pages_is_no_fault(self, source: Source) -> None:
        source.orders(range(1, 10))
        feed = source.open(keyset(ORDERS, key="id"))
        page = feed.read(None, 3)
        source.execute("DELETE FROM orders WHERE id = 4")
        assert [row.id for row in feed.read(page.position_after(2), 3).items] == [5, 6, 7]
        feed.close()

    @pytest.mark.parametrize("kind", ["postgresql"])
    def test_a_key_that_no_checkpoint_can_keep_is_refused(self, source: Source) -> None:
        source.execute("CREATE TABLE orders (id INET PRIMARY KEY, amount INTEGER)")
        source.execute("INSERT INTO orders VALUES ('10.0.0.1', 1)")
        with pytest.raises(BrokenInput, match=r"cannot be stored.*CAST\(id AS text\)"):
            source.read(keyset(ORDERS, key="id"))


REFUSED = {
    "SELECT id FROM t WHERE id > :after ORDER BY id": r"must end with LIMIT :limit.*write ORDER BY id LIMIT :limit",
    "SELECT id FROM t WHERE id > :after ORDER BY id LIMIT 100": "must end with LIMIT :limit",
    "SELECT id FROM t WHERE id > :after ORDER BY id LIMIT :limit FOR UPDATE": "sets the size of a page",
    "SELECT id FROM t WHERE id > :after LIMIT :limit": "has no ORDER BY.*write ORDER BY id before",
    "SELECT id, rank() OVER (ORDER BY id) FROM t WHERE id > :after LIMIT :limit": "has no ORDER BY",
    "SELECT id FROM t WHERE id > :after ORDER BY id DESC LIMIT :limit": "descending.*write ORDER BY id LIMIT :limit",
    "SELECT id FROM t WHERE id < :after ORDER BY id LIMIT :limit": "needs ascending order.*write id > :after",
    "SELECT id FROM t WHERE id >= :after ORDER BY id LIMIT :limit": "read again.*write id > :after",
    "SELECT id FROM t WHERE id > :after ORDER BY id, n LIMIT :limit": "ordered by id, n, and its key is id",
    "SELECT id FROM t WHERE id > :after ORDER BY n LIMIT :limit": "ordered by n, and its key is id; write ORDER BY id",
    "SELECT id FROM t WHERE id > :after ORDER BY id NULLS FIRST LIMIT :limit": "ordered by id NULLS FIRST",
    "SELECT id FROM t WHERE id > :after ORDER BY id LIMIT :limit OFFSET :n": "OFFSET.*continue after the last key",
    "SELECT id FROM t WHERE id > :after ORDER BY id LIMIT 5, :limit": "OFFSET",
    "SELECT id FROM t ORDER BY id LIMIT :limit": "must contain id > :after once",
    "SELECT id FROM t WHERE paid > :after ORDER BY id LIMIT :limit": "must contain id > :after once",
    "SELECT id FROM t WHERE ':after' < id ORDER BY id LIMIT :limit": "must contain",
    "SELECT id FROM t WHERE id > :after AND o.id > :after ORDER BY id LIMIT :limit": "2 times.*around the rest",
    "SELECT id FROM t WHERE id > :after AND n = :limit ORDER BY id LIMIT :limit": "uses :limit, which belongs",
    "SELECT id FROM t WHERE id > :after AND n > :upto ORDER BY id LIMIT :limit": "uses :upto, which belongs",
    "SELECT id FROM t WHERE id > :after AND id % :parts = 1 ORDER BY id LIMIT :limit": "both :part and :parts",
    "DELETE FROM t WHERE id > :after ORDER BY id LIMIT :limit": "must be a SELECT",
    "SELECT 1; SELECT id FROM t WHERE id > :after ORDER BY id LIMIT :limit": "must be a single statement",
    r"SELECT id FROM t WHERE n = 'a\'b' AND id > :after ORDER BY id LIMIT :limit": "write '' for a quote",
    "": "must be a SELECT",
}


class TestRefusals:
    @pytest.mark.parametrize("query", REFUSED)
    def test_a_query_that_would_miss_rows_is_refused_with_what_to_write(self, query: str) -> None:
        with pytest.raises(InvalidBulk, match=REFUSED[query]):
            keyset(query, key="id")

    @pytest.mark.parametrize("key", ["", (), "o.id", "a b", 5, None, ("id", 7), "id; DROP TABLE t"])
    def test_what_names_no_column_is_refused(self, key: Any) -> None:
        with pytest.raises(InvalidBulk, match=r'must be the unique column.*key="id"'):
            keyset(ORDERS, key=key)

    def test_a_column_that_is_named_twice_is_refused(self) -> None:
        with pytest.raises(InvalidBulk, match="twice"):
            keyset(TWO, key=("id", "ID"))

    def test_a_comparison_of_one_column_of_several_is_refused(self) -> None:
        with pytest.raises(InvalidBulk, match=r"\(region, id\) > \(:after_region, :after_id\)"):
            keyset("SELECT * FROM t WHERE id > :after ORDER BY region, id LIMIT :limit", key=("region", "id"))

    def test_a_column_that_is_called_offset_is_none(self) -> None:
        keyset("SELECT id, offset FROM t WHERE offset = 1 AND id > :after ORDER BY id LIMIT :limit", key="id")

    def test_spacing_does_not_change_the_shape_and_words_do(self) -> None:
        one, same = keyset(ORDERS, key="id"), keyset(ORDERS.replace(" ", "\n  "), key="id")
        other = keyset(ORDERS.replace("WHERE", "WHERE amount > 0 AND"), key="id")
        assert one.shape == same.shape != other.shape
