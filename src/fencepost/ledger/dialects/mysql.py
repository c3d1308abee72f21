"""MySQL and MariaDB through PyMySQL."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import CLIENT, CR, ER
from pymysql.cursors import Cursor as PlainCursor
from sqlalchemy import BigInteger, ColumnElement, Table, insert, literal_column
from sqlalchemy.dialects.mysql.pymysql import dialect as mysql_words

from fencepost.core.shared_tls import SharedTls
from fencepost.core.urls import PASSED_TO_PYMYSQL
from fencepost.ledger.dialects.dialect import Cursor, Dialect, Parameters, Trouble, first_line
from fencepost.ledger.urls import LedgerUrl

_NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"
_TYPES = {"int": "BIGINT", "float": "DOUBLE", "text": "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"}
_OLDEST_MYSQL = (8, 0)
_OLDEST_MARIADB = (10, 6)
_IDLE_S = 600
_LEAST_IDLE_S = 10
_RECORD_CHANGED = 1020
_CONFLICTS = frozenset((ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT, _RECORD_CHANGED))
_GONE = frozenset((0, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, CR.CR_CONN_HOST_ERROR, ER.SERVER_SHUTDOWN))
_KILLED = frozenset((1927, 4031, 3169))  # killed, closed for being idle (MySQL), session killed
_SAID_NO = frozenset((ER.ACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR, ER.BAD_DB_ERROR, 1698, 1130, 1862))
_LACKS_RIGHTS = frozenset((ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR, ER.SPECIFIC_ACCESS_DENIED_ERROR))
_LACKS_TABLES = frozenset((ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR))


if TYPE_CHECKING:
    _Base = pymysql.connections.Connection[PlainCursor]  # generic only to type checkers
else:
    _Base = pymysql.connections.Connection


class SharingConnection(SharedTls, _Base):
    """A connection that is made quickly."""


class MysqlDialect(Dialect):
    """A ledger in a MySQL or MariaDB database. Keys are compared byte by byte, by the tables' collation."""

    name = "mysql"
    # By this name: beside Django, with `pymysql.install_as_MySQLdb()`, `pymysql.err` becomes a copy that nobody raises.
    errors = (pymysql.MySQLError,)
    words = mysql_words()
    mark = "%s"
    share = " LOCK IN SHARE MODE"  # understood by both
    now_sql = _NOW

    @property
    def product(self) -> str:
        """The server."""
        kind = "MariaDB" if self.url.store.scheme.startswith("mariadb") else "MySQL"
        return f"{kind} at {self.url.store.hosts[0][0] if self.url.store.hosts else 'localhost'}"

    def now(self) -> ColumnElement[int]:
        """Return the server's time at the statement's begin."""
        return literal_column(_NOW, BigInteger())

    def dial(self, timeout_s: float | None = None) -> Any:
        """Connect and set what every connection needs."""
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        connection = SharingConnection(**login(self.url, limit_s))
        try:
            with connection.cursor() as cursor:
                for setting in _settings(connection, limit_s, silence_s=min(limit_s, self.silence_s)):
                    cursor.execute(setting)
        except BaseException:
            connection.close()
            raise
        return connection

    def begin(self, connection: Any, cursor: Cursor) -> None:
        """Begin."""
        cursor.execute("BEGIN")

    def trouble(self, error: Exception) -> Trouble:
        """Tell a broken connection from a silent one, a conflict and a refusal."""
        code = _code(error)
        if isinstance(error.__context__, TimeoutError):
            return Trouble.LATE
        if code in _CONFLICTS:
            return Trouble.CONFLICT
        if code in _GONE or code in _KILLED:
            return Trouble.BROKEN
        is_refused = isinstance(error, pymysql.ProgrammingError | pymysql.IntegrityError | pymysql.DataError)
        is_refused = is_refused or code in _SAID_NO or code in _LACKS_RIGHTS or code in _LACKS_TABLES
        return Trouble.REFUSED if is_refused else Trouble.OTHER

    def lacks_tables(self, error: BaseException | None) -> bool:
        """Whether a table or a column is not there."""
        return error is not None and _code(error) in _LACKS_TABLES

    def refusal(self, error: Exception) -> str:
        """Say what an operator must mend."""
        if self.lacks_tables(error):
            return f"{self.product} lacks what the ledger needs ({first_line(error)}): run: fencepost migrate"
        if _code(error) in _LACKS_RIGHTS:
            return (
                f"{self.product}: {first_line(error)}. Grant SELECT, INSERT, UPDATE, DELETE on the tables; to make "
                "them, let somebody who may CREATE, ALTER and INDEX run: fencepost migrate"
            )
        return f"{self.product} refuses: {first_line(error)}"

    def json_table(self, alias: str, columns: Mapping[str, str]) -> str:
        """Take the list apart with JSON_TABLE."""
        chosen = ", ".join(
            f"{name} {_TYPES[kind]} PATH '$[{place}]'" for place, (name, kind) in enumerate(columns.items())
        )
        return f"JSON_TABLE(%s, '$[*]' COLUMNS (n FOR ORDINALITY, {chosen})) AS {alias}"

    def objection(self, cursor: Cursor) -> str | None:
        """Look at the version (JSON_TABLE and SKIP LOCKED are needed), and whether it takes writes."""
        cursor.execute("SELECT VERSION(), @@global.read_only, @@global.log_bin, @@global.binlog_format")
        version, read_only, has_log, log_format = cursor.fetchone()
        oldest = _OLDEST_MARIADB if "mariadb" in version.lower() else _OLDEST_MYSQL
        if _numbers(version) < oldest:
            return f"{self.product} is version {version}; MySQL 8.0 or MariaDB 10.6 or later is needed"
        if read_only:
            return f"{self.product} is read-only: the ledger needs the primary"
        if has_log and log_format == "STATEMENT":
            return f"{self.product} has binlog_format=STATEMENT; READ COMMITTED needs ROW or MIXED"
        return None

    def insert_row(self, cursor: Cursor, table: Table, values: Mapping[str, Any]) -> bool:
        """Insert, and see whether it fails: what a client may have set decides how else to tell old from new."""
        sql, parameters = self.written(insert(table).values(dict(values)))
        return self.insert_new(cursor, sql, parameters) is not None

    def insert_new(self, cursor: Cursor, sql: str, parameters: Parameters) -> int | None:
        """Insert, and see whether it fails."""
        try:
            cursor.execute(sql, parameters)
        except pymysql.IntegrityError as error:
            if _code(error) != ER.DUP_ENTRY:
                raise
            return None
        return int(cursor.lastrowid)

    def unless_there(self, table: str, key: str) -> str:
        """Change nothing where a key is there. INSERT IGNORE would swallow other errors, too."""
        return f" ON DUPLICATE KEY UPDATE {table}.{key} = {table}.{key}"


def _settings(connection: Any, timeout_s: float, *, silence_s: float) -> list[str]:
    """Return what every connection sets. A client that falls silent is cut off, and its transaction rolled back.

    Also one that has only locked so far, which to MariaDB is no "write transaction". MySQL can only cut off whoever is
    silent, in a transaction or not; between two of them that is not for long, and a connection is opened anew.
    """
    is_mariadb = "MariaDB" in str(getattr(connection, "server_version", ""))
    settings = {
        "innodb_lock_wait_timeout": max(1, math.floor(timeout_s)),
        "wait_timeout": _IDLE_S if is_mariadb else max(math.ceil(silence_s), _LEAST_IDLE_S),
        "sql_mode": "'STRICT_ALL_TABLES'",
        **({"idle_transaction_timeout": max(math.ceil(silence_s), 1)} if is_mariadb else {}),
    }
    spelled = ", ".join(f"{name} = {value}" for name, value in settings.items())
    return ["SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", f"SET SESSION {spelled}"]


def _numbers(version: str) -> tuple[int, ...]:
    """Read ``10.11.6-MariaDB-…`` or ``8.0.36``; some proxies and clouds write ``5.5.5-`` before MariaDB's own."""
    own = version.removeprefix("5.5.5-")
    return tuple(int(number) for number in re.findall(r"\d+", own)[:2])


def _code(error: BaseException) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else -1


def login(url: LedgerUrl, timeout_s: float) -> dict[str, Any]:
    """Return what PyMySQL wants to know."""
    store = url.store
    host, port = store.hosts[0] if store.hosts else ("localhost", None)
    passed: dict[str, Any] = {name: value for name, value in store.options.items() if name in PASSED_TO_PYMYSQL}
    if "ssl_ca" in passed:
        passed |= {"ssl_verify_cert": True, "ssl_verify_identity": True}
    limit_s = max(timeout_s, 0.001)
    limits = {"connect_timeout": limit_s, "read_timeout": limit_s, "write_timeout": limit_s}
    return {
        "host": host,
        "port": port or 3306,
        "user": store.user,
        "password": store.password or "",
        "database": url.database,
        "charset": "utf8mb4",
        "collation": "utf8mb4_bin",
        "autocommit": True,
        "client_flag": CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS,
        **limits,
        **passed,
    }
