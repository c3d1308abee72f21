"""A row of the table `fence`, in the database that receives the effects: raised once, then compared.

**Raising** is a transaction of its own, before the first effect. It writes our token and its grant into the row, unless
a newer holder has written there. It waits only briefly for a lock, and retries. The lock belongs to a predecessor
between its check and its commit, and the server ends a predecessor that is idle for a ttl.

**Not promised.** That a writer that has lost its lease is refused before its successor uses this database: only
the successor's first fenced transaction raises the fence here.

A key without a row is fenced by the floor, the row with the empty key. Rows below the floor have been pruned.

**Two names.** While nodes of an older version take part, which use other names for their fences (`ledger.naming`), a
run has two rows. Both are raised in one transaction, the older name first, and both are compared. So it does not matter
which of them a successor has raised: the previous writer is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.core.fencing import NOTHING_WRITTEN, FencingToken, Mark, refusal
from fencepost.core.identity import fitted
from fencepost.errors import EffectsMissing, LeaseLost, TransactionConflict
from fencepost.fence.databases import TargetDatabase, database_for
from fencepost.fence.families import Family
from fencepost.schema.effects import FLOOR_KEY
from fencepost.sql.spelling import SPELLING
from fencepost.sql.troubles import NO_TABLES, Trouble, trouble_of

if TYPE_CHECKING:
    from fencepost.fence.fence_options import FenceOptions
    from fencepost.fence.sources.source import Source
    from fencepost.fence.target import Target
    from fencepost.fence.writer import TablePlace
    from fencepost.schema.effects import EffectTables

_WAIT_S = 0.5  # for a lock, before trust is checked again; the holder needs one round trip
_PAUSE_S = 0.05  # between two tries, with jitter
_BEYOND_TTL_S = 5.0  # after a ttl the server ends an idle predecessor; this leaves it time to do so
_IN_THE_WAY = (Trouble.LOCKED, Trouble.DEADLOCK, Trouble.CONFLICT, Trouble.DUPLICATE)


@dataclass(frozen=True, slots=True)
class FenceRow:
    """The fence of one key in one database, at our token."""

    table: str
    check: str
    offered: FencingToken
    what: str
    former: str | None = None  # its name in older versions, if nodes of such a version take part
    family: Family | None = None  # for a run without an exclusive key: the fences of all such runs in its ledger

    @property
    def token(self) -> int:
        return self.offered.token

    @property
    def key(self) -> str:
        """The key, shortened to fit the column."""
        return fitted(self.offered.key)

    @property
    def grant_id(self) -> str:
        """The grant of the token, shortened to fit the column."""
        return fitted(self.offered.grant_id)

    @property
    def values(self) -> tuple[Any, ...]:
        """The parameters of `query`."""
        ours = (self.key, self.token, self.grant_id)
        return ours if self.former is None else (*ours, fitted(self.former))

    @property
    def checks_with_commit(self) -> bool:
        """False with two rows: the procedure on PostgreSQL compares only one."""
        return self.former is None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all its rows, in the order in which they are raised."""
        return (self.key,) if self.former is None else (fitted(self.former), self.key)

    def query(self, kind: str) -> str:
        """Return the SQL that finds the row if it is ours; with two rows, only if both are ours."""
        key = SPELLING[kind].key
        if self.former is None:
            return f"SELECT 1 FROM {self.table} WHERE {key} = %s AND token = %s AND grant_id = %s"  # noqa: S608 - checked
        both = f"{self.table} AS fence JOIN {self.table} AS former ON "
        same = "former.token = fence.token AND former.grant_id = fence.grant_id"
        ours = f"fence.{key} = %s AND fence.token = %s AND fence.grant_id = %s AND former.{key} = %s"
        return f"SELECT 1 FROM {both}{same} WHERE {ours}"  # noqa: S608 - checked identifiers

    @property
    def touch(self) -> str:
        """The SQL that writes the row, or both rows, if they are ours: it adds 1 µs to `raised_at`."""
        where = self.query("mysql").removeprefix("SELECT 1 FROM ")
        tables, _, ours = where.partition(" WHERE ")
        rows = ("fence.", "former.") if self.former is not None else ("",)
        moved = ", ".join(f"{row}raised_at = {row}raised_at + 1" for row in rows)
        return f"UPDATE {tables} SET {moved} WHERE {ours}"  # noqa: S608 - checked identifiers

    def ready(self, source: Source, terms: FenceOptions, *, anew: bool = False) -> None:
        """Raise the fence, unless it is known to be ours here. `LeaseLost` if a newer holder has written here."""
        if (source.place, self.table) in terms.found_at and not anew:
            return
        why = _raised(source, self, terms)
        if why is not None:
            terms.refused(why)
            raise LeaseLost(self.what, self.token, f"{why}; {NOTHING_WRITTEN}")
        if self.family is not None:
            self.family.tidy(source, self.table, terms.runtime)

    def is_worth_another_look(self) -> bool:
        """True: the row may have been pruned, or be in another schema than last time."""
        return True

    def missing(self, name: str) -> Exception:
        """Return the error. The effect tables are created by a command, never on the fly."""
        return EffectsMissing(
            f"there is no {name} in the database where {self.what} wants to write, so a stale writer could not be "
            "refused there (and it is not the ledger's own database); create it with: fencepost effects install URL"
        )


def fence_row(
    offered: FencingToken, tables: TablePlace | EffectTables, *, what: str, former: str | None = None
) -> FenceRow:
    """Return the fence of a run's or a lease's token, in a database with these tables."""
    return FenceRow(tables.name("fence"), tables.name("check_fence"), offered, what, former)


def _raised(source: Source, row: FenceRow, terms: FenceOptions) -> str | None:
    """Raise the fence, with retries. If a newer holder has written here, return the reason for the refusal."""
    runtime = terms.runtime
    give_up_at = runtime.monotonic() + terms.ttl_s + _BEYOND_TTL_S
    while True:
        try:
            return _raised_once(source, row)
        except Exception as error:
            trouble = trouble_of(error)
            if trouble in NO_TABLES:
                raise row.missing(row.table) from None  # the driver's error would add nothing
            if trouble not in _IN_THE_WAY:
                raise
            if runtime.monotonic() >= give_up_at:
                raise TransactionConflict(
                    f"the fence of {row.what} could not be raised: {trouble.value}, again and again; "
                    f"{NOTHING_WRITTEN}, try again"
                ) from error
        terms.check_trust()
        runtime.sleep(_PAUSE_S * (0.5 + runtime.random()))


def _raised_once(source: Source, row: FenceRow) -> str | None:
    database = database_for(source.target.kind)
    source.begin("read committed")
    try:
        why = _compared_and_raised(source, database, row)
        if why is None:
            source.commit()
    except BaseException:
        source.roll_back()
        database.end(source)
        raise
    if why is not None:
        source.roll_back()
    database.end(source)
    return why


def _compared_and_raised(source: Source, database: TargetDatabase, row: FenceRow) -> str | None:
    target = source.target
    database.begin_raising(source, row.table, wait_s=_WAIT_S)
    now_us = target.now_us()
    # Lock the floor first. Pruning raises the floor first, so no row is pruned between our read and our write.
    floors = (FLOOR_KEY,) if row.family is None else (FLOOR_KEY, row.family.prefix)
    floor = _floor(target, row.table, floors, database.locking(shared=True))
    marks = {key: _mark(target, row.table, key, database.locking(shared=False)) for key in row.keys}
    offered = row.offered._replace(key=row.key, grant_id=row.grant_id)
    refusals = (refusal(mark, offered, now_us=now_us) for mark in marks.values())
    why = next(filter(None, refusals), None) or _below(floor, offered)
    for key, mark in marks.items():
        if why is None and (mark is None or mark.token < row.token):  # otherwise it has our token already
            _write(target, row, key, is_there=mark is not None, now_us=now_us)
    return why


def _mark(target: Target, table: str, key: str, locking: str) -> Mark | None:
    sql = f"SELECT token, grant_id, holder FROM {table} WHERE {SPELLING[target.kind].key} = %s {locking}"  # noqa: S608
    rows = target.execute(sql.rstrip(), (key,)).rows
    return Mark(int(rows[0][0]), str(rows[0][1]), str(rows[0][2] or "")) if rows else None


def _floor(target: Target, table: str, keys: tuple[str, ...], locking: str) -> Mark | None:
    """Return the highest of several floors; None if there is none."""
    key, marks = SPELLING[target.kind].key, ", ".join(["%s"] * len(keys))
    sql = f"SELECT token, grant_id FROM {table} WHERE {key} IN ({marks}) {locking}"  # noqa: S608 - checked identifiers
    return max((Mark(int(row[0]), str(row[1])) for row in target.execute(sql.rstrip(), keys).rows), default=None)


def _below(floor: Mark | None, offered: FencingToken) -> str | None:
    """Return why a token below the floor is refused. Rows below it have been pruned; one at the floor may exist."""
    if floor is None or offered.token >= floor.token:
        return None
    return f"token {offered.token} is below the floor of the fences there ({floor.token}): newer holders have written"


def _write(target: Target, row: FenceRow, named: str, *, is_there: bool, now_us: int) -> None:
    key = SPELLING[target.kind].key
    values = (row.token, row.grant_id, row.offered.holder, now_us, named)
    if is_there:
        sql = f"UPDATE {row.table} SET token = %s, grant_id = %s, holder = %s, raised_at = %s WHERE {key} = %s"  # noqa: S608
    else:
        sql = f"INSERT INTO {row.table} (token, grant_id, holder, raised_at, {key}) VALUES (%s, %s, %s, %s, %s)"  # noqa: S608
    target.execute(sql, values)
