# ruff: noqa: S608 - table names are checked identifiers (see options), all values are parameters
"""PostgreSQL as a `Backend`: connects, classifies errors, checks the server, creates the tables."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.core.runtime import Runtime
from fencepost.core.urls import StoreUrl
from fencepost.errors import FencepostError, StoreRefused
from fencepost.leases.stores.sql import schema
from fencepost.leases.stores.sql.backend import LeaseConnection, ensure_tables, transaction, within
from fencepost.leases.stores.sql.options import LeaseTables
from fencepost.leases.stores.sql.psycopg_connection import PsycopgConnection
from fencepost.leases.stores.sql.statements import Statements, Words, statements
from fencepost.schema.sequences import advance_sql, advice, behind, lock_sql, look_sql
from fencepost.sql import postgres, psycopg_link
from fencepost.sql.parents import leave_to_parent
from fencepost.sql.postgres import NOW_US
from fencepost.sql.psycopg_channel import Channel
from fencepost.sql.psycopg_link import BoundedPsycopg
from fencepost.sql.troubles import Trouble, trouble_of

WORDS = Words(
    now=NOW_US, wall=NOW_US, by_name='l.name COLLATE "C"', is_waited_for=f"coalesce(l.waiting_until > {NOW_US}, false)"
)


def channel_of(tables: LeaseTables) -> str:
    """Return the channel on which waiters are notified."""
    return tables.lease.replace(".", "_")[:60]


class PostgresBackend:
    """One PostgreSQL database."""

    is_file = False
    driver_errors = psycopg_link.ERRORS

    def __init__(self, url: StoreUrl, tables: LeaseTables, runtime: Runtime) -> None:
        self._runtime = runtime
        self._timeout_s = url.call_timeout_s
        self._url = url
        self._tables = tables
        self.channel = channel_of(tables)
        self.product = postgres.product(url)
        self.sql: Statements = statements(WORDS, tables)
        self.is_proxied = False

    def connect(self, timeout_s: float) -> PsycopgConnection:
        """Connect within `timeout_s`, check whether there is a pooler, and set the server's own time limits."""
        deadline = self._runtime.monotonic() + timeout_s
        raw = within(self._runtime, timeout_s, self._dial, BoundedPsycopg.close)
        raw.limit_call(deadline)
        psycopg_link.greet(raw, postgres.limit_settings(self._timeout_s, self._timeout_s), ())
        return PsycopgConnection(raw, end_sql=_end_sql(self.sql.end, self._tables))

    def dial_listening(self, timeout_s: float) -> Channel:
        """Return a connection that listens to the channel of this store."""

        def dial() -> Channel:
            raw = self._dial()
            raw.statement_s = self._timeout_s
            return Channel(raw, self.channel)

        return within(self._runtime, timeout_s, dial, Channel.close)

    def refusal(self, error: Exception) -> FencepostError | None:
        """Return the refusal for an error that a retry cannot resolve."""
        text = str(error).strip().splitlines()
        trouble = trouble_of(error)
        if trouble is Trouble.NO_COLUMN:
            return StoreRefused(f"{self.product}: the tables {self._tables.lease}… are of another version: {text[0]}")
        if psycopg_link.is_syntax_error(error) and "." in self._tables.lease:
            schema_name = self._tables.lease.partition(".")[0]
            return StoreRefused(f"schema={schema_name} is a reserved word of SQL; use another name")
        if trouble in (Trouble.NO_ENTRY, Trouble.NO_DATABASE):
            return StoreRefused(f"{self.product} refuses the connection: {text[-1]}")
        if trouble in (Trouble.FORBIDDEN, Trouble.NO_SCHEMA):
            return StoreRefused(
                f"{self.product}: {text[0]}. Grant SELECT, INSERT, UPDATE, DELETE on the tables, or, if they are not "
                f"there yet, let an administrator run:\n{schema.text(self.ddl())}"
            )
        return None

    def ddl(self) -> tuple[str, ...]:
        """Return the statements that create the tables."""
        return schema.postgres(self._tables)

    def prepare(self, connection: LeaseConnection) -> tuple[str, ...]:
        """Check the server, then the tables."""
        assert isinstance(connection, PsycopgConnection)  # noqa: S101 - for the type checker
        self.is_proxied = connection.is_proxied
        warnings = self._inspect(connection)
        ensure_tables(connection, self.driver_errors, touch=self._touch, create=self._create_tables)
        self._advance_sequence(connection)
        return warnings

    def announce(self, connection: LeaseConnection, names: Sequence[str]) -> None:
        """Notify the listeners of all processes."""
        connection.rows("SELECT pg_notify(%s, name) FROM unnest(%s::text[]) name", (self.channel, list(names)))

    def forget(self, idle: Sequence[LeaseConnection], *, in_use: int) -> None:
        """Keep the parent's connections, unused, so that they are not closed."""
        leave_to_parent(idle)

    def _dial(self) -> BoundedPsycopg:
        return psycopg_link.dial(self._url, self._timeout_s, clock=self._runtime.monotonic)

    def _inspect(self, connection: PsycopgConnection) -> tuple[str, ...]:
        server = postgres.ServerFacts(*connection.rows(postgres.SERVER_SQL)[0])
        if (objection := server.objection(self.product, who_needs_it="leases need")) is not None:
            raise StoreRefused(objection)
        return _reservations(self.product, server.synchronous_commit, server.fsync)

    def _create_tables(self, connection: LeaseConnection) -> None:
        """Create the tables, one process at a time."""
        with transaction(connection):
            connection.rows("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self._tables.lease,))
            for statement in self.ddl():
                connection.change(statement)

    def _advance_sequence(self, connection: LeaseConnection) -> None:
        """Advance the ids of the history past its end: otherwise no grant could end, because its end is recorded."""
        table = self._tables.history
        found = behind(table, connection.rows(look_sql(table))[0])
        if found is None:
            return
        try:
            with transaction(connection):
                connection.change(lock_sql(table))
                if behind(table, connection.rows(look_sql(table))[0]) is not None:
                    connection.rows(advance_sql(table))
        except self.driver_errors as error:
            if trouble_of(error) is not Trouble.FORBIDDEN:
                raise
            raise StoreRefused(f"{self.product}: {found}: {advice(table)}") from error

    def _touch(self, connection: LeaseConnection) -> None:
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


def _end_sql(ended: str, tables: LeaseTables) -> str:
    """Return the statement that ends a grant, records it, and returns whether there are waiters."""
    return (
        f"WITH ended AS ({ended} RETURNING name, holder, token, acquired_at, waiting_until), "
        f"past AS (INSERT INTO {tables.history} (name, holder, token, acquired_at, ended_at, why) "
        f"SELECT name, holder, token, acquired_at, {NOW_US}, %s FROM ended) "
        f"SELECT waiting_until > {NOW_US} FROM ended"
    )
