"""What a database brings to `SqlLeaseStore`: a connection with a deadline, and names for its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from fencepost.core.duration import spelled
from fencepost.core.runtime import Runtime
from fencepost.errors import FencepostError
from fencepost.leases.stores import beside
from fencepost.leases.stores.sql.statements import NEVER, Statements
from fencepost.sql.troubles import CallTimedOut

Row = tuple[Any, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GrantEnding:
    """One grant that is to end.

    Whether its session still lives is not asked: while the row shows the grant, nobody else has the name.
    """

    name: str
    grant_id: str
    token: int
    why: str
    keep_us: int = 0
    done_tick_us: int = NEVER

    @property
    def parameters(self) -> tuple[Any, ...]:
        """The parameters of `Statements.end`."""
        return (int(self.keep_us > 0), self.keep_us, self.done_tick_us, self.name, self.grant_id)


class LeaseConnection(Protocol):
    """One connection, used by one call at a time. Every method ends at `deadline`, a monotonic reading."""

    deadline: float
    repeats: bool  # the call is being made again because the first connection broke: it may have happened already

    def begin_call(self) -> None:
        """Look, before a call, whether the connection is still what it was, where that is cheap."""
        ...

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]: ...

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Execute and return the number of rows changed."""
        ...

    def number(self, sql: str, parameters: Sequence[Any] = ()) -> int | None:
        """Execute a change of one row and return the number it yields, or None if no row was changed."""
        ...

    def end_grant(self, ending: GrantEnding) -> tuple[bool, bool]:
        """End one grant and write its history, as one transaction.

        Returns whether the grant was current and has ended, and whether somebody waits for the name.
        """
        ...

    def begin(self) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


class Backend(Protocol):
    """A kind of database."""

    @property
    def product(self) -> str:
        """Return the server's name and place, for messages: ``PostgreSQL at db1``."""
        ...

    is_file: bool
    """Whether it is SQLite, which whoever forks must not be in the middle of."""

    @property
    def sql(self) -> Statements: ...

    @property
    def driver_errors(self) -> tuple[type[Exception], ...]: ...

    def connect(self, timeout_s: float) -> LeaseConnection: ...

    def refusal(self, error: Exception) -> FencepostError | None:
        """Return what an operator must mend, if that is what the driver's `error` at the start means."""
        ...

    def prepare(self, connection: LeaseConnection) -> tuple[str, ...]:
        """Make the tables if they are missing; refuse an unsafe server; return warnings."""
        ...

    def announce(self, connection: LeaseConnection, names: Sequence[str]) -> None:
        """Wake those who wait for `names`, where the database can; inside a transaction, when it commits."""
        ...

    def forget(self, idle: Sequence[LeaseConnection], *, in_use: int) -> None:
        """Come to terms, in a forked child, with connections that belong to the parent."""
        ...


@contextmanager
def transaction(connection: LeaseConnection) -> Iterator[None]:
    """Commit at the end, roll back on any error."""
    connection.begin()
    try:
        yield
    except BaseException:
        with suppress(Exception):
            connection.rollback()
        raise
    connection.commit()


def within(runtime: Runtime, timeout_s: float, connect: Callable[[], T], close: Callable[[T], None]) -> T:
    """Call `connect` beside us and give up after `timeout_s`; a connection that comes too late is closed again."""
    try:
        return beside.within(runtime, timeout_s, connect, close)
    except TimeoutError:
        raise CallTimedOut(f"no connection within {spelled(round(timeout_s, 3))}") from None
