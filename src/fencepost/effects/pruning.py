"""Removes rows that a database of effects no longer needs, in small batches.

**Promises.** Only expired idempotency keys are removed. Fences are removed only if their tokens are strictly below the
floor, which is raised in the same transaction: from then on, the floor refuses every writer that the row refused. The
floor stays below every live token of the given ledger: those of its running runs, of its exclusive keys, and of the
locks stored beside it. It is never lowered.

**Not promised.** Anything about holders in another ledger or lock store that fence the same database: one that has held
its token for longer than `older_than` without raising the fence again is refused. So `older_than` is at least a day,
and should be longer than any lock is held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from fencepost.core.duration import spelled, whole_us
from fencepost.effects.installing import how_to_install, tables_of
from fencepost.errors import ConfigurationError, EffectsMissing
from fencepost.leases.schemes import store_from_url
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.migrations import effects_revision
from fencepost.schema.effects import FLOOR_KEY

BATCH = 500  # rows per transaction: short enough not to block writers
LEAST_AGE_S = 86400.0  # a day: longer than most runs and locks last
_OURS = "fencepost/"


class Some(NamedTuple):
    """A selection of rows of a table, in SQL made of checked identifiers."""

    table: str
    where: str
    parameters: tuple[int, ...] = ()

    @property
    def sql(self) -> str:
        """The SQL after SELECT or DELETE."""
        return f"FROM {self.table} WHERE {self.where}"


@dataclass(frozen=True, slots=True)
class FenceFloor:
    """The new floor of fences, and why it cannot be higher."""

    token: int
    why: str


def prune_keys(database: Database, *, batch: int = BATCH, dry_run: bool = False) -> int:
    """Remove the expired idempotency keys; return how many there were."""
    need_tables(database)
    expired = Some(tables_of(database).name("idempotency_key"), f"expires_at <= {database.dialect.now_sql}")
    if dry_run:
        return _count(database, expired)
    return _in_batches(lambda: database.write(lambda cursor: _delete(cursor, database, expired, batch)))


def floor_for(ledger: Database, *, older_than_s: float) -> FenceFloor:
    """Return the highest floor that refuses no live holder of `ledger` and no token issued within `older_than_s`."""
    if older_than_s < LEAST_AGE_S:
        raise ConfigurationError(
            f"--older-than {spelled(older_than_s)} is too short: fences of the last day may still be needed; "
            f"the minimum is {spelled(LEAST_AGE_S)}"
        )
    age = ledger.now_us() - whole_us(older_than_s)
    live = _oldest_live_token(ledger)
    if live is None or live > age:
        return FenceFloor(age, f"tokens issued {spelled(older_than_s)} ago")
    return FenceFloor(live - 1, f"the oldest live token is {live}")


def prune_fences(database: Database, floor: FenceFloor, *, batch: int = BATCH, dry_run: bool = False) -> int:
    """Raise the floor, and remove the fences strictly below it; return how many there were."""
    need_tables(database)
    if dry_run:
        return _count(database, _below(database, floor.token))

    def one_batch(cursor: Cursor) -> int:
        raised = _raise_floor(cursor, database, floor.token)
        return _delete(cursor, database, _below(database, raised), batch)

    return _in_batches(lambda: database.write(one_batch))


def _below(database: Database, token: int) -> Some:
    where = f"token < {database.dialect.mark} AND {database.dialect.spelling.key} <> '{FLOOR_KEY}'"
    return Some(tables_of(database).name("fence"), where, (token,))


def need_tables(database: Database) -> None:
    """Refuse a database without the tables of effects."""
    is_absent = database.url.is_file and not database.url.path.exists()  # opening it would create an empty file
    if is_absent or effects_revision(database) is None:
        raise EffectsMissing(
            f"{database.dialect.product} has no tables of effects, so there is nothing to prune; to create them, run: "
            f"{how_to_install(database)}"
        )


def _oldest_live_token(ledger: Database) -> int | None:
    tokens = [
        _least(ledger, Some(ledger.tables.name("run"), "state = 'running'")),
        _least(ledger, Some(ledger.tables.name("exclusive"), "run_id IS NOT NULL")),
        _oldest_held_lock(ledger),
    ]
    return min((token for token in tokens if token is not None), default=None)


def _oldest_held_lock(ledger: Database) -> int | None:
    """Return the oldest token of a lock stored beside the ledger, except those of nodes, which fence nothing."""
    store = store_from_url(ledger.url.lease_url(), ledger.runtime)
    try:
        store.start()
        held = (each for each in store.records() if each.is_held and not each.name.startswith(_OURS))
        return min((record.token for record in held), default=None)
    finally:
        store.shutdown()


def _least(ledger: Database, some: Some) -> int | None:
    def work(cursor: Cursor) -> int | None:
        cursor.execute(f"SELECT min(token) {some.sql}")
        value = cursor.fetchone()[0]
        return None if value is None else int(value)

    return ledger.read(work)


def _raise_floor(cursor: Cursor, database: Database, token: int) -> int:
    """Raise the floor to `token`, unless it is already higher, and return it."""
    dialect, table = database.dialect, tables_of(database).name("fence")
    key, mark = dialect.spelling.key, dialect.mark
    cursor.execute(f"SELECT token FROM {table} WHERE {key} = {mark}{dialect.spelling.for_update}", (FLOOR_KEY,))  # noqa: S608 - ours
    row = cursor.fetchone()
    if row is None:
        values = {"key": FLOOR_KEY, "token": token, "grant_id": "", "holder": None, "raised_at": dialect.now_us(cursor)}
        dialect.insert_row(cursor, tables_of(database).fence, values)
        return token
    if row[0] >= token:
        return int(row[0])
    raised = f"UPDATE {table} SET token = {mark}, raised_at = {dialect.now_sql} WHERE {key} = {mark}"  # noqa: S608 - ours
    cursor.execute(raised, (token, FLOOR_KEY))
    return token


def _count(database: Database, some: Some) -> int:
    def work(cursor: Cursor) -> int:
        cursor.execute(f"SELECT count(*) {some.sql}", some.parameters)
        return int(cursor.fetchone()[0])

    return database.read(work)


def _delete(cursor: Cursor, database: Database, some: Some, batch: int) -> int:
    """Delete one batch. If the database supports it, locked rows are skipped until the next time."""
    key = database.dialect.spelling.key
    if database.dialect.deletes_with_limit:
        statement = f"DELETE {some.sql} LIMIT {batch}"
    else:
        found = f"SELECT {key} {some.sql} LIMIT {batch}{database.dialect.spelling.skip_locked}"
        statement = f"DELETE FROM {some.table} WHERE {key} IN ({found})"  # noqa: S608 - ours
    cursor.execute(statement, some.parameters)
    return cursor.rowcount


def _in_batches(one: Callable[[], int]) -> int:
    removed = 0
    while count := one():
        removed += count
    return removed
