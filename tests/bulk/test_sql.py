"""What is seen in the SQL that users write, and how connections to read from behave."""

from __future__ import annotations

import pytest
import sqlalchemy
from sqlalchemy import Engine

from fencepost.bulk.reading import Places, Reading, kind_of
from fencepost.bulk.sql import bare, changed, names_in, outermost, single_select, spelled
from fencepost.errors import BrokenInput, InvalidBulk

TRICKY = """
SELECT ':no' || 'it''s :no', "a:no", `b:no`, $$ :no $$, $x$ :no $$ $x$, E'\\' :no', 1::int -- :no
/* :no */ FROM t WHERE a[1\\:n] = :yes AND b = :also::text AND c = :yes
"""


class TestWords:
    def test_names_are_found_outside_of_texts_and_comments_alone(self) -> None:
        assert names_in(TRICKY) == ("yes", "also")

    def test_what_is_blanked_out_keeps_every_place(self) -> None:
        for blanked in (bare(TRICKY), outermost(TRICKY)):
            assert len(blanked) == len(TRICKY)
            assert blanked.index("FROM t") == TRICKY.index("FROM t")
            assert ":no" not in blanked

    def test_quoted_names_of_one_word_can_be_seen_and_texts_cannot(self) -> None:
        assert bare("""SELECT "id", `id`, 'id', "a b" """) == """SELECT "id", `id`,     ,       """

    def test_what_stands_in_parentheses_is_not_outermost(self) -> None:
        assert outermost("a (b (c) d) e (f)").split() == ["a", "(", ")", "e", "(", ")"]

    def test_only_what_is_sql_is_changed(self) -> None:
        assert changed("a 'a' -- a\na", str.upper) == "A 'a' -- a\nA"

    def test_one_select_is_taken_without_what_ends_it(self) -> None:
        assert single_select(" SELECT 1 ; -- done") == "SELECT 1"
        assert single_select("SELECT 1 WHERE a = 'x;' ;") == "SELECT 1 WHERE a = 'x;'"
        assert single_select("/* first */ (SELECT 1)").endswith("(SELECT 1)")
        for bad in ("", "INSERT INTO t VALUES (1)", "SELECT 1; SELECT 2", "-- SELECT 1", None, 5):
            with pytest.raises(InvalidBulk):
                single_select(bad)

    def test_each_driver_gets_its_own_spelling(self) -> None:
        sql = r"SELECT '5% :no', a % 2 FROM t WHERE x[1\:2] = :x AND y = :y::int"
        assert spelled(sql, "sqlite").sql == sql.replace("\\", "")
        for kind in ("postgresql", "mysql"):
            assert spelled(sql, kind).sql == "SELECT '5%% :no', a %% 2 FROM t WHERE x[1:2] = %(x)s AND y = %(y)s::int"
        assert spelled(sql, "mysql").values({"x": 1, "y": 2, "z": 3}) == {"x": 1, "y": 2}


class TestReading:
    def test_rows_are_plain_tuples_with_the_names_of_their_columns(self, engine: Engine) -> None:
        reading = Reading(engine)
        assert reading.fetch("SELECT :a + 1 AS n, '100%' AS t", {"a": 1}) == (("n", "t"), [(2, "100%")])
        assert reading.fetch("SELECT '%' AS t", {}).rows == [("%",)]
        reading.close()

    def test_no_transaction_is_left_open_and_the_connection_is_given_back_as_it_was(self, engine: Engine) -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE t (n INTEGER)")
        reading = Reading(engine)
        assert reading.fetch("SELECT count(*) FROM t", {}).rows == [(0,)]
        with engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO t VALUES (1)")
        assert reading.fetch("SELECT count(*) FROM t", {}).rows == [(1,)]
        reading.close()
        with engine.connect() as connection:  # a transaction again, not what was set for reading
            connection.exec_driver_sql("INSERT INTO t VALUES (2)")
            connection.rollback()
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM t").scalar() == 1

    def test_a_name_without_a_value_is_told_and_changes_nothing(self, engine: Engine) -> None:
        reading = Reading(engine)
        with pytest.raises(BrokenInput, match=r"uses :b, which is not a parameter of this run; it has :a"):
            reading.fetch("SELECT :b", {"a": 1})
        assert reading.fetch("SELECT 1", {}).rows == [(1,)]
        reading.close()

    @pytest.mark.parametrize("kind", ["postgresql", "mysql"])
    def test_a_connection_that_was_lost_is_let_go(self, engine: Engine, kind: str) -> None:
        reading = Reading(engine)
        own = "pg_backend_pid()" if kind == "postgresql" else "connection_id()"
        ((number,),) = reading.fetch(f"SELECT {own}", {}).rows
        with engine.connect() as connection:
            kill = f"SELECT pg_terminate_backend({number})" if kind == "postgresql" else f"KILL {number}"
            connection.exec_driver_sql(kill)
        with pytest.raises(Exception, match=r"terminat|Lost connection|gone away|closed|\(0, ''\)|interrupted"):
            reading.fetch("SELECT 1", {})
        reading.close()
        again = Reading(engine)
        assert again.fetch("SELECT 1", {}).rows == [(1,)]
        again.close()

    def test_a_query_that_fails_leaves_no_connection_behind(self, engine: Engine) -> None:
        reading = Reading(engine)
        with pytest.raises(Exception, match="nowhere"):
            reading.fetch("SELECT 1 FROM nowhere", {})
        reading.close()
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]


class TestSources:
    def test_what_cannot_be_read_from_is_refused_without_its_password(self) -> None:
        for bad in (None, 5, object()):
            with pytest.raises(InvalidBulk, match="pass a SQLAlchemy engine, or a URL"):
                kind_of(bad)

    def test_engines_that_are_async_are_refused_with_those_to_make(self) -> None:
        engine = sqlalchemy.create_engine("postgresql+psycopg_async://u:secret@h/d")
        with pytest.raises(InvalidBulk, match=r"create_engine\('postgresql\+psycopg://") as refused:
            kind_of(engine)
        assert "secret" not in str(refused.value)

    def test_an_engine_of_a_url_is_made_once(self) -> None:
        places = Places()
        one = places.engine("sqlite:///somewhere.db", lambda: None)
        assert places.engine("sqlite:///somewhere.db", lambda: None) is one
        assert places.engine(None, lambda: "the ledger's") == "the ledger's"
        assert kind_of(places.engine(lambda: one, lambda: None)) == "sqlite"
