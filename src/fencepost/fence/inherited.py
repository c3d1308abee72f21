"""Fenced transactions that a forked child has inherited: they are its parent's, and stay so.

The child has the same connection to the server, or the same open file, as its parent. Whatever it sent there, also by
rolling back, by closing, or by having the connection collected, would be done in the parent's transaction.

**Promises.** In a child nothing of ours begins, ends or closes such a transaction, and nothing collects its connection,
not even the end of the process. What the child asks of it is refused: by connections and sessions of SQLAlchemy,
by psycopg, PyMySQL and Django, and wherever it is handed to us (``tx=``).

**Not promised.** That sqlite3's own connection refuses: nothing of Python's can be put before it.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Any, NoReturn

from fencepost.fence.sources.source import Source
from fencepost.fence.target import family_of

INHERITED = (
    "this transaction is of the process that this one was forked from, and only that one may use or end it; "
    "begin another one here, on a connection of this process"
)

_DRIVERS_WAYS = ("cursor", "execute", "query", "begin", "commit", "rollback", "transaction", "pipeline", "close")
_DJANGOS_WAYS = ("cursor", "_commit", "_rollback", "_close", "_savepoint", "_savepoint_rollback", "_savepoint_commit")
_connections: dict[int, Any] = {}  # the drivers' own, by their identity
_kept: list[Any] = []
_kept.append(_kept)  # a cycle, which is not taken apart at the end of the process either once it is frozen


def leave(owner: object, source: Source) -> None:
    """Leave, in a child, a transaction to its parent: keep all of it, and let it refuse."""
    _kept.append((owner, source))
    with suppress(Exception):  # it may have been opened halfway, by a thread that there is not in this process
        _connections[id(source.raw)] = source.raw
        _refuse(source)
    gc.freeze()


def refuse_if_inherited(raw: Any) -> None:
    """Refuse a driver's connection whose transaction is the parent's."""
    if _connections and id(raw) in _connections:
        _refused()


def _refuse(source: Source) -> None:
    raw, connection = source.raw, getattr(source, "connection", None)
    _replace(raw, _DRIVERS_WAYS)
    if family_of(connection) == "sqlalchemy":
        from sqlalchemy import event  # noqa: PLC0415 - it is there: the connection is of it

        for name in ("before_cursor_execute", "begin", "savepoint", "commit", "rollback"):
            event.listen(connection, name, _refused)
    wrapper = getattr(source, "wrapper", None)
    if wrapper is not None:
        _replace(wrapper, _DJANGOS_WAYS)


def _replace(connection: Any, names: tuple[str, ...]) -> None:
    with suppress(TypeError):  # sqlite3's has no place for it
        own = vars(connection)
        own.update({name: _refused for name in names if hasattr(connection, name)})


def _refused(*_: object, **__: object) -> NoReturn:
    raise RuntimeError(INHERITED)
