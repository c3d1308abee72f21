# ruff: noqa: S608 - table names are checked identifiers (see options), all values are parameters
"""MySQL and MariaDB as a `Backend`: connects, classifies errors, checks the server, creates the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost.core.runtime import Runtime
from fencepost.core.urls import StoreUrl
from fencepost.errors import FencepostError, InvalidUrl, StoreRefused, UnsafeStore
from fencepost.leases.stores.sql import schema
from fencepost.leases.stores.sql.backend import LeaseConnection, ensure_tables, within
from fencepost.leases.stores.sql.options import LeaseTables
from fencepost.leases.stores.sql.pymysql_connection import PymysqlConnection
from fencepost.leases.stores.sql.statements import Statements, Words, statements
from fencepost.sql import mysql, pymysql_link
from fencepost.sql.mysql import NOW_US
from fencepost.sql.parents import leave_to_parent
from fencepost.sql.pymysql_link import BoundedPyMySQL
from fencepost.sql.troubles import Trouble, first_line, trouble_of

_LEAST_LIMIT_S = 0.001  # PyMySQL treats zero as no limit
GALERA = "galera"
MULTI_PRIMARY = "multi-primary"

WORDS = Words(
    now=NOW_US,
    wall=NOW_US,
    big="UNSIGNED",
    returning="",
    noted=lambda expression: f"LAST_INSERT_ID({expression})",
    unless_there="",
)


class MysqlBackend:
    """One database on one server."""

    is_file = False
    driver_errors = pymysql_link.ERRORS

    def __init__(self, url: StoreUrl, tables: LeaseTables, runtime: Runtime) -> None:
        self._runtime = runtime
        self._timeout_s = url.call_timeout_s
        self._accepted = url.accepted_risks()
        _check_place(url)
        self._url = url
        self._tables = tables
        self.sql: Statements = statements(WORDS, tables)
        self.product = mysql.product(url)

    def connect(self, timeout_s: float) -> PymysqlConnection:
        """Connect within `timeout_s` and apply the session settings."""
        deadline = self._runtime.monotonic() + timeout_s
        raw = within(self._runtime, timeout_s, lambda: pymysql_link.dial(self._url, timeout_s), BoundedPyMySQL.close)
        raw.limit(max(deadline - self._runtime.monotonic(), _LEAST_LIMIT_S))
        pymysql_link.greet(raw, timeout_s=self._timeout_s, silence_s=self._timeout_s)
        connection = self._wrapped(raw)
        connection.deadline = deadline
        return connection

    def _wrapped(self, raw: BoundedPyMySQL) -> PymysqlConnection:
        """Choose how to end a grant, and which statements to prepare: only MariaDB executes them with values."""
        clock, ended, past = self._runtime.monotonic, self.sql.end, self.sql.past
        if not raw.is_mariadb:
            return PymysqlConnection(raw, clock=clock, end_sql=_end_sql(ended, past))
        end_sql = _end_sql_mariadb(ended, past)
        return PymysqlConnection(raw, clock=clock, end_sql=end_sql, prepares=frozenset((self.sql.take, end_sql)))

    def refusal(self, error: Exception) -> FencepostError | None:
        """Return the refusal for an error that a retry cannot resolve."""
        trouble = trouble_of(error)
        if trouble is Trouble.NO_COLUMN:
            return StoreRefused(f"{self.product}: the tables are of another version: {first_line(error)}")
        if trouble is Trouble.FORBIDDEN:
            return StoreRefused(
                f"{self.product}: {first_line(error)}. Grant SELECT, INSERT, UPDATE, DELETE on the tables, or, if they "
                f"are not there yet, let an administrator run:\n{schema.text(schema.mysql(self._tables))}"
            )
        is_locked_out = trouble in (Trouble.NO_ENTRY, Trouble.NO_DATABASE)
        return StoreRefused(f"{self.product} refuses: {first_line(error)}") if is_locked_out else None

    def prepare(self, connection: LeaseConnection) -> tuple[str, ...]:
        """Check the server, then the tables."""
        variables: dict[str, str] = dict(connection.rows(_VARIABLES))
        warnings = (*self._check_cluster(variables), *self._check_server(variables))
        ensure_tables(connection, self.driver_errors, touch=self._touch, create=self._create_tables)
        self._check_engine(connection)
        self._check_keys(connection)
        return warnings

    def announce(self, connection: LeaseConnection, names: Sequence[str]) -> None:
        """Nothing to do, because waiters poll."""

    def forget(self, idle: Sequence[LeaseConnection], *, in_use: int) -> None:
        """Keep the parent's connections, unused, so that they are not closed."""
        leave_to_parent(idle)

    def _check_cluster(self, variables: Mapping[str, str]) -> tuple[str, ...]:
        """Refuse clusters in which several nodes accept writes."""
        warnings = []
        if variables.get("wsrep_on") == "ON":
            sentence = (
                f"{self.product} is a node of a Galera cluster: row locks hold on one node only, and two nodes may "
                "give out one lock until certification refuses one of them; that is not tested here"
            )
            warnings.append(self._risk(GALERA, sentence))
        is_group = variables.get("group_replication_group_name", "")
        if is_group and variables.get("group_replication_single_primary_mode") == "OFF":
            sentence = f"{self.product} is a node of a multi-primary group: row locks hold on one node only"
            warnings.append(self._risk(MULTI_PRIMARY, sentence))
        return tuple(warnings)

    def _risk(self, risk: str, sentence: str) -> str:
        if risk not in self._accepted:
            raise UnsafeStore(risk, sentence)
        return sentence

    def _check_server(self, variables: Mapping[str, str]) -> tuple[str, ...]:
        if "ON" in (variables.get("read_only"), variables.get("super_read_only")):
            raise StoreRefused(f"{self.product} is read-only: leases need the primary")
        if variables.get("log_bin") == "ON" and variables.get("binlog_format") == "STATEMENT":
            raise StoreRefused(f"{self.product} has binlog_format=STATEMENT; READ COMMITTED needs ROW or MIXED")
        if variables.get("innodb_flush_log_at_trx_commit") != "1":
            return (
                f"{self.product} has innodb_flush_log_at_trx_commit="
                f"{variables.get('innodb_flush_log_at_trx_commit')}: a crash may forget grants of the last second, "
                "and two may hold one lock; set it to 1",
            )
        return ()

    def _create_tables(self, connection: LeaseConnection) -> None:
        for statement in schema.mysql(self._tables):
            connection.change(statement)

    def _touch(self, connection: LeaseConnection) -> None:
        connection.rows(self.sql.look, ("",))
        connection.rows(self.sql.history, (0,))
        connection.rows(f"SELECT holder, ttl_us, opened_at FROM {self._tables.session} LIMIT 0")

    def _check_keys(self, connection: LeaseConnection) -> None:
        """Refuse a copy of the tables without primary keys: only these prevent two first grants of a name."""
        for table, key in ((self._tables.lease, "name"), (self._tables.session, "id")):
            columns = connection.rows(
                "SELECT column_name FROM information_schema.statistics "
                "WHERE table_schema = DATABASE() AND table_name = %s AND index_name = 'PRIMARY'",
                (table,),
            )
            if columns != [(key,)]:
                raise StoreRefused(
                    f"{self.product}: the primary key of table {table} is not {key}, and without it a lock may have "
                    f"two holders; drop the table, and it is created again"
                )

    def _check_engine(self, connection: LeaseConnection) -> None:
        names = (self._tables.session, self._tables.lease, self._tables.history)
        for name, engine in connection.rows(
            "SELECT table_name, engine FROM information_schema.tables "
            "WHERE table_schema = DATABASE() AND table_name IN (%s, %s, %s)",
            names,
        ):
            if engine != "InnoDB":
                raise StoreRefused(
                    f"{self.product}: table {name} uses {engine}, which has no transactions; "
                    f"run: ALTER TABLE {name} ENGINE=InnoDB"
                )


_VARIABLES = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'read_only', 'super_read_only', 'log_bin', "
    "'binlog_format', 'innodb_flush_log_at_trx_commit', 'group_replication_group_name', "
    "'group_replication_single_primary_mode')"
)


def _end_sql(ended: str, past: str) -> str:
    """Return the transaction that ends a grant and, only if it did, records it: one packet, four results."""
    return f"BEGIN; {ended}; {past} WHERE name = %s AND ROW_COUNT() = 1; COMMIT"


def _end_sql_mariadb(ended: str, past: str) -> str:
    """Return the same as one compound statement, which MySQL does not support: one result, a fifth faster."""
    recorded = f"IF ROW_COUNT() = 1 THEN {past} WHERE name = %s; END IF"
    return f"BEGIN NOT ATOMIC START TRANSACTION; {ended}; {recorded}; COMMIT; END"


def _check_place(url: StoreUrl) -> None:
    if len(url.hosts) > 1:
        raise InvalidUrl(f"{url.scheme}:// takes one host; let a proxy or a virtual address lead to the primary")
    if not url.path.strip("/"):
        raise InvalidUrl(f"{url.scheme}:// needs a database: {url.scheme}://user@host/database")
