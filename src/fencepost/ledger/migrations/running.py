"""Alembic, set up in code: there is no alembic.ini, and nothing is read from the application's own."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from fencepost.errors import FencepostError, LedgerRefused, LedgerUnavailable
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Dialect, Trouble
from fencepost.ledger.dialects.dialect import first_line
from fencepost.ledger.migrations.step import Step
from fencepost.ledger.tables import Tables
from fencepost.ledger.urls import LedgerUrl

PATIENCE_S = 3600.0  # a step on a large table may take long, and so may waiting for somebody else's
_NAMES = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "sqlite": "sqlite"}


def migrate(database: Database) -> tuple[str, ...]:
    """Run what is missing, while nobody else does. All or nothing, except on MySQL, where each statement commits."""
    dialect = database.dialect
    engine = sa.create_engine(
        f"{_NAMES[dialect.name]}://", creator=lambda: dialect.dial(PATIENCE_S), poolclass=sa.NullPool
    )
    done: list[str] = []
    with _translated(dialect), engine.connect() as connection, _locked(connection, database):
        context = MigrationContext.configure(connection, opts=_options(database.tables, done))
        _run(context, database.tables)
        connection.commit()
    return tuple(done)


def migration_sql(url: str) -> str:
    """Write down all steps, from nothing."""
    ledger_url = LedgerUrl.parse(url)
    tables = Tables(ledger_url.prefix, ledger_url.schema)
    script = io.StringIO()
    if ledger_url.schema:
        script.write(f"CREATE SCHEMA IF NOT EXISTS {ledger_url.schema};\n\n")
    options = _options(tables, []) | {"as_sql": True, "output_buffer": script}
    context = MigrationContext.configure(dialect_name=ledger_url.kind, opts=options)
    with context.begin_transaction():
        _run(context, tables)
    return script.getvalue()


def known_revisions() -> tuple[str, ...]:
    """Return the steps in `versions/`, oldest first."""
    return tuple(script.revision for script in reversed(list(_scripts().walk_revisions())))


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(Path(__file__).parent)


def _options(tables: Tables, done: list[str]) -> dict[str, Any]:
    scripts = _scripts()

    def missing(revision: Any, _: MigrationContext) -> Any:
        return scripts._upgrade_revs("head", revision)  # as Alembic's own command does

    def note(*, step: Any, **_: Any) -> None:
        done.append(step.up_revision_id)

    return {
        "fn": missing,
        "script": scripts,
        "version_table": tables.version,
        "version_table_schema": tables.schema,
        "on_version_apply": (note,),
    }


def _run(context: MigrationContext, tables: Tables) -> None:
    # Not through the module `alembic.op`, which is one for all threads.
    context.run_migrations(step=Step(Operations(context), prefix=tables.prefix, schema=tables.schema))


@contextmanager
def _locked(connection: sa.Connection, database: Database) -> Iterator[None]:
    """Keep out everybody else who migrates the same tables, for as long as the context lasts."""
    name = hashlib.sha256(f"{database.url.database}.{database.tables.name('version')}".encode()).hexdigest()[:40]
    match database.dialect.name:
        case "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        case "postgresql":
            connection.exec_driver_sql("BEGIN")
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (int(name[:15], 16),))
            _ensure_schema(connection, database.tables.schema)
        case _:
            _take_named_lock(connection, name, database)
    yield


def _take_named_lock(connection: sa.Connection, name: str, database: Database) -> None:
    """Take a lock that the server frees by itself when the connection ends."""
    got = connection.exec_driver_sql("SELECT GET_LOCK(%s, %s)", (name, round(PATIENCE_S / 2))).scalar()
    if got != 1:
        raise LedgerUnavailable(f"{database.dialect.product}: somebody else migrates the ledger and does not end")


def _ensure_schema(connection: sa.Connection, schema: str | None) -> None:
    """Make the schema if it is missing. Asked first: IF NOT EXISTS would need the right to make it in any case."""
    if schema is None:
        return
    there = connection.exec_driver_sql("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).scalar()
    if there is None:
        connection.exec_driver_sql(f"CREATE SCHEMA {schema}")


@contextmanager
def _translated(dialect: Dialect) -> Iterator[None]:
    try:
        yield
    except sa.exc.DBAPIError as error:
        raise _told(dialect, error.orig) from error
    except dialect.errors as error:
        raise _told(dialect, error) from error


def _told(dialect: Dialect, error: BaseException | None) -> FencepostError:
    if not isinstance(error, dialect.errors):
        return LedgerUnavailable(f"{dialect.product}: {error}")
    if dialect.trouble(error) is Trouble.REFUSED:
        return LedgerRefused(
            f"{dialect.product}: the tables of the ledger could not be made: {first_line(error)}. Let somebody who "
            "may CREATE there run this command, or the script that `fencepost migrate --sql` prints"
        )
    return dialect.translated(error)
