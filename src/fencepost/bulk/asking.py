"""Queries to PostgreSQL that are sent before their result is needed: the server reads while we write.

A thread that reads ahead competes for the interpreter with the thread that processes. With many rows and little work on
each, that costs more than it saves. So the query for the next page is sent early, and its result is awaited when it is
needed. Until then the rows are in the server and in network buffers. This limits their number, because a server waits
if its client does not receive.

Each query ends its own transaction (a sync in psycopg's pipeline), so no snapshot is held in between.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any

from fencepost.sql.cursors import has_pipelines, plain_cursor


def asking_of(cursor: Any) -> Asking | None:
    """Return an `Asking` for the connection of a psycopg cursor; None if its libpq is too old for pipelines."""
    return Asking(cursor.connection) if has_pipelines() else None


class Asking:
    """A psycopg connection in autocommit mode to which queries are sent ahead."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._stack = ExitStack()
        self._pipeline: Any = None
        self._asked: tuple[str, Any, Any] | None = None  # the query, its parameters, and the cursor of its result

    def ask(self, sql: str, parameters: Any) -> None:
        """Send a query, without waiting for the result."""
        self._asked = (sql, parameters, self._sent(sql, parameters))

    def answer(self, sql: str, parameters: Any) -> Any:
        """Return a cursor with the result of a query: that of `ask`, or else execute it now."""
        asked, self._asked = self._asked, None
        if asked is not None and asked[:2] == (sql, parameters):
            return asked[2]
        self._asked = asked
        return self._sent(sql, parameters)

    @property
    def has_begun(self) -> bool:
        """Whether the connection is in pipeline mode, so that all other queries have to be sent this way too."""
        return self._pipeline is not None

    def close(self) -> None:
        """Receive pending results, and leave pipeline mode."""
        self._pipeline = self._asked = None
        self._stack.close()

    def abandon(self) -> None:
        """Close the connection, whose state is unknown, without waiting for pending results."""
        self._pipeline = self._asked = None
        with suppress(Exception):
            self._connection.close()
        with suppress(Exception):  # leaving the pipeline fails on a closed connection
            self._stack.close()

    def _sent(self, sql: str, parameters: Any) -> Any:
        if self._pipeline is None:
            self._pipeline = self._stack.enter_context(self._connection.pipeline())
        cursor = plain_cursor(self._connection, "psycopg")
        cursor.execute(sql, parameters)
        self._connection.pgconn.pipeline_sync()
        self._pipeline.result_queue.append(None)  # psycopg expects an entry for each sync
        return cursor
