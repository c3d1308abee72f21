"""PostgreSQL through psycopg."""

from __future__ import annotations

import math
import select
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.waiting import Ready, Wait
from sqlalchemy import BigInteger, ColumnElement, Table, literal_column
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.dialects.postgresql.psycopg import dialect as postgres_words

from fencepost.core.urls import PASSED_TO_LIBPQ
from fencepost.ledger.dialects.dialect import Cursor, Dialect, Parameters, Row, Trouble, first_line
from fencepost.ledger.urls import LedgerUrl

RV = TypeVar("RV")
_FEW = 3
_GRACE_S = 0.5  # the server ends a statement by itself, and then the connection is still good
OLDEST_VERSION = 120000
_NOW = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_TYPES = {"int": "bigint", "float": "double precision", "text": "text"}
_CONFLICTS = (errors.DeadlockDetected, errors.SerializationFailure)
_LATE = (errors.QueryCanceled, errors.LockNotAvailable, errors.IdleInTransactionSessionTimeout)
_LACKS_TABLES = (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName)
_SAID_NO = (
    "authentication failed",
    "no pg_hba.conf entry",
    "does not exist",
    "no password supplied",
    "permission denied",
    "is not permitted to log in",
    "certificate verify failed",
    "server does not support SSL",
)


class StatementTimedOut(psycopg.OperationalError):
    """The server did not answer in time. The connection is in an unknown state and must be thrown away."""


class BoundedConnection(psycopg.Connection[Row]):
    """A connection on which every statement ends within `timeout_s`, also if the server falls silent.

    psycopg has no read timeout. It drives generators that say what they wait for; here our own poll drives them.
    """

    timeout_s: float = math.inf
    clock: Callable[[], float]
    begin_sql: str = _BEGIN

    def wait(self, gen: Generator[Any, Any, RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Drive `gen` until it is done or the time is up."""
        descriptor = self.pgconn.socket
        poll = select.poll()
        deadline = self.clock() + self.timeout_s
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


class PostgresDialect(Dialect):
    """A ledger in a PostgreSQL database."""

    name = "postgresql"
    errors = (psycopg.Error,)
    words = postgres_words()  # type: ignore[no-untyped-call]
    mark = "%s"
    now_sql = _NOW

    @property
    def product(self) -> str:
        """The server."""
        return f"PostgreSQL at {', '.join(host for host, _ in self.url.store.hosts) or 'the local socket'}"

    def now(self) -> ColumnElement[int]:
        """Return the server's time at the moment it is read, not at the transaction's begin."""
        return literal_column(_NOW, BigInteger())

    def dial(self, timeout_s: float | None = None) -> BoundedConnection:
        """Connect, look who is at the other end, and set the server's own time limits."""
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        connection = BoundedConnection.connect(**conninfo(self.url, limit_s))
        connection.clock = self.runtime.monotonic
        connection.timeout_s = limit_s + _GRACE_S
        try:
            self._greet(connection, limit_s)
        except BaseException:
            connection.close()
            raise
        return connection

    def _greet(self, connection: BoundedConnection, limit_s: float) -> None:
        # A proxy makes up the process id it announces at connecting; the server's own answer is true.
        row = connection.execute("SELECT pg_backend_pid()").fetchone()
        limits: list[tuple[str, object]] = [(name, math.ceil(limit_s * 1000)) for name in _LIMITS]
        limits.append((_SILENCE, math.ceil(min(limit_s, self.silence_s) * 1000)))
        if row is None or row[0] != connection.info.backend_pid:
            # What is set or prepared on a pooled connection may reach others, or not be there the next time.
            connection.prepare_threshold = None
            local = "".join(f"; SET LOCAL {name} = {value}" for name, value in limits)
            connection.begin_sql = f"{_BEGIN}{local}"
        else:
            limits += _STEADY
            settings = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in limits)
            connection.execute(f"SELECT {settings}")

    def begin(self, connection: Any, cursor: Cursor) -> None:
        """Begin."""
        cursor.execute(connection.begin_sql)

    def trouble(self, error: Exception) -> Trouble:
        """Tell a broken connection from a silent one, a conflict and a refusal."""
        if isinstance(error, _CONFLICTS):
            return Trouble.CONFLICT
        if isinstance(error, (StatementTimedOut, errors.ConnectionTimeout, *_LATE)):
            return Trouble.LATE
        if isinstance(error, psycopg.OperationalError) and any(said in str(error) for said in _SAID_NO):
            return Trouble.REFUSED
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return Trouble.BROKEN
        is_refused = isinstance(error, psycopg.ProgrammingError | psycopg.IntegrityError | psycopg.DataError)
        return Trouble.REFUSED if is_refused or isinstance(error, errors.ReadOnlySqlTransaction) else Trouble.OTHER

    def lacks_tables(self, error: BaseException | None) -> bool:
        """Whether a table, a column or the schema is not there."""
        return isinstance(error, _LACKS_TABLES)

    def refusal(self, error: Exception) -> str:
        """Say what an operator must mend."""
        if self.lacks_tables(error):
            return f"{self.product} lacks what the ledger needs ({first_line(error)}): run: fencepost migrate"
        if isinstance(error, errors.InsufficientPrivilege):
            return (
                f"{self.product}: {first_line(error)}. Grant SELECT, INSERT, UPDATE, DELETE on the tables and USAGE on "
                "their schema; to make them, let somebody who may CREATE there run: fencepost migrate"
            )
        if isinstance(error, psycopg.OperationalError):
            return f"{self.product} refuses the connection: {str(error).strip().splitlines()[-1]}"
        return f"{self.product} refuses: {first_line(error)}"

    def json_table(self, alias: str, columns: Mapping[str, str]) -> str:
        """Take the list apart with jsonb_array_elements."""
        chosen = ", ".join(
            f"(e.value->>{place})::{_TYPES[kind]} AS {name}" for place, (name, kind) in enumerate(columns.items())
        )
        source = "jsonb_array_elements(%s::jsonb) WITH ORDINALITY AS e(value, n)"
        return f"(SELECT {chosen} FROM {source} ORDER BY n) AS {alias}"  # noqa: S608 - names of ours

    def objection(self, cursor: Cursor) -> str | None:
        """Look at the version, and whether it is a primary."""
        names = ("server_version_num", "server_version", "transaction_read_only")
        settings = ", ".join(f"current_setting('{name}')" for name in names)
        cursor.execute(f"SELECT {settings}, pg_is_in_recovery()")
        number, spelled, read_only, in_recovery = cursor.fetchone()
        if int(number) < OLDEST_VERSION:
            return f"{self.product} is version {spelled}; PostgreSQL 12 or later is needed"
        if in_recovery or read_only == "on":
            what = "a standby" if in_recovery else "read-only"
            return f"{self.product} is {what}: the ledger needs the primary; name it, or list all hosts in the URL"
        return None

    def insert_row(self, cursor: Cursor, table: Table, values: Mapping[str, Any]) -> bool:
        """Insert, and count."""
        return self.execute(cursor, insert(table).values(dict(values)).on_conflict_do_nothing()).rowcount == 1

    def insert_new(self, cursor: Cursor, sql: str, parameters: Parameters) -> int | None:
        """Insert, and let the statement tell the id."""
        cursor.execute(f"{sql} ON CONFLICT DO NOTHING RETURNING id", parameters)
        row = cursor.fetchone()
        return None if row is None else row[0]

    def insert_all_new(self, cursor: Any, sql: str, rows: Sequence[Sequence[Any]]) -> list[int | None]:
        """Insert them one by one, but without waiting for each answer."""
        if len(rows) < _FEW:
            return super().insert_all_new(cursor, sql, rows)
        cursor.executemany(f"{sql} ON CONFLICT DO NOTHING RETURNING id", rows, returning=True)
        ids: list[int | None] = []
        while True:
            row = cursor.fetchone()
            ids.append(None if row is None else row[0])
            if not cursor.nextset():
                return ids

    def big(self, sql: str) -> str:
        """Tell the type: a parameter may be NULL, and numbers come in three sizes."""
        return f"{sql}::bigint"

    def unless_there(self, table: str, key: str) -> str:
        """Return ON CONFLICT DO NOTHING."""
        return " ON CONFLICT DO NOTHING"


_LIMITS = ("statement_timeout", "lock_timeout")
_SILENCE = "idle_in_transaction_session_timeout"
# A plan that is kept was perhaps made when a table was empty, and reading all of it the cheapest way. And no plan of
# ours is worth compiling, which PostgreSQL before 18 would do once a way is discouraged.
_STEADY = (("enable_seqscan", "off"), ("jit", "off"), ("default_transaction_isolation", "read committed"))


def conninfo(url: LedgerUrl, timeout_s: float) -> dict[str, Any]:
    """Return what libpq wants to know. Several hosts are tried in turn until one takes writes."""
    limit_s = max(2, math.ceil(timeout_s))
    store = url.store
    known: dict[str, Any] = {
        "host": ",".join(host for host, _ in store.hosts) or None,
        "port": ",".join(str(port or 5432) for _, port in store.hosts) or None,
        "user": store.user,
        "password": store.password,
        "dbname": url.database or None,
        "target_session_attrs": "read-write" if len(store.hosts) > 1 else None,
        "application_name": "fencepost",
    }
    passed = {name: value for name, value in store.options.items() if name in PASSED_TO_LIBPQ}
    given = {name: value for name, value in (known | passed).items() if value is not None}
    return given | {
        "connect_timeout": limit_s,
        "keepalives_idle": limit_s,
        "keepalives_interval": limit_s,
        "keepalives_count": 3,
        "tcp_user_timeout": limit_s * 2000,
        "autocommit": True,
    }
