"""MySQL and MariaDB through PyMySQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Table, insert
from sqlalchemy.dialects.mysql.pymysql import dialect as mysql_words

from fencepost.ledger.dialects.dialect import Cursor, Dialect, Parameters
from fencepost.sql import mysql, pymysql_link
from fencepost.sql.spelling import SPELLING
from fencepost.sql.troubles import Trouble, first_line, trouble_of

_TYPES = {"int": "BIGINT", "float": "DOUBLE", "text": "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"}
_OLDEST_MYSQL = (8, 0)  # the first version with SKIP LOCKED
_OLDEST_MARIADB = (10, 6)  # the first version with SKIP LOCKED
_MADE_AT = """
SELECT UNIX_TIMESTAMP(CREATE_TIME) FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = %s
"""
_NEXT_ID = """
SELECT AUTO_INCREMENT FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s
"""
_USE_UP = """
INSERT INTO {} (id, job, type, state, ticks, params, params_hash, priority, queue, attempts, failures, crashes, token,
  created_at, available_at, generation)
VALUES (%s, '', '', 'cancelled', 0, '{{}}', '', 0, '', 0, 0, 0, 0, 0, 0, 0)
"""


class MysqlDialect(Dialect):
    """A ledger in a MySQL or MariaDB database. Keys are compared byte by byte, by the collation of the tables."""

    name = "mysql"
    deletes_with_limit = True
    counts_left_out = True
    errors = pymysql_link.ERRORS
    words = mysql_words()
    mark = "%s"
    spelling = SPELLING["mysql"]
    now_sql = mysql.NOW_US
    _kind: str | None = None  # the server's version in lower case, cached

    @property
    def product(self) -> str:
        return mysql.product(self.url.store)

    def dial(self, timeout_s: float | None = None) -> Any:
        """Connect and set the session settings that every connection needs."""
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        connection = pymysql_link.dial(self.url.store, limit_s)
        pymysql_link.greet(connection, timeout_s=limit_s, silence_s=min(limit_s, self.silence_s))
        return connection

    def begin(self, connection: Any, cursor: Cursor) -> None:
        cursor.execute("BEGIN")

    def own_refusal(self, trouble: Trouble, error: Exception) -> str | None:
        """Name the missing privileges."""
        if trouble is Trouble.FORBIDDEN:
            return (
                f"{self.product}: {first_line(error)}. Grant SELECT, INSERT, UPDATE, DELETE on the tables; to create "
                "them, run as a user that may CREATE, ALTER and INDEX: fencepost migrate"
            )
        return None

    def json_table(self, alias: str, columns: Mapping[str, str]) -> str:
        """Use JSON_TABLE."""
        chosen = ", ".join(
            f"{name} {_TYPES[kind]} PATH '$[{place}]'" for place, (name, kind) in enumerate(columns.items())
        )
        return f"JSON_TABLE(%s, '$[*]' COLUMNS (n FOR ORDINALITY, {chosen})) AS {alias}"

    def objection(self, cursor: Cursor) -> str | None:
        """Check the version (JSON_TABLE and SKIP LOCKED are needed), for read-only mode, and the binlog format."""
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
        """Insert, and catch the error for a duplicate: the meaning of row counts depends on settings of the client."""
        try:
            cursor.execute(*self.written(insert(table).values(dict(values))))
        except self.errors as error:
            if trouble_of(error) is not Trouble.DUPLICATE:
                raise
            return False
        return True

    def insert_new(self, cursor: Cursor, sql: str, parameters: Parameters) -> int | None:
        """Insert, and catch the error for a duplicate."""
        try:
            cursor.execute(sql, parameters)
        except self.errors as error:
            if trouble_of(error) is not Trouble.DUPLICATE or _is_primary(error):
                raise
            return None
        return int(cursor.lastrowid)

    def evidence(self, cursor: Cursor) -> dict[str, str]:
        """Return when the seal was created; see `Step.create_seal`. A replica has the same value."""
        if self._is_mariadb(cursor):
            cursor.execute(f"SELECT UNIX_TIMESTAMP(row_start) FROM {self.table('seal')}")  # noqa: S608 - a checked identifier
        else:
            cursor.execute(_MADE_AT, (self.table("seal"),))
        row = cursor.fetchone()
        return {} if row is None or row[0] is None else {"table": str(row[0])}

    def _is_mariadb(self, cursor: Cursor) -> bool:
        if self._kind is None:
            cursor.execute("SELECT VERSION()")
            self._kind = str(cursor.fetchone()[0]).lower()
        return "mariadb" in self._kind

    def top_id(self, cursor: Cursor) -> int | None:
        """Read the data dictionary, bypassing MySQL's cached statistics."""
        if not self._is_mariadb(cursor):
            cursor.execute("SET SESSION information_schema_stats_expiry = 0")
        cursor.execute(_NEXT_ID, (self.table("run"),))
        row = cursor.fetchone()
        return None if row is None or row[0] is None else int(row[0]) - 1

    def raise_ids(self, cursor: Cursor, to: int) -> None:
        """Insert a row with this id and delete it: InnoDB continues from the highest id. ALTER TABLE would commit."""
        if (self.top_id(cursor) or 0) >= to:
            return
        run = self.table("run")
        cursor.execute(_USE_UP.format(run), (to,))
        cursor.execute(f"DELETE FROM {run} WHERE id = %s", (to,))  # noqa: S608 - a checked identifier

    def unless_there(self, table: str, key: str, where: str = "") -> str:
        """Change nothing for a duplicate key. INSERT IGNORE would also ignore other errors."""
        return f" ON DUPLICATE KEY UPDATE {table}.{key} = {table}.{key}"


def _is_primary(error: BaseException) -> bool:
    """Whether the error is about a duplicate id: ``Duplicate entry '7' for key 'PRIMARY'``."""
    return "PRIMARY" in str(error.args[-1]).rpartition(" for key ")[2]


def _numbers(version: str) -> tuple[int, ...]:
    """Parse ``10.11.6-MariaDB-…`` or ``8.0.36``. Some proxies and clouds prefix MariaDB's version with ``5.5.5-``."""
    own = version.removeprefix("5.5.5-")
    return tuple(int(number) for number in re.findall(r"\d+", own)[:2])
