"""The column types of our tables, equivalent on all databases.

Instants are whole microseconds since 1970 in UTC. JSON is stored as text, because only Python writes and reads it. Keys
are compared byte by byte, in the same order in every database and in Python.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import VARCHAR, BigInteger, Column, Identity, Integer, String, Text
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.types import TypeEngine

from fencepost.core.identity import LONGEST_KEY, LONGEST_NAME

JOB_LENGTH = LONGEST_NAME  # to change it takes a migration; what is longer is refused before it gets here
KEY_LENGTH = LONGEST_KEY  # this, too: the longest that MySQL indexes
MYSQL_KINDS = ("mysql", "mariadb")
# Leaves room on each page, so that the next version of a frequently updated row fits on the same page.
STAYS = {"fillfactor": 70}
TABLE_OPTIONS: dict[str, Any] = {
    f"{kind}_{option}": value
    for kind in MYSQL_KINDS
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "collate": "utf8mb4_bin"}.items()
}


def key(length: int) -> TypeEngine[str]:
    """Return the type of a text that is compared byte by byte (on MySQL by the table's collation)."""
    return String(length).with_variant(VARCHAR(length, collation="C"), "postgresql")


def text() -> TypeEngine[str]:
    """Return the type of a text of any length."""
    return Text().with_variant(LONGTEXT(), *MYSQL_KINDS)


def number() -> TypeEngine[int]:
    """Return the type of an eight-byte integer."""
    return BigInteger()


def identity() -> Column[int]:
    """Return the column of ids that the database generates."""
    return Column("id", BigInteger().with_variant(Integer(), "sqlite"), Identity(always=False), primary_key=True)
