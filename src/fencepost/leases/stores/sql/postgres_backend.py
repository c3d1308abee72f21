# ruff: noqa: S608 - table names are checked identifiers (see options), all values are parameters
"""PostgreSQL as a `Backend`: connecting, recognising its errors, checking the server, making the tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import errors

from fencepost.core.runtime import Runtime
from fencepost.core.urls import PASSED_TO_LIBPQ, StoreUrl
from fencepost.errors import FencepostError, StoreRefused
from fencepost.leases.stores.sql import schema
from fencepost.leases.stores.sql.backend import Connection, Trouble, transaction, within
from fencepost.leases.stores.sql.options import Tables
from fencepost.leases.stores.sql.psycopg_connection import BoundedConnection, PsycopgConnection
from fencepost.leases.stores.sql.statements import Statements, Words, statements

OLDEST_VERSION = 120000

_NOW = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
WORDS = Words(now=_NOW, wall=_NOW, by_name='l.name COLLATE "C"')

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
_CONFLICTS = (errors.DeadlockDetected, errors.SerializationFailure)
_LATE = (errors.QueryCanceled, errors.LockNotAvailable, errors.IdleInTransactionSessionTimeout)


class PostgresBackend:
    """One PostgreSQL database."""

    driver_errors: tuple[type[Exception], ...] = (psycopg.Error,)

    def __init__(self, url: StoreUrl, tables: Tables, runtime: Runtime) -> None:
        self._runtime = runtime
        self._timeout_s = url.call_timeout_s
        self._conninfo = _conninfo(url)
        self._tables = tables
        self._inherited: list[Sequence[Connection]] = []
        self.channel = f"{tables.lease.replace('.', '_')}"[:60]
        self.product = f"PostgreSQL at {', '.join(host for host, _ in url.hosts) or 'the local socket'}"
        self.sql: Statements = statements(WORDS, tables)
        self.is_proxied = False

    def connect(self, timeout_s: float) -> PsycopgConnection:
        """Connect within `timeout_s`, look who is at the other end, and set the server's own time limits."""
        deadline = self._runtime.monotonic() + timeout_s
        raw = within(self._runtime, timeout_s, self._dial, _close)
        raw.clock = self._runtime.monotonic
        raw.deadline = deadline
        try:
            return self._greet(raw)
        except BaseException:
            raw.close()
            raise

    def dial_listening(self, timeout_s: float) -> psycopg.Connection[Any]:
        """Return an ordinary connection that listens to the channel of this store."""

        def dial() -> psycopg.Connection[Any]:
            raw = psycopg.Connection.connect(**self._conninfo)
            raw.execute(f'LISTEN "{self.channel}"')
            return raw

        return within(self._runtime, timeout_s, dial, _close)

    def trouble(self, error: Exception) -> Trouble:
        """Tell a broken connection from a conflict and from a refusal."""
        if isinstance(error, _CONFLICTS):
            return Trouble.CONFLICT
        if isinstance(error, _LATE):
            return Trouble.LATE
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return Trouble.BROKEN
        return Trouble.OTHER

    def refusal(self, error: Exception) -> FencepostError | None:
        """Recognise what time will not mend."""
        text = str(error).strip().splitlines()
        if isinstance(error, errors.UndefinedColumn):
            return StoreRefused(f"{self.product}: the tables {self._tables.lease}… are of another version: {text[0]}")
        if isinstance(error, errors.SyntaxError) and "." in self._tables.lease:
            schema_name = self._tables.lease.partition(".")[0]
            return StoreRefused(f"schema={schema_name} is a word of SQL, which cannot stand there; name another")
        if isinstance(error, psycopg.OperationalError) and any(said in str(error) for said in _SAID_NO):
            return StoreRefused(f"{self.product} refuses the connection: {text[-1]}")
        if isinstance(error, errors.InsufficientPrivilege | errors.InvalidSchemaName):
            return StoreRefused(
                f"{self.product}: {text[0]}. Grant SELECT, INSERT, UPDATE, DELETE on the tables, or, if they are not "
                f"there yet, let an administrator run:\n{schema.text(self.ddl())}"
            )
        return None

    def ddl(self) -> tuple[str, ...]:
        """Return the statements that make the tables."""
        return schema.postgres(self._tables)

    def prepare(self, connection: Connection) -> tuple[str, ...]:
        """Check the server, then the tables."""
        assert isinstance(connection, PsycopgConnection)  # noqa: S101 - for the type checker
        self.is_proxied = connection.is_proxied
        warnings = self._inspect(connection)
        self._ensure_tables(connection)
        return warnings

    def announce(self, connection: Connection, names: Sequence[str]) -> None:
        """Notify the listeners of all processes."""
        connection.rows("SELECT pg_notify(%s, name) FROM unnest(%s::text[]) name", (self.channel, list(names)))

    def forget(self, idle: Sequence[Connection], *, in_use: int) -> None:
        """Keep the parent's connections, unused, so that nothing closes them."""
        self._inherited.append(idle)

    def _dial(self) -> BoundedConnection:
        return BoundedConnection.connect(**self._conninfo)

    def _greet(self, raw: BoundedConnection) -> PsycopgConnection:
        # A proxy makes up the process id it announces at connecting; the server's own answer is true.
        row = raw.execute("SELECT pg_backend_pid()").fetchone()
        is_proxied = row is None or row[0] != raw.info.backend_pid
        limits = self._limits()
        if is_proxied:
            # What is set or prepared on a pooled connection may reach others, or not be there the next time.
            raw.prepare_threshold = None
        else:
            settings = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in limits)
            raw.execute(f"SELECT {settings}")
        local = "".join(f"; SET LOCAL {name} = {value}" for name, value in limits) if is_proxied else ""
        end_sql = _end_sql(self.sql.end, self._tables)
        return PsycopgConnection(raw, end_sql=end_sql, begin_sql=f"BEGIN{local}", is_proxied=is_proxied)

    def _limits(self) -> list[tuple[str, int]]:
        """Return the server's own limits: an abandoned statement or transaction must not hold locks for long."""
        limit_ms = math.ceil(self._timeout_s * 1000)
        names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        return [(name, limit_ms) for name in names]

    def _inspect(self, connection: PsycopgConnection) -> tuple[str, ...]:
        settings = ("server_version_num", "transaction_read_only", "synchronous_commit", "fsync", "server_version")
        columns = ", ".join(f"current_setting('{name}')" for name in settings)
        [(version, read_only, synchronous, fsync, spelled, in_recovery)] = connection.rows(
            f"SELECT {columns}, pg_is_in_recovery()"
        )
        if int(version) < OLDEST_VERSION:
            raise StoreRefused(f"{self.product} is version {spelled}; PostgreSQL 12 or later is needed")
        if in_recovery or read_only == "on":
            what = "a standby" if in_recovery else "read-only"
            raise StoreRefused(
                f"{self.product} is {what}: leases need the primary; name it, or list all hosts in the URL"
            )
        return _reservations(self.product, synchronous, fsync)

    def _ensure_tables(self, connection: Connection) -> None:
        """Use the tables; make them only if they are not there, one process at a time."""
        try:
            self._touch(connection)
        except errors.UndefinedTable:
            with transaction(connection):
                connection.rows("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self._tables.lease,))
                for statement in self.ddl():
                    connection.change(statement)
            self._touch(connection)

    def _touch(self, connection: Connection) -> None:
        connection.rows(f"{self.sql.look} LIMIT 0", ("",))
        connection.rows(self.sql.history, (0,))
        connection.rows(f"SELECT waiting_until FROM {self._tables.lease} LIMIT 0")
        connection.rows(f"SELECT holder, ttl_us, opened_at FROM {self._tables.session} LIMIT 0")


def _reservations(product: str, synchronous_commit: str, fsync: str) -> tuple[str, ...]:
    sentences = []
    if synchronous_commit == "off":
        sentences.append(
            f"{product} has synchronous_commit=off: a crash of the server may forget grants of the last moments, and "
            f"two may hold one lock; set it to on for this database or user"
        )
    if fsync == "off":
        sentences.append(f"{product} has fsync=off: a crash of its machine may forget grants or damage the database")
    return tuple(sentences)


def _end_sql(ended: str, tables: Tables) -> str:
    """Return the statement that ends a grant, records it, and says whether somebody waits."""
    return (
        f"WITH ended AS ({ended} RETURNING name, holder, token, acquired_at, waiting_until), "
        f"past AS (INSERT INTO {tables.history} (name, holder, token, acquired_at, ended_at, why) "
        f"SELECT name, holder, token, acquired_at, {_NOW}, %s FROM ended) "
        f"SELECT waiting_until > {_NOW} FROM ended"
    )


def _conninfo(url: StoreUrl) -> dict[str, Any]:
    """Return what libpq wants to know. Several hosts are tried in turn until one takes writes."""
    limit_s = max(2, math.ceil(url.call_timeout_s))
    known: dict[str, Any] = {
        "host": ",".join(host for host, _ in url.hosts) or None,
        "port": ",".join(str(port or 5432) for _, port in url.hosts) or None,
        "user": url.user,
        "password": url.password,
        "dbname": url.path.strip("/") or None,
        "target_session_attrs": "read-write" if len(url.hosts) > 1 else None,
        "application_name": "fencepost",
    }
    passed = {name: value for name, value in url.options.items() if name in PASSED_TO_LIBPQ}
    given = {name: value for name, value in (known | passed).items() if value is not None}
    return given | {
        "connect_timeout": limit_s,
        "keepalives_idle": limit_s,
        "keepalives_interval": limit_s,
        "keepalives_count": 3,
        "tcp_user_timeout": limit_s * 2000,
        "autocommit": True,
    }


def _close(raw: psycopg.Connection[Any]) -> None:
    raw.close()
