"""Migrations: safe to run twice and at once, the same as the tables in the code, and refused with a sentence."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from fencepost import locks
from fencepost.errors import LedgerRefused, LedgerUnavailable, SchemaMismatch, StoreRefused
from fencepost.ledger import migrations
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.migrations import running
from fencepost.ledger.tables import Tables
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres
from testbed.wait import until

Opened = Callable[[str], Ledger]


def engine_of(ledger: Ledger) -> sa.Engine:
    return sa.create_engine(ledger.url.sqlalchemy(), poolclass=sa.NullPool)


def shape(engine: sa.Engine, tables: Tables) -> dict[str, Any]:
    """Everything the database knows of the tables, without their prefix."""
    inspector = sa.inspect(engine)

    def plain(value: Any) -> str:
        return str(value).replace(tables.prefix, "").replace(f"'{tables.schema}'", "None")

    def of(table: str) -> dict[str, Any]:
        kinds = [
            {**column, "type": column["type"].compile(engine.dialect)}
            for column in inspector.get_columns(table, schema=tables.schema)
        ]
        indexes = sorted(inspector.get_indexes(table, schema=tables.schema), key=lambda index: str(index["name"]))
        return {
            "columns": plain(kinds),
            "indexes": [plain({**index, "dialect_options": _options(index)}) for index in indexes],
            "key": plain(inspector.get_pk_constraint(table, schema=tables.schema)["constrained_columns"]),
            "options": plain(inspector.get_table_options(table, schema=tables.schema)),
        }

    return {plain(table.name): of(table.name) for table in tables.all}


def _options(index: Any) -> dict[str, str]:
    return {name: str(value) for name, value in index.get("dialect_options", {}).items()}


def version(ledger: Ledger, revision: str) -> None:
    table = ledger.tables.name("version")
    ledger.write(lambda cursor: cursor.execute(f"UPDATE {table} SET version_num = '{revision}'"))


def test_the_migrated_tables_are_those_in_the_code(bare_url: str, opened: Opened) -> None:
    ledger = opened(bare_url)
    assert migrations.migrate(ledger) == migrations.STEPS
    engine = engine_of(ledger)
    living = Tables(f"n{ledger.tables.prefix}")
    living.metadata.create_all(engine)
    assert shape(engine, ledger.tables) == shape(engine, living)
    assert "schedule_due" in str(shape(engine, living))


def test_migrating_twice_does_nothing_the_second_time(bare_url: str, opened: Opened) -> None:
    ledger = opened(bare_url)
    migrations.migrate(ledger)
    assert migrations.migrate(ledger) == ()
    assert running.migrate(ledger) == ()
    migrations.check_schema(ledger)


def test_many_migrators_at_once_make_the_tables_once(bare_url: str, opened: Opened) -> None:
    outcomes: list[Any] = []
    start = threading.Barrier(4)

    def migrate() -> None:
        ledger = opened(bare_url)
        start.wait()
        try:
            outcomes.append(running.migrate(ledger))
        except Exception as error:  # noqa: BLE001 - shown by the assertion
            outcomes.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes, key=str, reverse=True) == [(), (), (), migrations.STEPS]
    migrations.check_schema(opened(bare_url))


def test_a_database_without_tables_is_refused_with_what_to_run(bare_url: str, opened: Opened) -> None:
    with pytest.raises(SchemaMismatch, match=r"no tables of a ledger yet.*run: fencepost migrate --ledger '"):
        migrations.check_schema(opened(bare_url))


def test_a_newer_schema_is_refused_and_left_alone(bare_url: str, opened: Opened) -> None:
    ledger = opened(bare_url)
    migrations.migrate(ledger)
    version(ledger, "9999")
    newest = migrations.NEWEST
    says = rf"migrated by a newer Fencepost \(revision 9999\); this node knows up to {newest}: deploy the newer version"
    with pytest.raises(SchemaMismatch, match=says):
        migrations.check_schema(ledger)
    with pytest.raises(SchemaMismatch, match=says):
        migrations.migrate(ledger)
    assert migrations.current_revision(ledger) == "9999"


def test_an_older_schema_than_needed_is_refused(bare_url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = opened(bare_url)
    migrations.migrate(ledger)
    monkeypatch.setattr(migrations, "REVISIONS", (*migrations.REVISIONS, "9999"))
    monkeypatch.setattr(migrations, "OLDEST", "9999")
    with pytest.raises(
        SchemaMismatch, match=rf"are of revision {migrations.NEWEST}, and this node needs 9999 or later; run: fencepost"
    ):
        migrations.check_schema(ledger)


def test_the_revisions_named_in_the_code_are_those_in_the_folder() -> None:
    assert running.known_revisions() == migrations.REVISIONS


def test_sqlite_is_migrated_by_whoever_starts_first(tmp_path: Path, opened: Opened) -> None:
    ledger = opened(f"sqlite:///{tmp_path}/app.db")
    migrations.ready_schema(ledger)
    migrations.ready_schema(ledger)
    assert migrations.current_revision(ledger) == migrations.NEWEST


def test_a_server_is_not_migrated_by_a_node_that_starts(postgres: Postgres, opened: Opened) -> None:
    ledger = opened(f"{postgres.url}?prefix=unasked_")
    with pytest.raises(SchemaMismatch, match="under prefix=unasked_"):
        migrations.ready_schema(ledger)
    assert migrations.current_revision(ledger) is None


def test_the_printed_script_makes_the_same_tables(bare_url: str, kind: str, opened: Opened) -> None:
    scripted, migrated = opened(bare_url), opened(bare_url.replace("prefix=t", "prefix=m"))
    if kind == "sqlite":
        migrated = opened(bare_url.replace("app.db", "other.db"))
    script = migrations.migration_sql(bare_url)
    execute(scripted, script)
    migrations.migrate(migrated)
    migrations.check_schema(scripted)
    assert shape(engine_of(scripted), scripted.tables) == shape(engine_of(migrated), migrated.tables)


def execute(ledger: Ledger, script: str) -> None:
    if ledger.dialect.name == "sqlite":
        with closing(sqlite3.connect(ledger.url.path)) as connection:
            connection.executescript(script)
        return
    with closing(ledger.dialect.dial()) as connection:
        cursor = connection.cursor()
        cursor.execute(script)
        while ledger.dialect.name == "mysql" and cursor.nextset():
            pass


@pytest.mark.parametrize("url", ["postgresql://nowhere/x?schema=jobs", "mysql://nowhere/x", "sqlite:///nowhere/x.db"])
def test_the_script_is_written_without_connecting(url: str) -> None:
    assert "CREATE TABLE" in migrations.migration_sql(url)


def test_a_schema_of_its_own_is_made_on_postgresql(postgres: Postgres, opened: Opened) -> None:
    ledger = opened(f"{postgres.url}?schema=own&prefix=x_")
    migrations.migrate(ledger)
    migrations.check_schema(ledger)
    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("SELECT count(*) FROM own.x_run").fetchone() == (0,)


def test_a_step_that_was_cut_in_half_is_taken_up_again_on_mariadb(mariadb: MariaDB, opened: Opened) -> None:
    ledger = opened(f"{mariadb.url}?prefix=half_")
    migrations.migrate(ledger)
    for statement in ("DROP TABLE half_journal", "DROP TABLE half_version", "DROP INDEX half_run_tick ON half_run"):
        ledger.write(lambda cursor, statement=statement: cursor.execute(statement))
    migrations.migrate(ledger)
    whole = opened(f"{mariadb.url}?prefix=whole_")
    migrations.migrate(whole)
    assert shape(engine_of(ledger), ledger.tables) == shape(engine_of(whole), whole.tables)


def test_an_index_on_a_table_in_use_is_built_beside_writers_and_taken_up_again(
    postgres: Postgres, opened: Opened
) -> None:
    ledger = opened(f"{postgres.url}?prefix=beside_")
    migrations.migrate(ledger)
    version(ledger, "0003")
    errors: list[LedgerUnavailable] = []

    def migrate() -> None:
        try:
            migrations.migrate(ledger)
        except LedgerUnavailable as error:
            errors.append(error)

    with psycopg.connect(postgres.url) as writer, psycopg.connect(postgres.url, autocommit=True) as other:
        other.execute("DROP INDEX beside_run_root")
        writer.execute("DELETE FROM beside_run WHERE id = -1")  # and has not committed
        migrating = threading.Thread(target=migrate)
        migrating.start()
        found = until(lambda: other.execute(_BUILDING).fetchall(), 30, what="the index waits for the writer")
        other.execute("SET lock_timeout = '1s'")
        other.execute("DELETE FROM beside_run WHERE id = -2")  # does not wait behind it
        other.execute("SELECT pg_terminate_backend(%s)", found[0])
        migrating.join(30)
        assert len(errors) == 1
        writer.commit()
        migrations.migrate(ledger)
        valid = other.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = 'beside_run_root'::regclass")
        assert valid.fetchone() == (True,)
    assert migrations.current_revision(ledger) == migrations.NEWEST


def test_second_migration_leaves_an_index_alone_that_the_first_is_building(postgres: Postgres, opened: Opened) -> None:
    ledger, second = (opened(f"{postgres.url}?prefix=twice_beside_") for _ in range(2))
    migrations.migrate(ledger)
    version(ledger, "0003")
    with psycopg.connect(postgres.url) as writer, psycopg.connect(postgres.url, autocommit=True) as other:
        other.execute("DROP INDEX twice_beside_run_root")
        writer.execute("DELETE FROM twice_beside_run WHERE id = -1")  # and has not committed
        migrating = threading.Thread(target=migrations.migrate, args=(ledger,))
        migrating.start()
        until(lambda: other.execute(_BUILDING).fetchall(), 30, what="the index waits for the writer")
        with pytest.raises(running.Overtaken):
            running.attempt(running.engine_of(second), second, running._chains(second.tables), None)
        writer.commit()
        migrating.join(30)
        assert running.attempt(running.engine_of(second), second, running._chains(second.tables), None) == ()
    assert migrations.current_revision(second) == migrations.NEWEST


_BUILDING = """
SELECT pid FROM pg_stat_activity
WHERE query LIKE 'CREATE INDEX CONCURRENTLY%beside_run_root%' AND wait_event_type = 'Lock'
"""


def test_who_may_not_create_is_told_in_a_sentence_on_postgresql(postgres: Postgres, opened: Opened) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE reader LOGIN PASSWORD 'sesame'")
    ledger = opened(postgres.url.replace("postgres@", "reader:sesame@") + "?prefix=denied_")
    with pytest.raises(
        LedgerRefused, match=r"could not be created.*permission denied.*fencepost migrate --sql"
    ) as error:
        migrations.migrate(ledger)
    assert "sesame" not in f"{error.value} {ledger!r}"


def test_who_may_not_create_is_told_in_a_sentence_on_mariadb(mariadb: MariaDB, opened: Opened) -> None:
    with mariadb.client() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE USER reader IDENTIFIED BY 'sesame'")
        cursor.execute("GRANT SELECT ON fencepost.* TO reader")
    ledger = opened(mariadb.url.replace("root@", "reader:sesame@") + "?prefix=denied_")
    with pytest.raises(LedgerRefused, match=r"could not be created.*denied.*fencepost migrate --sql") as error:
        migrations.migrate(ledger)
    assert "sesame" not in f"{error.value} {ledger!r}"


def test_a_database_in_which_texts_are_bytes_is_refused_with_a_sentence(postgres: Postgres, opened: Opened) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(
            "CREATE DATABASE without_encoding ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )
    url = f"{postgres.url.rpartition('/')[0]}/without_encoding"
    with pytest.raises(LedgerRefused, match=r"SQL_ASCII.*ALTER DATABASE … SET client_encoding = 'UTF8'"):
        migrations.migrate(opened(url))
    with pytest.raises(StoreRefused, match=r"SQL_ASCII.*ENCODING 'UTF8'"), locks.connect(url):
        pass
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("ALTER DATABASE without_encoding SET client_encoding = 'UTF8'")
    assert migrations.migrate(opened(url)) == migrations.STEPS
