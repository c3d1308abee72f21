"""A connection to the ledger, for a loop of the engine or for a call from a user's thread.

It is opened when first used and opened again after it broke. `rest` closes it when there is nothing to do. One thread
uses it at a time, and transactions do not nest.

::

    with connection.transaction() as cursor:   # the driver's own cursor, in a transaction that commits at the end
        cursor.execute(...)
    with connection.autocommit() as cursor:    # the same without a transaction: for single statements
        cursor.execute(...)
    connection.write(lambda cursor: ...)       # a transaction, repeated after a deadlock
    connection.read(lambda cursor: ...)        # no transaction, repeated once if the connection turns out broken

**Promises.** Whatever the driver raises becomes `LedgerUnavailable` (nobody knows whether it happened) or
`LedgerRefused` (it did not, and will not). Every wait ends: statements after the URL's call_timeout. A transaction that
did not reach its COMMIT has changed nothing. A connection that was inherited through a fork is never used.

**Not promised.** That a commit whose answer was lost did not happen: who repeats must be able to tell.
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

CONFLICTS_BORNE = 5


Last = Callable[[Cursor], None]
"""Something that a transaction does last, right before its COMMIT."""

_by_cursor: WeakValueDictionary[int, LedgerConnection] = WeakValueDictionary()


def last_of(cursor: Cursor) -> list[Last] | None:
    """Return what the transaction of `cursor` does last, to be added to; None if it is a transaction of the caller's.

    What is locked for all writers belongs there: it is held for the length of one commit, and nobody who waits for it
    holds it.
    """
    connection = _by_cursor.get(id(cursor))
    return connection.last if connection is not None and connection.is_of(cursor) else None


def returned_by(cursor: Cursor) -> Any:
    """Return what the `work` of the transaction of `cursor` has returned, for what the transaction does last."""
    connection = _by_cursor.get(id(cursor))
    return connection.returned if connection is not None and connection.is_of(cursor) else None


class LedgerConnection:
    """A connection and its manners. `writer` is the turn that writers of a SQLite file take within this process."""

    def __init__(self, name: str, dialect: Dialect, *, writer: Turns | None = None) -> None:
        self.name = name
        self.dialect = dialect
        self.on_open: Callable[[Cursor], None] | None = None  # looks at a new connection before anybody works with it
        self._writer = writer
        self._expected: tuple[type[Exception], ...] = (*dialect.errors, OSError)
        self._connection: Any = None
        self._cursor: Any = None
        self.is_busy = False
        self.last: list[Last] | None = None  # of a transaction that is open
        self.returned: Any = None  # by the work of that transaction

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        """Begin; commit at the end; roll back on any error. The driver's errors become the ledger's."""
        with self._working(), self._turn(), self._translated():
            cursor = self._begun()
            self.last = []
            try:
                yield cursor
                for act in self.last:
                    act(cursor)
                cursor.execute("COMMIT")
            except BaseException as error:
                self._undo(error)
                raise
            finally:
                self.last = self.returned = None

    @contextmanager
    def autocommit(self) -> Iterator[Cursor]:
        """Lend the cursor; each statement stands for itself."""
        with self._working(), self._translated():
            try:
                yield self._opened()
            except BaseException as error:
                self._undo(error)
                raise

    def write(self, work: Callable[[Cursor], T]) -> T:
        """Do `work` in a transaction, and again after a deadlock or serialization failure, a few times."""
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
        """Do `work`, which changes nothing; once more, on a fresh connection, if the one it was done on was broken."""
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
        """Close the connection; the next use opens another."""
        connection, cursor, self._connection, self._cursor = self._connection, self._cursor, None, None
        if connection is None:
            return
        was_busy, self.is_busy = self.is_busy, True  # whoever forks now must know that the database is being called
        try:
            with suppress(Exception):
                self.dialect.hang_up(connection, cursor)
        finally:
            self.is_busy = was_busy

    @property
    def opened(self) -> list[Closable]:
        """What there is now of cursor and connection, in the order in which they are to be closed."""
        return [each for each in (self._cursor, self._connection) if each is not None]

    def is_of(self, cursor: Cursor) -> bool:
        """Whether `cursor` is the one of this connection."""
        return self._cursor is cursor

    def forget(self) -> None:
        """Give up, in a forked child, the parent's connection without closing it."""
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
                self._look_around(self.on_open)
        cursor: Cursor = self._cursor
        return cursor

    def _look_around(self, on_open: Callable[[Cursor], None]) -> None:
        try:
            on_open(self._cursor)
        except BaseException:
            self.rest()
            raise

    def _begun(self) -> Cursor:
        """Begin; if the connection has broken since it was last used, nothing is lost by beginning on another."""
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

    def _undo(self, error: BaseException) -> None:
        """Roll back; throw the connection away unless the server has just shown that it is well."""
        is_well = not isinstance(error, Exception) or not isinstance(error, self._expected)
        is_well = is_well or trouble_of(error) in REPEATABLE | REFUSALS
        if not is_well or not isinstance(error, Exception):  # a signal may have cut a statement in half
            self.rest()
            return
        try:
            self._connection.rollback()
        except Exception:  # noqa: BLE001 - whatever it is, another connection will do
            self.rest()
