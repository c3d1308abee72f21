"""Connects to PostgreSQL with psycopg, with a limit on every wait.

psycopg has no read timeout: if a server accepts bytes but never replies, `execute` waits for ever. psycopg runs
generators that yield what they wait for. Here our own poll runs them, and stops at the deadline.
"""

from __future__ import annotations

import math
import select
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.waiting import Ready, Wait

from fencepost.core.urls import StoreUrl
from fencepost.sql import postgres
from fencepost.sql.troubles import CallTimedOut

Row = tuple[Any, ...]
RV = TypeVar("RV")
ERRORS: tuple[type[Exception], ...] = (psycopg.Error,)
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"


class StatementTimedOut(CallTimedOut, psycopg.OperationalError):
    """The server did not reply in time. The connection is in an unknown state and must be closed."""


class BoundedPsycopg(psycopg.Connection[Row]):
    """A connection with a limit on every wait, even if the server does not reply.

    The limit applies to a whole call of several statements (`limit_call`), or to each statement (`statement_s`); if
    both are set, the earlier one counts. After `StatementTimedOut` the connection must be closed.
    """

    clock: Callable[[], float]
    deadline: float = math.inf
    statement_s: float = math.inf
    is_proxied: bool = False
    begin_sql: str = _BEGIN

    def limit_call(self, deadline: float) -> None:
        """Limit all following statements together to `deadline`, a reading of `clock`."""
        self.deadline = deadline

    @property
    def is_in_transaction(self) -> bool:
        """Whether there is anything to commit or roll back."""
        return self.pgconn.transaction_status != TransactionStatus.IDLE

    def wait(self, gen: Generator[Any, Any, RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Run `gen` until it is done or the time is up."""
        descriptor = self.pgconn.socket
        poll = select.poll()
        deadline = min(self.deadline, self.clock() + self.statement_s)
        try:
            wanted = next(gen)
            while True:
                poll.register(descriptor, _EVENTS[wanted])
                left_s = deadline - self.clock()
                ready = poll.poll(left_s * 1000) if left_s > 0 else []
                if not ready:
                    raise StatementTimedOut("no answer in time")
                wanted = gen.send(_ready(ready[0][1]))
        except StopIteration as stop:
            answer: RV = stop.value
            return answer


_EVENTS = {
    Wait.R: select.POLLIN,
    Wait.W: select.POLLOUT,
    Wait.RW: select.POLLIN | select.POLLOUT,
}


def _ready(events: int) -> Ready:
    """Convert poll events; an error or a hang-up counts as readable."""
    writable = events & select.POLLOUT
    readable = events & ~select.POLLOUT
    return Ready.RW if readable and writable else Ready.W if writable else Ready.R


def dial(url: StoreUrl, timeout_s: float, *, clock: Callable[[], float]) -> BoundedPsycopg:
    """Connect. libpq limits this in whole seconds for each address; the caller may need a stricter limit."""
    connection = BoundedPsycopg.connect(**postgres.connect_options(url, timeout_s))
    connection.clock = clock
    return connection


def greet(connection: BoundedPsycopg, limits: Sequence[tuple[str, str]], steady: Sequence[tuple[str, str]]) -> None:
    """Check whether there is a pooler, and set the server's `limits` and other session settings (`steady`).

    Behind a pooler, settings and prepared statements of a connection may affect other clients, or be missing the next
    time. So the limits are then set in each transaction, and no statement is prepared. If this fails, the connection
    is closed.
    """
    try:
        # A pooler invents the process id that it sends when a client connects; the query returns the real one.
        row = connection.execute("SELECT pg_backend_pid()").fetchone()
        connection.is_proxied = row is None or row[0] != connection.info.backend_pid
        if connection.is_proxied:
            connection.prepare_threshold = None
            connection.begin_sql = f"{_BEGIN}{postgres.set_local_sql(limits)}"
        else:
            connection.execute(postgres.set_session_sql([*limits, *steady]))
    except BaseException:
        connection.close()
        raise


def table_whose_ids_repeat(error: Exception) -> str | None:
    """Return the table whose primary key refused a row; None for any other error."""
    if not isinstance(error, psycopg.errors.UniqueViolation) or not str(error.diag.constraint_name).endswith("_pkey"):
        return None
    return f"{error.diag.schema_name}.{error.diag.table_name}"


def is_syntax_error(error: Exception) -> bool:
    """Whether the server could not parse a statement."""
    return isinstance(error, psycopg.errors.SyntaxError)


def is_protocol_violation(error: Exception) -> bool:
    """Whether a pooler refused something that it does not support."""
    return isinstance(error, psycopg.errors.ProtocolViolation)
