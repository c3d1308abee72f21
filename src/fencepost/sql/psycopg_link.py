"""Connecting to PostgreSQL by psycopg, with a limit on every wait.

psycopg has no read timeout: against a server that accepts bytes and never answers, `execute` would wait for ever. It
drives generators that say what they wait for. Here our own poll drives them, and knows when to stop.
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
    """The server did not answer in time. The connection is in an unknown state and must be closed."""


class BoundedPsycopg(psycopg.Connection[Row]):
    """A connection whose every wait ends, also if the server falls silent.

    Either a whole call of many statements is limited (`limit_call`), or each statement (`statement_s`). Whichever comes
    first holds. After `StatementTimedOut` the connection is of no use.
    """

    clock: Callable[[], float]
    deadline: float = math.inf
    statement_s: float = math.inf
    is_proxied: bool = False
    begin_sql: str = _BEGIN

    def limit_call(self, deadline: float) -> None:
        """Let all statements from now on together end by `deadline`, a reading of `clock`."""
        self.deadline = deadline

    @property
    def is_in_transaction(self) -> bool:
        """Whether there is anything to commit or roll back."""
        return self.pgconn.transaction_status != TransactionStatus.IDLE

    def wait(self, gen: Generator[Any, Any, RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Drive `gen` until it is done or the time is up."""
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
    """Translate; an error or a hang-up is something to read."""
    writable = events & select.POLLOUT
    readable = events & ~select.POLLOUT
    return Ready.RW if readable and writable else Ready.W if writable else Ready.R


def dial(url: StoreUrl, timeout_s: float, *, clock: Callable[[], float]) -> BoundedPsycopg:
    """Connect. libpq bounds that by whole seconds for each address; its caller may want to bound it more."""
    connection = BoundedPsycopg.connect(**postgres.connect_options(url, timeout_s))
    connection.clock = clock
    return connection


def greet(connection: BoundedPsycopg, limits: Sequence[tuple[str, str]], steady: Sequence[tuple[str, str]]) -> None:
    """Look who is at the other end, and set the server's own `limits` and what else holds for the session (`steady`).

    Behind a pooler, what is set or prepared on a connection may reach others, or not be there the next time: there the
    limits are set in each transaction, and nothing is prepared.
    """
    # A pooler makes up the process id that it announces at connecting; the server's own answer is true.
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    connection.is_proxied = row is None or row[0] != connection.info.backend_pid
    if connection.is_proxied:
        connection.prepare_threshold = None
        connection.begin_sql = f"{_BEGIN}{postgres.set_local_sql(limits)}"
    else:
        connection.execute(postgres.set_session_sql([*limits, *steady]))


def table_whose_ids_repeat(error: Exception) -> str | None:
    """Return the table whose primary key refused a row; None if the error is another."""
    if not isinstance(error, psycopg.errors.UniqueViolation) or not str(error.diag.constraint_name).endswith("_pkey"):
        return None
    return f"{error.diag.schema_name}.{error.diag.table_name}"


def is_syntax_error(error: Exception) -> bool:
    """Whether the server could not read a statement."""
    return isinstance(error, psycopg.errors.SyntaxError)


def is_protocol_violation(error: Exception) -> bool:
    """Whether a pooler refuses what it cannot do."""
    return isinstance(error, psycopg.errors.ProtocolViolation)
