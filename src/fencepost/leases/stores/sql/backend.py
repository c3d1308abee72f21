"""What a database provides for `SqlLeaseStore`: connections with a deadline, and the classification of errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from fencepost.core.duration import spelled
from fencepost.core.grants import Grant
from fencepost.core.runtime import Runtime
from fencepost.errors import FencepostError
from fencepost.leases.stores import beside
from fencepost.leases.stores.sql.statements import NEVER, Statements
from fencepost.sql.troubles import CallTimedOut, Trouble, trouble_of

Row = tuple[Any, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GrantEnding:
    """The end of one grant.

    It does not depend on whether its session is alive: while the row shows the grant, no other holder has the name.
    """

    name: str
    grant_id: str
    token: int
    why: str
    keep_us: int = 0
    done_tick_us: int = NEVER

    @classmethod
    def by_release(cls, grant: Grant, *, done: bool, keep_for_s: float) -> GrantEnding:
        """Return the end that its holder wants. The two are those of `LeaseStore.release`."""
        tick_us = grant.tick.at_us if done and grant.tick is not None else NEVER
        return cls(grant.name, grant.grant_id, grant.token, "released", micros(keep_for_s), tick_us)

    @property
    def parameters(self) -> tuple[Any, ...]:
        """The parameters of `Statements.end`."""
        return (int(self.keep_us > 0), self.keep_us, self.done_tick_us, self.name, self.grant_id)


class LeaseConnection(Protocol):
    """One connection, used by one call at a time. Every method ends at `deadline`, a monotonic reading."""

    deadline: float
    repeats: bool  # the call is a retry because the first connection broke: its work may already be done

    def begin_call(self) -> None:
        """Check before a call whether the connection is still valid, if that is cheap."""
        ...

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]: ...

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Execute and return the number of changed rows."""
        ...

    def number(self, sql: str, parameters: Sequence[Any] = ()) -> int | None:
        """Execute a change of one row and return the number that it returns, or None if no row was changed."""
        ...

    def end_grant(self, ending: GrantEnding) -> tuple[bool, bool]:
        """End one grant and write its history, as one transaction.

        Returns whether the grant was current and has ended, and whether there are waiters for the name.
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
        """Return the server's product and host, for messages: ``PostgreSQL at db1``."""
        ...

    is_file: bool
    """Whether it is SQLite. A process must not fork while a thread is inside SQLite."""

    @property
    def sql(self) -> Statements: ...

    @property
    def driver_errors(self) -> tuple[type[Exception], ...]: ...

    def connect(self, timeout_s: float) -> LeaseConnection: ...

    def refusal(self, error: Exception) -> FencepostError | None:
        """Return the error for an operator, if the driver's `error` at the start means that one has to act."""
        ...

    def prepare(self, connection: LeaseConnection) -> tuple[str, ...]:
        """Create the tables if they are missing; refuse an unsafe server; return warnings."""
        ...

    def announce(self, connection: LeaseConnection, names: Sequence[str]) -> None:
        """Wake the waiters for `names`, if the database can; inside a transaction, when it commits."""
        ...

    def forget(self, idle: Sequence[LeaseConnection], *, in_use: int) -> None:
        """In a forked child: handle the connections that belong to the parent."""
        ...


def micros(duration_s: float) -> int:
    """Return whole microseconds."""
    return round(duration_s * 1_000_000)


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


def ensure_tables(
    connection: LeaseConnection,
    errors: tuple[type[Exception], ...],
    *,
    touch: Callable[[LeaseConnection], None],
    create: Callable[[LeaseConnection], None],
) -> None:
    """Use the tables, by `touch`; create them only if they are not there."""
    try:
        touch(connection)
    except errors as error:
        if trouble_of(error) is not Trouble.NO_TABLE:
            raise
        create(connection)
        touch(connection)


def within(runtime: Runtime, timeout_s: float, connect: Callable[[], T], close: Callable[[T], None]) -> T:
    """Call `connect` on another task, and raise `CallTimedOut` after `timeout_s`; a late connection is closed again."""
    try:
        return beside.within(runtime, timeout_s, connect, close)
    except TimeoutError:
        raise CallTimedOut(f"no connection within {spelled(round(timeout_s, 3))}") from None
