"""Questions to PostgreSQL that are sent before their answer is needed: the server reads while we write.

A thread that reads ahead competes with the one that processes for the interpreter, and where rows are many and work on
each is little, that costs more than it saves. So the question for the next page is sent, and its answer is waited for
when it is needed; until then it is in the server's hands and on its way (which bounds it: a server waits for whoever
does not take what was asked for).

Each question ends its own transaction (a sync in psycopg's pipeline), so no snapshot is held while nobody looks.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any

from fencepost.sql.cursors import has_pipelines, plain_cursor


def asking_of(cursor: Any) -> Asking | None:
    """Return the connection of a cursor of psycopg to be asked ahead; None if its libpq is too old for that."""
    return Asking(cursor.connection) if has_pipelines() else None


class Asking:
    """One connection of psycopg, in autocommit mode, that is asked ahead."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._stack = ExitStack()
        self._pipeline: Any = None
        self._asked: tuple[str, Any, Any] | None = None  # a question, its parameters, and who gets the answer

    def ask(self, sql: str, parameters: Any) -> None:
        """Send a question, and wait for nothing."""
        self._asked = (sql, parameters, self._sent(sql, parameters))

    def answer(self, sql: str, parameters: Any) -> Any:
        """Return a cursor with the answer: to what was asked, or else asked now."""
        asked, self._asked = self._asked, None
        if asked is not None and asked[:2] == (sql, parameters):
            return asked[2]
        self._asked = asked
        return self._sent(sql, parameters)

    @property
    def has_begun(self) -> bool:
        """Whether something was asked ahead, so that everything else has to go this way too."""
        return self._pipeline is not None

    def close(self) -> None:
        """Take what is on its way, and leave the connection as it was."""
        self._pipeline = self._asked = None
        self._stack.close()

    def abandon(self) -> None:
        """Close the connection, whatever is on its way; nobody knows what state it is in."""
        self._pipeline = self._asked = None
        with suppress(Exception):
            self._connection.close()
        with suppress(Exception):  # it cannot be left in good order, and is not to complain of that later
            self._stack.close()

    def _sent(self, sql: str, parameters: Any) -> Any:
        if self._pipeline is None:
            self._pipeline = self._stack.enter_context(self._connection.pipeline())
        cursor = plain_cursor(self._connection, "psycopg")
        cursor.execute(sql, parameters)
        self._connection.pgconn.pipeline_sync()
        self._pipeline.result_queue.append(None)  # there its answer is looked for
        return cursor
