"""A connection to the ledger, for a loop of the engine or for a call from a user's thread.

It is opened on first use, and again after it broke. `rest` closes it while there is nothing to do. Only one thread uses
it at a time, and transactions do not nest.

::

    with connection.transaction() as cursor:   # the driver's own cursor, in a transaction that commits at the end
        cursor.execute(...)
    with connection.autocommit() as cursor:    # the same without a transaction: for single statements
        cursor.execute(...)
    connection.write(lambda cursor: ...)       # a transaction, retried after a deadlock
    connection.read(lambda cursor: ...)        # no transaction, retried once if the connection turns out broken

**Promises.** An error of the driver is raised as `LedgerUnavailable` (the outcome is unknown) or `LedgerRefused`
(nothing was changed, and a retry will not help). Every statement times out after the URL's call_timeout. A transaction
that did not reach its COMMIT has changed nothing. A connection that was inherited through a fork is never used.

**Not promised.** That a commit whose reply was lost did not happen. A caller that retries must be able to recognize
that it did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from fencepost.errors import LedgerUnavailable
from fencepost.ledger.dialects import Cursor, Dialect
from fencepost.sql.forked_sqlite import FORKED_SQLITE, Closable
from fencepost.sql.troubles import REFUSALS, REPEATABLE, Trouble, trouble_of
from fencepost.sql.turns import Turns

T = TypeVar("T")

CONFLICTS_BORNE = 5  # retries of a transaction after a deadlock or serialization failure; the last attempt may raise


Last = Callable[[Cursor], None]
"""A step that a transaction executes last, right before its COMMIT."""

_by_cursor: WeakValueDictionary[int, LedgerConnection] = WeakValueDictionary()


def last_of(cursor: Cursor) -> list[Last] | None:
    """Return the last steps of the transaction of `cursor`, to append to; None for a transaction that a caller began.

    Take a lock here that all writers need: then it is held only for the duration of one commit.
    """
    connection = _by_cursor.get(id(cursor))
    return connection.last if connection is not None and connection.is_of(cursor) else None


def returned_by(cursor: Cursor) -> Any:
    """Return what the `work` of the transaction of `cursor` has returned, for what the transaction does last."""
    connection = _by_cursor.get(id(cursor))
    return connection.returned if connection is not None and connection.is_of(cursor) else None


class LedgerConnection:
    """A connection to the ledger. `writer` serializes the writers of a SQLite file within this process."""

    def __init__(self, name: str, dialect: Dialect, *, writer: Turns | None = None) -> None:
        self.name = name
        self.dialect = dialect
        self.on_open: Callable[[Cursor], None] | None = None  # checks a new connection before its first use
        self._writer = writer
        self._expected: tuple[type[Exception], ...] = (*dialect.errors, OSError)
        self._connection: Any = None
        self._cursor: Any = None
        self.is_busy = False
        self.last: list[Last] | None = None  # the last steps of the open transaction
        self.returned: Any = None  # by the `work` of that transaction

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        """Run the block in a transaction: commit at its end, roll back on any error."""
        with self._working(), self._turn(), self._translated():
            cursor = self._begin()
            self.last = []
            try:
                yield cursor
                for act in self.last:
                    act(cursor)
                cursor.execute("COMMIT")
            except BaseException as error:
                self._roll_back(error)
                raise
            finally:
                self.last = self.returned = None

    @contextmanager
    def autocommit(self) -> Iterator[Cursor]:
        """Yield the cursor without a transaction: each statement commits by itself."""
        with self._working(), self._translated():
            try:
                yield self._opened()
            except BaseException as error:
                self._roll_back(error)
                raise

    def write(self, work: Callable[[Cursor], T]) -> T:
        """Call `work` in a transaction; retry a few times after a deadlock or serialization failure."""
        for _ in range(CONFLICTS_BORNE):
            try:
                return self._written(work)
            except LedgerUnavailable as error:
                if trouble_of(error.__cause__) not in REPEATABLE:
                    raise
        return self._written(work)

    def _written(self, work: Callable[[Cursor], T]) -> T:
        with self.transaction() as cursor:
            result = self.returned = work(cursor)
            return result

    def read(self, work: Callable[[Cursor], T]) -> T:
        """Call `work`, which changes nothing; retry once on a new connection if an open one turns out broken."""
        is_used = self._connection is not None
        try:
            with self.autocommit() as cursor:
                return work(cursor)
        except LedgerUnavailable as error:
            if not is_used or trouble_of(error.__cause__) is not Trouble.BROKEN:
                raise
        with self.autocommit() as cursor:
            return work(cursor)

    def rest(self) -> None:
        """Close the connection. The next use opens another."""
        connection, cursor, self._connection, self._cursor = self._connection, self._cursor, None, None
        if connection is None:
            return
        was_busy, self.is_busy = self.is_busy, True  # a fork at this moment must see that the database is in use
        try:
            with suppress(Exception):
                self.dialect.hang_up(connection, cursor)
        finally:
            self.is_busy = was_busy

    @property
    def opened(self) -> list[Closable]:
        """The open cursor and connection, in the order in which to close them."""
        return [each for each in (self._cursor, self._connection) if each is not None]

    def is_of(self, cursor: Cursor) -> bool:
        """Whether `cursor` belongs to this connection."""
        return self._cursor is cursor

    def forget(self) -> None:
        """In a forked child, drop the parent's connection without closing it."""
        self._connection = self._cursor = None
        self.is_busy = False

    def _turn(self) -> Any:
        return nullcontext() if self._writer is None else self._writer.turn(self.dialect.timeout_s)

    @contextmanager
    def _working(self) -> Iterator[None]:
        if self.is_busy:
            raise RuntimeError(f"the ledger connection {self.name!r} is in use: it has one transaction at a time")
        if FORKED_SQLITE.forking and self.dialect.has_one_writer:
            FORKED_SQLITE.let_fork(self.dialect.runtime.monotonic, self.dialect.runtime.sleep)
        self.is_busy = True
        try:
            yield
        finally:
            self.is_busy = False

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._expected as error:
            raise self.dialect.translated(error) from error

    def _opened(self) -> Cursor:
        if self._connection is not None and self.dialect.is_stale(self._connection):
            self.rest()
        if self._connection is None:
            self._connection = self.dialect.dial()
            self._cursor = self._connection.cursor()
            _by_cursor[id(self._cursor)] = self
            if self.on_open is not None:
                self._check_opened(self.on_open)
        cursor: Cursor = self._cursor
        return cursor

    def _check_opened(self, on_open: Callable[[Cursor], None]) -> None:
        try:
            on_open(self._cursor)
        except BaseException:
            self.rest()
            raise

    def _begin(self) -> Cursor:
        """Begin a transaction. If the connection broke since its last use, begin on a new one: nothing was lost."""
        is_used = self._connection is not None
        cursor = self._opened()
        try:
            self.dialect.begin(self._connection, cursor)
        except self.dialect.errors as error:
            is_broken = trouble_of(error) is Trouble.BROKEN
            self.rest()
            if not is_used or not is_broken:
                raise
            cursor = self._opened()
            self.dialect.begin(self._connection, cursor)
        return cursor

    def _roll_back(self, error: BaseException) -> None:
        """Roll back. Close the connection unless the error shows that the server still responds."""
        is_well = not isinstance(error, Exception) or not isinstance(error, self._expected)
        is_well = is_well or trouble_of(error) in REPEATABLE | REFUSALS
        if not is_well or not isinstance(error, Exception):  # a signal may have interrupted a statement
            self.rest()
            return
        try:
            self._connection.rollback()
        except Exception:  # noqa: BLE001 - whatever the error, a new connection replaces this one
            self.rest()
