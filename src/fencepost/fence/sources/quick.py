"""Executes our statements on psycopg connections without cursors, in the same round trip as BEGIN and COMMIT.

A fence costs the user's transaction mainly round trips, and a cursor costs as much as one. So these functions call
libpq through `psycopg.pq`, which is public. The read at the beginning is sent together with BEGIN, and the check at the
end together with COMMIT. The check is a procedure (`schema.step`) that fails if the fence is not ours, and a failure
stops the statements after it.

Statements that are sent together cannot have separate parameters, so strings are put into the SQL as literals, quoted
by libpq for this connection. Nothing is prepared: a pooler may switch to another server, and psycopg discards
statements that it did not prepare itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from select import select
from typing import Any

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, DiagnosticField, Escaping, ExecStatus, PipelineStatus, TransactionStatus

from fencepost.fence.final_update import FinalUpdate
from fencepost.schema.checks import NOT_OURS

Meanwhile = Callable[[], None]
Retold = Callable[[Exception], Exception]
Row = tuple[str | None, ...]

_NOT_OURS = NOT_OURS.encode()
_DIVISION_BY_ZERO = b"22012"


def can_be_asked(connection: Any) -> bool:
    """Whether it is a psycopg connection whose transaction is usable, or begins with the next statement."""
    if not isinstance(connection, psycopg.Connection):
        return False
    link = connection.pgconn
    if link.status != ConnStatus.OK or link.pipeline_status != PipelineStatus.OFF:
        return False
    return has_begun(connection) or (link.transaction_status == TransactionStatus.IDLE and not connection.autocommit)


def has_begun(connection: psycopg.Connection[Any]) -> bool:
    """Whether it is in a transaction that has not failed."""
    return connection.pgconn.transaction_status == TransactionStatus.INTRANS


def asked(
    connection: psycopg.Connection[Any], sql: str, parameters: Sequence[int | str], *, retold: Retold
) -> Row | None:
    """Return the first row as strings; None if there is none. Begin a transaction first if needed, as cursors do.

    Errors are psycopg's, converted by `retold`.
    """
    begin = () if has_begun(connection) else (_beginning(connection),)
    result = _outcome(connection, *begin, _written(connection, sql, parameters), retold=retold)
    if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        return _row(result, _encoding(connection)) if result.ntuples else None
    raise retold(_error(connection, result))


def commits_after(
    connection: psycopg.Connection[Any],
    check: str,
    parameters: Sequence[int | str],
    *,
    retold: Retold,
    change: FinalUpdate | None = None,
) -> bool | Exception:
    """Make a change, call the procedure `check` and commit; False, with a failed transaction, if the check refuses.

    Errors are raised as by `asked`. An error of COMMIT itself is returned, because the check has passed then.
    """
    marks = ", ".join(["%s"] * len(parameters))
    call = _written(connection, f"CALL {check}({marks})", parameters)
    first = () if change is None else (_changing(connection, change),)
    meanwhile = None if change is None else change.meanwhile
    result = _outcome(connection, *first, call, b"COMMIT", retold=retold, meanwhile=meanwhile)
    if result.status == ExecStatus.COMMAND_OK:
        return True
    if connection.pgconn.transaction_status == TransactionStatus.IDLE:  # COMMIT itself has failed
        return retold(_error(connection, result))
    if result.error_field(DiagnosticField.SQLSTATE) == _NOT_OURS:
        return False
    if change is not None and result.error_field(DiagnosticField.SQLSTATE) == _DIVISION_BY_ZERO:
        raise change.missed
    raise retold(_error(connection, result))


def roll_back(connection: psycopg.Connection[Any]) -> None:
    """Roll back, even inside a ``connection.transaction()`` block that was never left, where psycopg would not."""
    if connection.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
        _sent(connection, b"ROLLBACK")


def _outcome(
    connection: psycopg.Connection[Any], *statements: bytes, retold: Retold, meanwhile: Meanwhile | None = None
) -> Any:
    """Send the statements. Convert the error if they cannot even be sent."""
    try:
        return _sent(connection, *statements, meanwhile=meanwhile)
    except psycopg.Error as error:
        raise retold(error) from error


def _sent(connection: psycopg.Connection[Any], *statements: bytes, meanwhile: Meanwhile | None = None) -> Any:
    """Send the statements together; return the result of the last one, or of the first that failed."""
    with connection.lock:
        if meanwhile is None:
            return connection.pgconn.exec_(b"; ".join(statements))
        return _executed(connection.pgconn, b"; ".join(statements), meanwhile)


def _executed(link: Any, statements: bytes, meanwhile: Meanwhile) -> Any:
    """Send the statements, call `meanwhile`, and then wait for the results."""
    link.send_query(statements)
    while link.flush():
        select([link.socket], [link.socket], [])
        link.consume_input()
    meanwhile()
    came = None
    while True:
        while link.is_busy():
            select([link.socket], [], [])
            link.consume_input()
        result = link.get_result()
        if result is None:
            return came
        if came is None or came.status != ExecStatus.FATAL_ERROR:
            came = result


def _error(connection: psycopg.Connection[Any], result: Any) -> psycopg.Error:
    """Return the error that psycopg's cursors would raise. Errors of libpq itself have no SQLSTATE."""
    encoding = _encoding(connection)
    if result.error_field(DiagnosticField.SQLSTATE) is None:
        return psycopg.OperationalError(result.get_error_message(encoding), info=result, encoding=encoding)
    return error_from_result(result, encoding=encoding)


def _changing(connection: psycopg.Connection[Any], change: FinalUpdate) -> bytes:
    """Return a change that fails unless it finds its row, because only an error stops the statements after it."""
    sql = f"WITH changed AS ({change.sql} RETURNING 1) SELECT 1 / count(*) FROM changed"  # noqa: S608 - ours
    return _written(connection, sql, change.values)


def _beginning(connection: psycopg.Connection[Any]) -> bytes:
    words = ["BEGIN"]
    if connection.isolation_level is not None:
        words.append("ISOLATION LEVEL " + connection.isolation_level.name.replace("_", " "))
    if connection.read_only is not None:
        words.append("READ ONLY" if connection.read_only else "READ WRITE")
    if connection.deferrable is not None:
        words.append("DEFERRABLE" if connection.deferrable else "NOT DEFERRABLE")
    return " ".join(words).encode()


def _written(connection: psycopg.Connection[Any], sql: str, parameters: Sequence[int | str]) -> bytes:
    """Return the statement with its parameters as literals."""
    first, *rest = sql.split("%s")
    parts = [first.encode()]
    for value, part in zip(parameters, rest, strict=True):
        parts += (_quoted(connection, value), part.encode())
    return b"".join(parts)


def _quoted(connection: psycopg.Connection[Any], value: int | str) -> bytes:
    if isinstance(value, int):
        return str(value).encode()
    return bytes(Escaping(connection.pgconn).escape_literal(value.encode(_encoding(connection))))


def _encoding(connection: psycopg.Connection[Any]) -> str:
    """Return the encoding of the connection; for SQL_ASCII, which takes any bytes, UTF-8 as in psycopg."""
    encoding = connection.info.encoding
    return "utf-8" if encoding == "ascii" else encoding


def _row(result: Any, encoding: str) -> Row:
    values = (result.get_value(0, column) for column in range(result.nfields))
    return tuple(None if value is None else value.decode(encoding) for value in values)
