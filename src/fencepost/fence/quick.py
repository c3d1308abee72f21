"""Our statements on psycopg's connections without its cursors, which cost as much as the way to the server and back.

It is what a fenced transaction adds to the user's own, so it is worth saving. libpq itself is asked, through the part
of psycopg that is meant for that (`psycopg.pq`). Nothing is prepared: a pooler may hand us another server, and psycopg
drops what it did not prepare itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus

_INT8, _TEXT = 20, 25


def asked(connection: Any, sql: str, parameters: Sequence[int | str]) -> tuple[str | None, ...] | bool | None:
    """Return the first row, as texts; None if there is none; False if it has to be asked in the usual way.

    Errors are psycopg's own.
    """
    if not isinstance(connection, psycopg.Connection) or connection.pgconn.status != ConnStatus.OK:
        return False
    if not _has_begun(connection):
        return False
    encoding = connection.info.encoding
    values: list[Any] = [str(each).encode(encoding) for each in parameters]
    types = [_INT8 if isinstance(each, int) else _TEXT for each in parameters]
    result = connection.pgconn.exec_params(_numbered(sql), values, types)
    if result.status == ExecStatus.TUPLES_OK:
        return None if not result.ntuples else _row(result, encoding)
    raise error_from_result(result, encoding=encoding)


def _has_begun(connection: psycopg.Connection[Any]) -> bool:
    """Begin, as psycopg does when a cursor is used, where a plain BEGIN is all there is to it."""
    status = connection.pgconn.transaction_status
    if status == TransactionStatus.IDLE and not connection.autocommit and _is_plain(connection):
        return connection.pgconn.exec_(b"BEGIN").status == ExecStatus.COMMAND_OK
    return status == TransactionStatus.INTRANS


def _is_plain(connection: psycopg.Connection[Any]) -> bool:
    return (connection.isolation_level, connection.read_only, connection.deferrable) == (None, None, None)


def _row(result: Any, encoding: str) -> tuple[str | None, ...]:
    values = (result.get_value(0, column) for column in range(result.nfields))
    return tuple(None if value is None else value.decode(encoding) for value in values)


@lru_cache(maxsize=64)
def _numbered(sql: str) -> bytes:
    first, *rest = sql.split("%s")
    return (first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))).encode()
