"""Chains of migration steps, which Alembic runs or writes as a script.

Alembic is configured in code: there is no alembic.ini, and the application's own is not read. One database may have
several chains, each with its own table for its revision.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from fencepost.schema.revisions import contracts, expanding_steps, missing_steps
from fencepost.schema.step import Aside, MigrationStep

PATIENCE_S = 3600.0  # a step on a large table may take long, and so may waiting for another process that runs it
Guard = Callable[[str], None]
"""Raises if a step that contracts must not run now."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The steps in `folder`/versions, for tables with one prefix; `version` is the table with their revision.

    `label` precedes the names of its steps in messages, so that two chains can be distinguished.
    """

    folder: Path
    prefix: str
    schema: str | None
    version: str
    label: str = ""

    @property
    def place(self) -> str:
        """The full name of the table with the revision."""
        return f"{self.schema}.{self.version}" if self.schema else self.version


def upgrade(
    connection: sa.Connection, chain: Chain, guard: Guard | None = None, aside: Aside | None = None
) -> tuple[str, ...]:
    """Run the missing steps in the caller's transaction and under the caller's lock; return their names.

    `aside` leaves that transaction for what cannot be done in one (`fencepost.schema.step`).

    Without a guard, only the steps before the first that contracts run; with a guard that does not object, all of them.
    If there are no tables yet, all steps run, because no node can need what a step removes.
    """
    done: list[str] = []
    _run(MigrationContext.configure(connection, opts=_options(chain, done, guard)), chain, aside)
    return tuple(done)


def script(chain: Chain, kind: str) -> str:
    """Return a script of all steps, starting from an empty database, for a kind of database."""
    written = io.StringIO()
    if chain.schema:
        written.write(f"CREATE SCHEMA IF NOT EXISTS {chain.schema};\n\n")
    options = _options(chain, [], None) | {"as_sql": True, "output_buffer": written}
    context = MigrationContext.configure(dialect_name=kind, opts=options)
    with context.begin_transaction():
        _run(context, chain)
    return written.getvalue()


def known_revisions(folder: Path) -> tuple[str, ...]:
    """Return the steps in `folder`/versions, oldest first."""
    return _in_order(ScriptDirectory(folder))


def _in_order(scripts: ScriptDirectory) -> tuple[str, ...]:
    return tuple(each.revision for each in reversed(list(scripts.walk_revisions())))


class StillLocked(Exception):
    """Another process has been changing the same tables for too long."""


def lock(connection: sa.Connection, chain: Chain, *, database: str) -> None:
    """Lock the steps of `chain` against other processes, until the connection's transaction, or the connection, ends.

    The transaction has begun. On SQLite it has begun as the writer, which already excludes others.
    """
    name = _lock_name(chain, database)
    match connection.dialect.name:
        case "sqlite":
            pass
        case "postgresql":
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (int(name[:15], 16),))
            _ensure_schema(connection, chain.schema)
        case _:
            _take_named_lock(connection, name)


@contextmanager
def lock_beside(connection: sa.Connection, chain: Chain, *, database: str) -> Iterator[bool]:
    """On PostgreSQL, lock what is done to the tables of `chain` outside of transactions; yield False if others do it.

    Enter and leave it under `lock`. It never waits: a build of an index would wait for those that wait for its end.
    """
    key = (int(_lock_name(chain, database)[15:30], 16),)
    yield bool(connection.exec_driver_sql("SELECT pg_try_advisory_lock(%s)", key).scalar())
    connection.exec_driver_sql("SELECT pg_advisory_unlock(%s)", key)  # after an error, with the connection


def _lock_name(chain: Chain, database: str) -> str:
    return hashlib.sha256(f"{database}.{chain.place}".encode()).hexdigest()[:40]


def _options(chain: Chain, done: list[str], guard: Guard | None) -> dict[str, Any]:
    scripts = ScriptDirectory(chain.folder)

    def missing(heads: Any, _: MigrationContext) -> Any:
        """Decide under the lock: another process may have run steps in the meantime, even unknown ones."""
        steps = _allowed(heads[0] if heads else None, _in_order(scripts), guard)
        return scripts._upgrade_revs(steps[-1], heads) if steps else []  # as Alembic's own command does

    def note(*, step: Any, **_: Any) -> None:
        done.append(f"{chain.label}{step.up_revision_id}")

    return {
        "fn": missing,
        "script": scripts,
        "version_table": chain.version,
        "version_table_schema": chain.schema,
        "on_version_apply": (note,),
    }


def _allowed(revision: str | None, known: tuple[str, ...], guard: Guard | None) -> tuple[str, ...]:
    missing = missing_steps(revision, known)
    if revision is None:
        return missing
    if guard is None:
        return expanding_steps(missing, known)
    for step in missing:
        if contracts(step, known):
            guard(step)
    return missing


def revision_of(connection: sa.Connection, chain: Chain) -> str | None:
    """Return the revision of the tables, within the transaction of the steps."""
    found = connection.exec_driver_sql(f"SELECT version_num FROM {chain.place}").scalar()  # noqa: S608 - checked
    return None if found is None else str(found)


def _run(context: MigrationContext, chain: Chain, aside: Aside | None = None) -> None:
    # Not through the module `alembic.op`, which all threads share.
    step = MigrationStep(Operations(context), prefix=chain.prefix, schema=chain.schema, aside=aside)
    context.run_migrations(step=step)


def _take_named_lock(connection: sa.Connection, name: str) -> None:
    """Take a lock that the server releases when the connection ends."""
    if connection.exec_driver_sql("SELECT GET_LOCK(%s, %s)", (name, round(PATIENCE_S / 2))).scalar() != 1:
        raise StillLocked


def _ensure_schema(connection: sa.Connection, schema: str | None) -> None:
    """Create the schema if it is missing. Checked first, because IF NOT EXISTS needs the privilege in any case."""
    if schema is None:
        return
    there = connection.exec_driver_sql("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).scalar()
    if there is None:
        connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
