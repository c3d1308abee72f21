"""A transaction in the ledger's own database that commits only while its run still belongs to whoever runs it.

The fence is the run's row. Becoming lost is a compare-and-set on it, and here it is compared twice: without a lock when
the transaction begins, so that a stale writer does not even start, and with a share lock as the *last* statement before
COMMIT. Between that statement and the commit nobody can take the run away; before it, nobody has to wait for us.
So a writer that was paused in the middle delays its successor by a round trip, not by a transaction.

**Promises.** What was executed on the connection is committed only if the run was ours at the commit; else it is rolled
back, `LeaseLost` is raised and the refusal is on record. A connection that falls silent in the middle is ended by the
server after a ttl (on SQLite: rolled back after five seconds).

**Not promised.** That an unanswered COMMIT did not happen. Whoever has to know makes the effect repeatable, or ends the
run in the same transaction (`finish`).
"""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError

from fencepost.errors import LeaseLost, TransactionConflict, TransactionTooLong
from fencepost.fence.run_row import RunRow, Terms, database_of

_NOTHING_WRITTEN = "nothing was written"


class LedgerTransaction:
    """Enter it for a SQLAlchemy connection; leaving commits behind the fence, an exception rolls back.

    With an engine the connection is the transaction's own, and has the isolation of the job's policy. One that was
    handed in gets that isolation too, and is left open.
    """

    def __init__(self, source: Engine | Connection, row: RunRow, terms: Terms) -> None:
        self._source = source
        self._row = row
        self._terms = terms
        self._database = database_of(source)
        self._connection: Connection | None = None
        self._is_ending = False
        self._was_bypassed = False

    def __enter__(self) -> Connection:
        self._terms.check_trust()
        connection = self._connect()
        try:
            connection.begin()
            is_ours = self._database.begin(connection, self._row, self._terms)
        except BaseException as error:
            self._give_up(connection)
            if isinstance(error, DBAPIError) and self._database.lacks_table(error):
                raise self._elsewhere() from error
            raise
        if not is_ours:
            self._give_up(connection)  # first, for the refusal is written by another connection
            self._refuse("it was no longer this attempt's when the transaction began")
        event.listen(connection, "commit", self._on_commit)
        self._connection = connection
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if not self._database.ends_in_time():
                self._roll_back(connection)
                raise self._too_long() from error
            if kind is None:
                self._commit(connection)
            else:
                self._roll_back(connection)
        finally:
            event.remove(connection, "commit", self._on_commit)
            self._close(connection)

    def _connect(self) -> Connection:
        if isinstance(self._source, Connection) and self._source.in_transaction():
            raise RuntimeError(
                "the connection is in a transaction already, which run.transaction() cannot fence from its "
                "beginning; commit first, or hand over the engine"
            )
        connection = self._source if isinstance(self._source, Connection) else self._source.connect()
        return self._database.prepared(connection, self._terms)

    def _commit(self, connection: Connection) -> None:
        try:
            self._terms.check_trust()
            is_ours = self._is_still_ours(connection)
        except BaseException:
            self._roll_back(connection)
            raise
        if not is_ours:
            self._roll_back(connection)
            self._refuse("it was no longer this attempt's when the transaction was to be committed")
        self._is_ending = True
        connection.commit()

    def _is_still_ours(self, connection: Connection) -> bool:
        try:
            if self._terms.finish is not None:
                return self._terms.finish(connection)
            return self._database.check(connection, self._row)
        except Exception as error:
            if not self._database.is_conflict(error):
                raise
            # The row was changed since our snapshot: by whoever took the run over, or only by somebody who wants it
            # cancelled. This transaction is over in any case.
            self._roll_back(connection)
            if not self._is_ours_outside():
                return False
            raise TransactionConflict(
                f"the row of {self._row.what} was changed while its transaction ran, and under "
                f"{self._terms.isolation!r} that ends the transaction; {_NOTHING_WRITTEN}, try again"
            ) from error

    def _is_ours_outside(self) -> bool:
        with self._source.engine.connect() as connection:
            return self._database.reads(connection, self._row)

    def _refuse(self, why: str) -> None:
        self._terms.refused(why)
        raise LeaseLost(self._row.what, self._row.token, f"{why}; {_NOTHING_WRITTEN}")

    def _too_long(self) -> TransactionTooLong:
        return TransactionTooLong(
            f"a transaction of {self._row.what} kept the ledger's SQLite file from everybody else for "
            f"{self._terms.sqlite_limit_s:g} s and was rolled back; write less at a time, and wait for nothing inside"
        )

    def _elsewhere(self) -> RuntimeError:
        return RuntimeError(
            f"there is no {self._row.table} where this transaction began: that is not the ledger's database, "
            "so its run cannot be compared there"
        )

    def _on_commit(self, connection: Connection) -> None:
        """Refuse a commit by anybody but us: it would go past the fence."""
        if not self._is_ending:
            self._was_bypassed = True
            raise RuntimeError("run.transaction() commits by itself, at the end of its block, after asking the fence")

    def _roll_back(self, connection: Connection) -> None:
        with suppress(DBAPIError):  # a connection that is gone takes its transaction along; what led here matters more
            connection.rollback()
            if self._was_bypassed:  # SQLAlchemy takes a transaction whose commit failed for ended; no database does
                connection.connection.rollback()

    def _give_up(self, connection: Connection) -> None:
        self._database.ends_in_time()
        self._roll_back(connection)
        self._close(connection)

    def _close(self, connection: Connection) -> None:
        try:
            self._database.end(connection)
        finally:
            if connection is not self._source:
                connection.close()
