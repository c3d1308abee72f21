"""The SQL that PostgreSQL, MySQL or MariaDB, and SQLite write differently and that several packages need.

Statements that only one package needs are in that package: those of the ledger, and those of lease stores.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.sql import mysql, postgres


@dataclass(frozen=True, slots=True)
class Spelling:
    """How one database writes what all of them support."""

    now_us: str | None  # its clock in µs; None if it has none, and this machine's time is passed as a value
    key: str = "key"  # the column of that name, which is a reserved word in MySQL
    for_update: str = " FOR UPDATE"
    skip_locked: str = " FOR UPDATE SKIP LOCKED"
    share: str = " FOR SHARE"
    past_snapshot: str = ""  # added to a SELECT that must see rows committed since its transaction began
    has_insert_ignore: bool = False

    def insert_if_absent(self, into: str) -> str:
        """Return an INSERT that does nothing if a row with the same key exists. `into` is the SQL after INSERT."""
        return f"INSERT IGNORE {into}" if self.has_insert_ignore else f"INSERT {into} ON CONFLICT DO NOTHING"


_SHARE_MODE = " LOCK IN SHARE MODE"  # MariaDB has no other syntax for it
_MYSQL = Spelling(mysql.NOW_US, key="`key`", share=_SHARE_MODE, past_snapshot=_SHARE_MODE, has_insert_ignore=True)

SPELLING: dict[str, Spelling] = {
    "postgresql": Spelling(postgres.NOW_US),
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "sqlite": Spelling(None, for_update="", skip_locked="", share=""),  # SQLite has one writer at a time
}
"""By kind of database, as named in URLs and by SQLAlchemy."""
