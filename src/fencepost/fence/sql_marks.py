"""The marks of a service in the table `fence` of its own database (``fencepost effects install URL``).

Raising a mark is a transaction of its own, before the application's. `check_in` is a statement in the application's
transaction. It locks the mark until that transaction ends, so no newer token is accepted between check and commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fencepost.core.fencing import NOTHING_WRITTEN, FencingToken, Mark, refusal
from fencepost.core.identity import fitted
from fencepost.core.runtime import Runtime
from fencepost.core.urls import identifier
from fencepost.errors import LeaseLost, TransactionConflict
from fencepost.fence.databases import database_for
from fencepost.fence.families import Family
from fencepost.fence.fence_options import FenceOptions
from fencepost.fence.fence_row import fence_row
from fencepost.fence.marks import Stale, is_of_one_run
from fencepost.fence.sources import source_of
from fencepost.fence.sources.source import Source
from fencepost.fence.target import Target, target_of
from fencepost.schema.effects import EffectTables
from fencepost.sql.spelling import SPELLING
from fencepost.sql.troubles import NO_TABLES, Trouble, trouble_of

_RUN_KEPT_FOR_US = 30 * 86_400 * 1_000_000  # far longer than two attempts at one run can be apart


class SqlMarks:
    """Marks in a database, one row for each key. Rows of single runs are removed after 30 days (`fence.families`).

    Args:
        source: a SQLAlchemy engine, or a function that returns a new connection of psycopg, PyMySQL or sqlite3, which
            is closed after use.
        runtime: for the pauses while another transaction has the row locked.
        prefix: the prefix of the tables.
        schema: the schema of the tables, on PostgreSQL.
    """

    blocks = True

    def __init__(self, source: Any, runtime: Runtime, *, prefix: str = "fencepost_", schema: str | None = None) -> None:
        self._connect: Callable[[], Any] | None = source if callable(source) else None
        self._engine = source
        schema = None if schema is None else identifier(schema, what="schema")
        self._tables = EffectTables(identifier(prefix, what="prefix"), schema)
        self._terms = FenceOptions(
            runtime, isolation="read committed", ttl_s=0.0, check_trust=lambda: None, refused=lambda _: None
        )

    def _family(self, key: str) -> Family | None:
        """Return the family of a run without an exclusive key; None for other keys. Tokens follow the clock, in µs."""
        if not is_of_one_run(key):
            return None
        return Family(key.rstrip("0123456789"), lambda: self._terms.runtime.wall_us() - _RUN_KEPT_FOR_US)

    def admit(self, offered: FencingToken) -> Stale | None:
        """Compare, and raise the mark in a transaction of its own if necessary. Most requests only read it."""
        row = replace(fence_row(offered, self._tables, what=offered.key), family=self._family(offered.key))
        with self._opened() as source:
            try:
                if (mark := self._seen(source, offered)) is None or not _is_ours(mark, offered):
                    row.ready(source, self._terms)
            except LeaseLost as lost:
                return self._stale(self._seen(source, offered), offered, lost.reason)
        return None

    def check_in(self, connection: Any, offered: FencingToken) -> Stale | None:
        """Compare in the open transaction of `connection`, and lock the mark until that transaction ends."""
        target = target_of(connection)
        try:
            mark = self._mark(target, offered, database_for(target.kind).locking(shared=True))
        except Exception as error:
            if trouble_of(error) is not Trouble.CONFLICT:
                raise
            return self._stale_after_conflict(offered, error)
        if mark is not None and _is_ours(mark, offered):
            return None
        return self._stale(mark, offered, "its mark is gone from this database")

    def _stale_after_conflict(self, offered: FencingToken, error: Exception) -> Stale:
        """Compare in another transaction: the mark was raised after the snapshot, or there was another conflict."""
        stale = self.admit(offered)
        if stale is None:
            raise TransactionConflict(
                f"the transaction for key {offered.key!r} conflicted with another one; {NOTHING_WRITTEN}, try again"
            ) from error
        return stale

    @contextmanager
    def _opened(self) -> Iterator[Source]:
        connection = self._connect() if self._connect is not None else None
        source = source_of(self._engine if connection is None else connection)
        try:
            source.open()
            try:
                yield source
            finally:
                source.close()
        finally:
            if connection is not None:
                connection.close()

    def _seen(self, source: Source, offered: FencingToken) -> Mark | None:
        source.begin("read committed")
        try:
            return self._mark(source.target, offered, "")
        except Exception as error:
            if trouble_of(error) not in NO_TABLES:  # raising the mark reports missing tables with a better message
                raise
            return None
        finally:
            source.roll_back()

    def _mark(self, target: Target, offered: FencingToken, locking: str) -> Mark | None:
        where = f"FROM {self._tables.name('fence')} WHERE {SPELLING[target.kind].key} = %s {locking}"
        rows = target.execute(f"SELECT token, grant_id {where}".rstrip(), (fitted(offered.key),)).rows
        return Mark(int(rows[0][0]), str(rows[0][1])) if rows else None

    @staticmethod
    def _stale(mark: Mark | None, offered: FencingToken, reason: str) -> Stale:
        why = refusal(mark, offered._replace(grant_id=fitted(offered.grant_id)), now_us=None)
        return Stale(mark, why or reason.removesuffix(f"; {NOTHING_WRITTEN}"))


def _is_ours(mark: Mark, offered: FencingToken) -> bool:
    return (mark.token, mark.grant_id) == (offered.token, fitted(offered.grant_id))
