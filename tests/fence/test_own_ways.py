"""What only some kinds of connections have: an ORM's session, Django's blocks, statements that commit by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy.exc
from sqlalchemy import event, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from fencepost.errors import EffectsMissing, LeaseLost, TransactionTooLong
from fencepost.fence import fence_options
from fencepost.fence.sources import quick
from fencepost.fence.target import target_of
from fencepost.testing import until
from tests.fence.grounds import EFFECTS, RUNTIME, Ground, by_django, django_connections, driver_connection, write
from tests.fence.other_grounds import ground, server_ground, shared_ground, shared_server_ground
from tests.fence.test_fence_row import short_lived
from tests.fence.test_transactions import urls

__all__ = ["ground", "server_ground", "shared_ground", "shared_server_ground"]


class Base(DeclarativeBase):
    pass


class Effect(Base):
    __tablename__ = EFFECTS
    n: Mapped[int] = mapped_column(primary_key=True)
    x: Mapped[int] = mapped_column(default=0)


class TestSessions:
    def test_what_is_pending_is_sent_before_the_fence_is_asked(
        self, ground: Ground, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sent: list[str] = []
        send = quick._sent

        def note_sent(connection: Any, *statements: bytes, **more: Any) -> Any:
            sent.extend(each.decode() for each in statements)
            return send(connection, *statements, **more)

        monkeypatch.setattr(quick, "_sent", note_sent)

        def note(conn: Any, cursor: Any, statement: str, *_: Any) -> None:
            sent.append(statement)

        event.listen(ground.engine, "before_cursor_execute", note)
        with Session(ground.engine) as session, ground.run().fence(session):
            session.add(Effect(n=1))
        event.remove(ground.engine, "before_cursor_execute", note)
        [effect] = [number for number, each in enumerate(sent) if each.startswith(f"INSERT INTO {EFFECTS}")]
        assert any(ground.fence_table in each for each in sent[effect + 1 :])
        assert ground.effects() == [1]

    def test_it_is_refused_with_the_rest(self, server_ground: Ground) -> None:
        ground, run = server_ground, server_ground.run()
        with Session(ground.engine) as session:
            with pytest.raises(LeaseLost), run.fence(session):
                session.add(Effect(n=1))
                ground.take_over(run)
            assert session.query(Effect).all() == [], "and the session goes on"

    def test_savepoints_work_inside(self, ground: Ground) -> None:
        with Session(ground.engine) as session, ground.run().fence(session):
            with pytest.raises(ZeroDivisionError), session.begin_nested():
                session.add(Effect(n=1))
                raise ZeroDivisionError
            with session.begin_nested():
                session.add(Effect(n=2))
        assert ground.effects() == [2]

    def test_one_that_is_bound_to_nothing_is_told(self, ground: Ground) -> None:
        with pytest.raises(TypeError, match="has no bind of its own"), ground.run().fence(Session()):
            pytest.fail("it began")

    def test_one_that_is_bound_to_a_connection_serves_too(self, ground: Ground) -> None:
        with ground.engine.connect() as connection, Session(connection) as session:
            with ground.run().fence(session):
                session.add(Effect(n=1))
            assert not connection.closed
        assert ground.effects() == [1]


class TestDjango:
    def test_models_cursors_and_hooks_work_inside(self, ground: Ground) -> None:
        from django.db import transaction

        called: list[str] = []
        with by_django(ground.url) as connection:
            with ground.run().fence(connection), connection.cursor() as cursor:
                cursor.execute(f"INSERT INTO {EFFECTS} VALUES (%s, 0)", [1])
                with pytest.raises(ZeroDivisionError), transaction.atomic(using=connection.alias):
                    cursor.execute(f"INSERT INTO {EFFECTS} VALUES (%s, 0)", [2])
                    raise ZeroDivisionError
                transaction.on_commit(lambda: called.append("committed"), using=connection.alias)
                assert called == []
            assert called == ["committed"]
        assert ground.effects() == [1]

    def test_the_proxy_stands_for_its_connection(self, ground: Ground) -> None:
        from django.utils.connection import ConnectionProxy

        with by_django(ground.url) as connection:
            proxy = ConnectionProxy(django_connections(), connection.alias)
            with ground.run().fence(proxy) as tx:
                write(tx)
        assert ground.effects() == [1]


@pytest.fixture
def postgres_ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(*urls("postgresql", "other", request, tmp_path))
    yield ground
    ground.close()


@pytest.fixture
def deferred(postgres_ground: Ground) -> str:
    """A table whose rows are looked at when they are committed."""
    name = "looked_at_late"
    postgres_ground.change(f"CREATE TABLE {name} (n INTEGER UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    return name


class TestOnPostgres:
    """The check goes along with COMMIT."""

    def test_what_commit_itself_finds_wrong_comes_as_the_drivers_error(
        self, postgres_ground: Ground, deferred: str
    ) -> None:
        ground, twice = postgres_ground, f"INSERT INTO {deferred} VALUES (1), (1)"
        run = ground.run()
        with pytest.raises(sqlalchemy.exc.IntegrityError), run.fence(ground.engine) as tx:
            tx.execute(text(twice))
        connection = driver_connection(ground.url)
        with pytest.raises(psycopg.errors.UniqueViolation), run.fence(connection):
            connection.execute(twice)
        with run.fence(connection):
            connection.execute(f"INSERT INTO {deferred} VALUES (1)")
        connection.close()

    def test_who_listens_to_commits_writes_behind_the_fence_too(self, postgres_ground: Ground) -> None:
        ground = postgres_ground
        run, numbers = ground.run(), iter((7, 8))
        with run.fence(ground.engine) as tx:
            write(tx)

        def log(connection: Any) -> None:
            write(connection, next(numbers))

        event.listen(ground.engine, "commit", log)
        with run.fence(ground.engine) as tx:
            write(tx, 2)
        event.remove(ground.engine, "commit", log)
        ground.take_over(run)
        event.listen(ground.engine, "commit", log)
        with pytest.raises(LeaseLost), run.fence(ground.engine) as tx:
            write(tx, 3)
        event.remove(ground.engine, "commit", log)
        assert ground.effects() == [1, 2, 7]

    def test_a_rollback_inside_the_block_is_refused_by_the_drivers_connection(self, postgres_ground: Ground) -> None:
        connection = driver_connection(postgres_ground.url)
        with pytest.raises(RuntimeError, match="commits by itself"), postgres_ground.run().fence(connection) as tx:
            write(tx)
            connection.rollback()
        connection.rollback()
        connection.commit()
        connection.close()
        assert postgres_ground.effects() == []

    def test_a_nested_transaction_is_a_savepoint(self, postgres_ground: Ground) -> None:
        connection = driver_connection(postgres_ground.url)
        with postgres_ground.run().fence(connection) as tx:
            write(tx)
            with pytest.raises(ZeroDivisionError), connection.transaction():
                write(tx, 2)
                raise ZeroDivisionError
            with connection.transaction():
                write(tx, 3)
        connection.close()
        assert postgres_ground.effects() == [1, 3]

    def test_texts_are_quoted_as_the_connection_reads_them(self, postgres_ground: Ground) -> None:
        ground = postgres_ground
        for number, key in enumerate(("it's", "a\\'b", 'a"b;--', "ключ")):
            run = ground.run_of(ground.run()._claim._replace(exclusive_key=key))
            for each in (2 * number, 2 * number + 1):
                with run.fence(ground.engine) as tx:
                    tx.execute(text("SET standard_conforming_strings = off"))
                    write(tx, each)
            assert key in [row[0].split(":", 2)[2] for row in ground.fences()], "behind the name of its ledger"
        assert len(ground.effects()) == 8

    def test_a_check_that_is_not_there_is_told_with_the_command(self, postgres_ground: Ground) -> None:
        ground, run = postgres_ground, postgres_ground.run()
        ground.change(f"DROP PROCEDURE {ground.url.prefix}check_fence")
        with pytest.raises(EffectsMissing, match=r"check_fence in the database where .*fencepost effects install"):  # noqa: SIM117
            with run.fence(ground.engine) as tx:
                write(tx)
        assert ground.effects() == []

    @pytest.mark.parametrize("is_engine", [True, False])
    def test_whoever_was_silent_for_too_long_is_told_why_the_connection_is_gone(
        self, postgres_ground: Ground, is_engine: bool
    ) -> None:
        ground = postgres_ground
        connection = driver_connection(ground.url)
        source = ground.engine if is_engine else connection
        with (
            pytest.raises(Exception, match="idle-in-transaction") as caught,
            short_lived(ground.run()).fence(source) as tx,
        ):
            write(tx)
            [(pid,)] = target_of(tx).execute("SELECT pg_backend_pid()").rows
            alive = f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"
            until(lambda: not ground.rows(alive), 30, "the server has ended it")
            write(tx, 2)
        assert "the ttl" in caught.value.__notes__[0]
        connection.close()
        assert ground.effects() == []

    def test_a_connection_in_a_pipeline_is_refused(self, postgres_ground: Ground) -> None:
        connection = driver_connection(postgres_ground.url)
        run = postgres_ground.run()
        with pytest.raises(RuntimeError, match="in a pipeline"), connection.pipeline(), run.fence(connection):
            pytest.fail("it began")
        with run.fence(connection) as tx:
            write(tx)
        connection.close()
        assert postgres_ground.effects() == [1]


class TestOnMysql:
    def test_a_statement_that_commits_by_itself_is_told(self, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        ground = Ground(*urls("mysql", "other", request, tmp_path))
        run = ground.run()
        with pytest.raises(RuntimeError, match="CREATE TABLE commit implicitly"), run.fence(ground.engine) as tx:
            write(tx)
            tx.execute(text("CREATE TABLE another (n INTEGER)"))
            write(tx, 2)
        assert ground.effects() == [1]
        ground.close()


class TestOnSqlite:
    def test_a_connection_bound_to_its_thread_is_rolled_back_at_the_end(
        self, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ground = Ground(*urls("sqlite", "other", request, tmp_path))
        run = ground.run()
        monkeypatch.setattr(fence_options.FenceOptions.__init__, "__defaults__", (None, 0.1))
        connection = driver_connection(ground.url)
        with pytest.raises(TransactionTooLong), run.fence(connection) as tx:
            write(tx)
            RUNTIME.sleep(0.3)  # what the limit is about
        assert ground.effects() == []
        monkeypatch.undo()
        with run.fence(connection) as tx:
            write(tx, 2)
        assert ground.effects() == [2]
        connection.close()
        ground.close()
