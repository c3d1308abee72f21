"""The kinds of columns that our tables are made of, alike on all databases.

Instants are whole microseconds since 1970 in UTC. JSON is kept as text: it is made and read by Python alone. Keys are
compared byte by byte, in the same order by every database and by Python.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import VARCHAR, BigInteger, Column, Identity, Integer, String, Text
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.types import TypeEngine

JOB_LENGTH = 120
KEY_LENGTH = 191
MYSQL_KINDS = ("mysql", "mariadb")
# Rows that are changed again and again find room for their next version where they are.
STAYS = {"fillfactor": 70}
TABLE_OPTIONS: dict[str, Any] = {
    f"{kind}_{option}": value
    for kind in MYSQL_KINDS
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "collate": "utf8mb4_bin"}.items()
}


def key(length: int) -> TypeEngine[str]:
    """Return a text that is compared byte by byte (on MySQL by the table's collation)."""
    return String(length).with_variant(VARCHAR(length, collation="C"), "postgresql")


def text() -> TypeEngine[str]:
    """Return a text of any length."""
    return Text().with_variant(LONGTEXT(), *MYSQL_KINDS)


def number() -> TypeEngine[int]:
    """Return a number of eight bytes."""
    return BigInteger()


def identity() -> Column[int]:
    """Return the column of ids that the database counts up by itself."""
    return Column("id", BigInteger().with_variant(Integer(), "sqlite"), Identity(always=False), primary_key=True)
