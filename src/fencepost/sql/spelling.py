"""The few words of SQL in which PostgreSQL, MySQL or MariaDB, and SQLite differ for everybody who writes statements.

What only one part of the package needs stands with that part: the hot statements of the ledger, those of lease stores.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.sql import mysql, postgres


@dataclass(frozen=True, slots=True)
class Spelling:
    """How one database spells what all of them can do."""

    now_us: str | None  # its clock in µs; None if it has none, and the time of this machine is passed as a value
    key: str = "key"  # the column of that name, which is a word of MySQL's own
    for_update: str = " FOR UPDATE"
    skip_locked: str = " FOR UPDATE SKIP LOCKED"
    share: str = " FOR SHARE"
    past_snapshot: str = ""  # added to a SELECT that must see what was committed since its transaction began
    has_insert_ignore: bool = False

    def insert_if_absent(self, into: str) -> str:
        """Return the INSERT of a row that is left out if one with its key is there. `into` is what follows INSERT."""
        return f"INSERT IGNORE {into}" if self.has_insert_ignore else f"INSERT {into} ON CONFLICT DO NOTHING"


_SHARE_MODE = " LOCK IN SHARE MODE"  # MariaDB knows no other words for it
_MYSQL = Spelling(mysql.NOW_US, key="`key`", share=_SHARE_MODE, past_snapshot=_SHARE_MODE, has_insert_ignore=True)

SPELLING: dict[str, Spelling] = {
    "postgresql": Spelling(postgres.NOW_US),
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "sqlite": Spelling(None, for_update="", skip_locked="", share=""),  # there is one writer at a time
}
"""By kind, as URLs and SQLAlchemy name them."""
