"""The table that a writer writes to: its quoted names, and the driver's connection of the chunk's transaction.

Names must be as in the database (on PostgreSQL, ``"Order"`` and ``"order"`` are different tables). They are always
quoted, so a name may be an SQL keyword.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from fencepost.errors import InvalidBulk
from fencepost.fence.target import connection_of, described, family_of, target_of
from fencepost.sql.troubles import NO_TABLES, driver_error, trouble_of

_NAME = re.compile(r"[^\W\d][\w$]*")
_LONGEST_NAME = 64  # the limit of MySQL; that of PostgreSQL is 63
_NO_COLUMN = ("42703", 1054)
_NO_COLUMN_WORDS = ("has no column named", "no such column")


class Table(NamedTuple):
    """A table, optionally with a schema, and the columns to write."""

    name: str
    columns: tuple[str, ...]

    @staticmethod
    def of(name: Any, columns: Any, writer: str) -> Table:
        """Check the names that the user gave. Raise `InvalidBulk`, with the reason, if they are not valid."""
        parts = name.split(".") if isinstance(name, str) else []
        if not 1 <= len(parts) <= 2 or not all(map(_is_name, parts)):
            raise InvalidBulk(f"{writer}({name!r}, …): the first argument must be a table, or schema.table")
        several = (columns,) if isinstance(columns, str) else columns
        if not isinstance(several, list | tuple) or not several:
            raise InvalidBulk(
                f"{writer}({name!r}, {columns!r}): the second argument must be a list of columns, "
                'as in ("id", "amount")'
            )
        for each in several:
            if not _is_name(each):
                raise InvalidBulk(f"{writer}({name!r}, …): {each!r} is not a valid column name")
        if len(set(several)) != len(several):
            raise InvalidBulk(f"{writer}({name!r}, …): a column occurs twice in {', '.join(several)}")
        return Table(name, tuple(several))

    def quoted(self, sign: str = '"') -> str:
        """Return the name of the table for SQL."""
        return ".".join(quoted(part, sign) for part in self.name.split("."))

    def quoted_columns(self, sign: str = '"') -> str:
        """Return the names of the columns for SQL."""
        return ", ".join(quoted(each, sign) for each in self.columns)

    def __str__(self) -> str:
        return f"{self.name!r}, {self.columns!r}"


def quoted(name: str, sign: str = '"') -> str:
    """Return a checked name for SQL."""
    return f"{sign}{name}{sign}"


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def kind_of(tx: Any) -> str:
    """Return the kind of a transaction's database: postgresql, mysql or sqlite."""
    return target_of(tx).kind


def driver_connection(tx: Any) -> Any:
    """Return the driver's connection below SQLAlchemy or Django, or the given connection itself."""
    match family_of(tx):
        case "sqlalchemy":
            return connection_of(tx).connection.driver_connection
        case "django":
            tx.ensure_connection()
            return tx.connection
    return tx


def psycopg_connection(tx: Any, writer: str, instead: str) -> Any:
    """Return the psycopg connection of a transaction, or refuse a transaction on another driver."""
    raw = driver_connection(tx)
    if family_of(raw) == "psycopg":
        return raw
    kind = kind_of(tx)
    if kind == "postgresql":
        raise InvalidBulk(
            f"{writer}(…) needs psycopg, and this transaction uses {described(raw)}; create the engine with "
            f"'postgresql+psycopg://…', or use {instead}"
        )
    raise InvalidBulk(f"{writer}(…) needs PostgreSQL, and this transaction is on {kind}; use {instead}")


@contextmanager
def explained(table: Table | None, writer: str) -> Iterator[None]:
    """Convert errors that the items did not cause, and errors about values that the driver cannot write."""
    try:
        yield
    except Exception as error:
        is_no_table = trouble_of(error) in NO_TABLES
        if is_no_table and table is not None:
            raise no_table(table, writer) from error
        if is_no_table or _is_about_a_column(error):
            raise InvalidBulk(f"{writer}({table or '…'}): {_first_line(error)}") from error
        if _is_no_form(error):
            raise TypeError(f"a value of an item cannot be written: {error}") from error
        raise


def no_table(table: Table, writer: str) -> InvalidBulk:
    """Return the error for a missing table."""
    return InvalidBulk(
        f"{writer}({table}): there is no table {table.name} in the database of this transaction; create it, or "
        "correct its name (case matters) and its schema"
    )


def _is_about_a_column(error: Exception) -> bool:
    cause = driver_error(error)
    codes = (getattr(cause, "sqlstate", None), *cause.args[:1])
    return any(code in _NO_COLUMN for code in codes) or any(words in str(cause) for words in _NO_COLUMN_WORDS)


def _is_no_form(error: Exception) -> bool:
    """Whether the driver could not convert a value, before anything was sent to the server."""
    words = {kind.__name__ for kind in type(error).__mro__}
    if not words & {"ProgrammingError", "InterfaceError"}:
        return False
    return str(error).startswith(("cannot adapt", "Error binding parameter", "cannot dump"))


def _first_line(error: Exception) -> str:
    return str(driver_error(error)).partition("\n")[0]
