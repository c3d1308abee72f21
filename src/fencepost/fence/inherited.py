"""Fenced transactions that a forked child has inherited. They belong to its parent.

The child has the same connection to the server, or the same open file, as its parent. Anything that the child sent
there would happen in the parent's transaction, including a rollback, a close, or the garbage collection of the
connection.

**Promises.** In a child, our code never begins, ends or closes such a transaction. Its connection is never garbage
collected, not even when the process ends. If the child tries to use it, it is refused by connections and sessions of
SQLAlchemy, by psycopg, PyMySQL and Django, and by every function of ours that takes it (``tx=``).

**Not promised.** That a sqlite3 connection refuses: its methods cannot be replaced from Python.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Any, NoReturn

from fencepost.fence.sources.source import Source
from fencepost.fence.target import family_of

INHERITED = (
    "this transaction belongs to the parent of this forked process, and only the parent may use or end it; "
    "begin another one on a connection that this process has opened"
)

_DRIVERS_WAYS = ("cursor", "execute", "query", "begin", "commit", "rollback", "transaction", "pipeline", "close")
_DJANGOS_WAYS = ("cursor", "_commit", "_rollback", "_close", "_savepoint", "_savepoint_rollback", "_savepoint_commit")
_connections: dict[int, Any] = {}  # the drivers' connections, by id()
_kept: list[Any] = []
_kept.append(_kept)  # a reference cycle: once frozen, it is not freed at the end of the process either


def leave(owner: object, source: Source) -> None:
    """In a child, leave a transaction to the parent: keep its objects alive, and let them refuse to be used."""
    _kept.append((owner, source))
    with suppress(Exception):  # a thread that does not exist in this process may have opened it only partly
        _connections[id(source.raw)] = source.raw
        _refuse(source)
    gc.freeze()


def refuse_if_inherited(raw: Any) -> None:
    """Refuse a driver's connection whose transaction belongs to the parent."""
    if _connections and id(raw) in _connections:
        _refused()


def _refuse(source: Source) -> None:
    raw, connection = source.raw, getattr(source, "connection", None)
    _replace(raw, _DRIVERS_WAYS)
    if family_of(connection) == "sqlalchemy":
        from sqlalchemy import event  # noqa: PLC0415 - SQLAlchemy is installed: the connection is from it

        for name in ("before_cursor_execute", "begin", "savepoint", "commit", "rollback"):
            event.listen(connection, name, _refused)
    wrapper = getattr(source, "wrapper", None)
    if wrapper is not None:
        _replace(wrapper, _DJANGOS_WAYS)


def _replace(connection: Any, names: tuple[str, ...]) -> None:
    with suppress(TypeError):  # a sqlite3 connection has no __dict__
        own = vars(connection)
        own.update({name: _refused for name in names if hasattr(connection, name)})


def _refused(*_: object, **__: object) -> NoReturn:
    raise RuntimeError(INHERITED)
