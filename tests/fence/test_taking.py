"""Taking rows: readers of one table get different ones, nothing is lost, and what cannot be taken is refused."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from fencepost.errors import ConfigurationError, Stopped, TransactionConflict
from fencepost.fence.sql_words import ends_in_comment, outer_words
from fencepost.fence.taking import refuse_unfit, take
from fencepost.ledger.urls import LedgerUrl
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres
from tests.app.surroundings import StopReason, Told, run_of
from tests.fence.grounds import atomic, by_django

OPEN = "SELECT id FROM work_item WHERE done = 0 ORDER BY id"
ITEMS = sa.Table(
    "work_item",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("done", sa.Integer),
)
SELECT = sa.select(ITEMS.c.id).where(ITEMS.c.done == 0).order_by(ITEMS.c.id)

Connected = Callable[[], Any]


class Place:
    """A database with a table of work, and ways to connect to it."""

    def __init__(self, url: LedgerUrl, engine: sa.Engine, driver: Connected) -> None:
        self.url = url
        self.kind = url.kind
        self.engine = engine
        self.driver = driver
        ITEMS.metadata.drop_all(engine)
        ITEMS.metadata.create_all(engine)

    def fill(self, count: int) -> None:
        with self.engine.begin() as connection:
            connection.execute(sa.insert(ITEMS), [{"id": number, "done": 0} for number in range(count)])

    @contextmanager
    def transaction(self, manner: str) -> Iterator[Any]:
        """Yield a connection of some manner with a transaction, which is committed."""
        if manner == "driver":
            with closing(self.driver()) as connection:
                yield connection
                connection.commit()
        elif manner == "django":
            with by_django(self.url) as connection, atomic(connection):
                yield connection
        elif manner == "session":
            with Session(self.engine) as session:
                yield session
                session.commit()
        else:
            with self.engine.begin() as connection:
                yield connection

    def mark_done(self, tx: Any, ids: list[int]) -> None:
        for number in ids:
            sql = f"UPDATE work_item SET done = done + 1 WHERE id = {number}"
            if hasattr(tx, "cursor"):
                with closing(tx.cursor()) as cursor:
                    cursor.execute(sql)
            else:
                tx.execute(sa.text(sql))

    def times_done(self) -> Counter[int]:
        with self.engine.connect() as connection:
            return Counter(row[0] for row in connection.execute(sa.select(ITEMS.c.done)))


@pytest.fixture(params=["postgresql", "mysql", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        url, driver = f"sqlite:///{tmp_path}/app.db", lambda: sqlite3.connect(tmp_path / "app.db")
    elif request.param == "mysql":
        maria: MariaDB = request.getfixturevalue("mariadb")
        url, driver = maria.url, maria.client
    else:
        server: Postgres = request.getfixturevalue("postgres")
        url, driver = server.url, lambda: psycopg.connect(server.url)
    parsed = LedgerUrl.parse(url)
    engine = sa.create_engine(parsed.sqlalchemy(), poolclass=sa.NullPool, isolation_level=_committed(request.param))
    yield Place(parsed, engine, driver)
    engine.dispose()


def _committed(kind: str) -> Any:
    return "SERIALIZABLE" if kind == "sqlite" else "READ COMMITTED"


@pytest.fixture
def shared(place: Place) -> Place:
    if place.kind == "sqlite":
        pytest.skip("one writer: nobody else can hold rows")
    return place


MANNERS = ["driver", "sqlalchemy", "session", "django"]


class TestSharing:
    @pytest.mark.parametrize("manner", MANNERS)
    def test_readers_at_the_same_time_get_different_rows(self, shared: Place, manner: str) -> None:
        shared.fill(10)
        with shared.transaction(manner) as one, shared.transaction(manner) as two, shared.transaction(manner) as three:
            assert take(one, OPEN, limit=4) == [(0,), (1,), (2,), (3,)]
            assert take(two, OPEN, limit=4) == [(4,), (5,), (6,), (7,)]
            assert take(three, OPEN, limit=4) == [(8,), (9,)]
            assert take(two, OPEN, limit=1) == [(4,)]  # what is one's own is not passed by

    @pytest.mark.parametrize("manner", ["sqlalchemy", "session"])
    def test_a_select_of_sqlalchemy_is_taken_as_well(self, shared: Place, manner: str) -> None:
        shared.fill(4)
        with shared.transaction(manner) as one, shared.transaction(manner) as two:
            assert [row.id for row in take(one, SELECT, limit=3)] == [0, 1, 2]
            assert [row.id for row in take(two, SELECT, limit=3)] == [3]

    def test_what_was_rolled_back_is_taken_by_the_next(self, shared: Place) -> None:
        shared.fill(2)
        with closing(shared.driver()) as one:
            assert len(take(one, OPEN, limit=2)) == 2
            with shared.transaction("driver") as two:
                assert take(two, OPEN, limit=2) == []
            one.rollback()
        with shared.transaction("driver") as two:
            assert len(take(two, OPEN, limit=2)) == 2

    @pytest.mark.parametrize("manner", MANNERS)
    def test_several_readers_handle_each_row_once_and_lose_none(self, place: Place, manner: str) -> None:
        place.fill(200)
        troubles: list[BaseException] = []

        def read() -> None:
            try:
                while self.handled_some(place, manner):
                    pass
            except BaseException as error:  # noqa: BLE001 - shown below
                troubles.append(error)

        threads = [threading.Thread(target=read) for _ in range(1 if place.kind == "sqlite" else 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert troubles == []
        assert place.times_done() == {1: 200}

    def handled_some(self, place: Place, manner: str) -> bool:
        with place.transaction(manner) as tx:
            ids = [row[0] for row in take(tx, OPEN, limit=7)]
            place.mark_done(tx, ids)
        return bool(ids)

    def test_without_it_two_readers_get_the_same(self, shared: Place) -> None:
        """So the tests above would notice if nothing were added to the query."""
        shared.fill(1)
        with shared.transaction("sqlalchemy") as one, shared.transaction("sqlalchemy") as two:
            assert [tx.execute(sa.text(f"{OPEN} LIMIT 1")).scalar() for tx in (one, two)] == [0, 0]


class TestQuery:
    @pytest.mark.parametrize("manner", MANNERS)
    def test_parameters_are_passed_on(self, place: Place, manner: str) -> None:
        place.fill(5)
        with place.transaction(manner) as tx:
            query = "SELECT id FROM work_item WHERE id > %s AND id <> %s ORDER BY id"
            assert take(tx, query, limit=9, params=(1, 3)) == [(2,), (4,)]

    @pytest.mark.parametrize("query", [f"{OPEN} ;", f"{OPEN}\n  ", f"{OPEN} -- the oldest first"])
    def test_a_semicolon_white_space_and_a_comment_at_its_end_do_not_matter(self, place: Place, query: str) -> None:
        place.fill(1)
        with place.transaction("driver") as tx:
            assert take(tx, query, limit=1) == [(0,)]

    @pytest.mark.parametrize(
        ("query", "says"),
        [
            (f"{OPEN} LIMIT 5", "leave LIMIT out"),
            (f"{OPEN} FETCH FIRST 5 ROWS ONLY", "leave FETCH out"),
            (f"{OPEN} OFFSET 5", "leave OFFSET out"),
            (f"{OPEN} FOR UPDATE", "leave FOR UPDATE out"),
            (f"{OPEN} for no key update", "leave FOR UPDATE out"),
            (f"{OPEN} LOCK IN SHARE MODE", "leave the lock out"),
            ("SELECT id FROM work_item", "add ORDER BY"),
            ("SELECT id FROM (SELECT id FROM work_item ORDER BY id) a", "add ORDER BY"),
            ("SELECT DISTINCT id FROM work_item ORDER BY id", "with DISTINCT"),
            ("SELECT max(id) FROM work_item GROUP BY done ORDER BY done", "with GROUP"),
            ("SELECT id FROM a UNION SELECT id FROM b ORDER BY id", "with UNION"),
            (f"{OPEN}; DELETE FROM work_item", "needs a single SELECT"),
            ("DELETE FROM work_item ORDER BY id", "needs a single SELECT"),
            ("", "needs a single SELECT"),
        ],
    )
    def test_what_cannot_be_taken_is_refused_in_a_sentence(self, query: str, says: str) -> None:
        with closing(sqlite3.connect(":memory:")) as tx, pytest.raises(ValueError, match=says):
            take(tx, query, limit=1)

    @pytest.mark.parametrize(
        "change", [lambda q: q.limit(3), lambda q: q.with_for_update(), lambda q: q.order_by(None)]
    )
    def test_so_is_a_select_of_sqlalchemy(self, place: Place, change: Callable[[Any], Any]) -> None:
        with place.transaction("sqlalchemy") as tx:
            if place.kind == "sqlite" and change(SELECT)._for_update_arg is not None:
                return  # SQLAlchemy leaves out there what SQLite does not know
            with pytest.raises(ValueError, match=r"run\.take\(\)"):
                take(tx, change(SELECT), limit=1)

    @pytest.mark.parametrize("limit", [0, -1, True, 1.5, "3"])
    def test_a_limit_that_is_none_is_refused(self, limit: Any) -> None:
        with closing(sqlite3.connect(":memory:")) as tx, pytest.raises(ValueError, match="must be a whole number"):
            take(tx, OPEN, limit=limit)

    def test_marks_and_parameters_must_agree_and_other_percent_signs_be_parameters(self) -> None:
        with closing(sqlite3.connect(":memory:")) as tx:
            for query, params in ((OPEN, (1,)), (OPEN.replace("0", "%s"), ()), (OPEN.replace("= 0", "LIKE '%'"), ())):
                with pytest.raises(ValueError, match="placeholders"):
                    take(tx, query, limit=1, params=params)

    def test_a_kind_of_query_or_connection_that_is_not_known_is_refused(self) -> None:
        with closing(sqlite3.connect(":memory:")) as tx:
            with pytest.raises(TypeError, match="SQL as a string"):
                take(tx, sa.text(OPEN), limit=1)
            with pytest.raises(TypeError, match="needs a SQLAlchemy connection"):
                take(tx, SELECT, limit=1)
        with pytest.raises(TypeError, match="supported are"):
            take(object(), OPEN, limit=1)

    def test_words_in_texts_names_comments_and_parentheses_do_not_count(self) -> None:
        refuse_unfit(
            "SELECT 'FOR UPDATE', \"limit\", `group` /* OFFSET */ FROM a -- UNION\nORDER BY (SELECT 1 LIMIT 1)"
        )
        assert outer_words("SELECT $x$ LIMIT $x$, f(a, (b)) FROM c;") == ["SELECT", "F", "FROM", "C", ";"]
        assert ends_in_comment("a -- b")
        assert not ends_in_comment("a -- b\nc '--'")


class TestIsolation:
    def test_rows_that_others_changed_since_it_began_are_a_conflict_that_may_be_tried_again(
        self, shared: Place
    ) -> None:
        shared.fill(3)
        with shared.engine.connect().execution_options(isolation_level="REPEATABLE READ") as late:
            late.execute(SELECT).all()  # what it sees is what is there now
            with shared.transaction("sqlalchemy") as tx:
                shared.mark_done(tx, [row[0] for row in take(tx, OPEN, limit=2)])
            if shared.kind == "mysql":  # a locking read sees what is newest
                assert take(late, OPEN, limit=2) == [(2,)]
            else:
                with pytest.raises(TransactionConflict, match="isolation='read committed'"):
                    take(late, OPEN, limit=2)

    def test_a_connection_without_a_transaction_is_refused_for_it_would_hold_nothing(self, shared: Place) -> None:
        shared.fill(1)
        with closing(shared.driver()) as connection:
            connection.autocommit(True) if shared.kind == "mysql" else setattr(connection, "autocommit", True)
            with pytest.raises(ConfigurationError, match="no transaction open"):
                take(connection, OPEN, limit=1)
        with (
            shared.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
            pytest.raises(ConfigurationError, match="no transaction open"),
        ):
            take(connection, SELECT, limit=1)
        with by_django(shared.url) as connection, pytest.raises(ConfigurationError, match="no transaction open"):
            take(connection, OPEN, limit=1)


def test_a_run_takes_as_long_as_it_may_run() -> None:
    with closing(sqlite3.connect(":memory:")) as tx:
        tx.execute("CREATE TABLE work_item (id INTEGER, done INTEGER)")
        tx.execute("INSERT INTO work_item VALUES (7, 0)")
        assert run_of().take(tx, OPEN.replace("0", "%s"), limit=1, params=[0]) == [(7,)]
        with pytest.raises(Stopped):
            run_of(standing=Told(StopReason.CANCELLED)).take(tx, OPEN, limit=1)
