"""SQLite in a forked child: decided once, for all parts of the process together.

SQLite keeps its locks per process: those between threads, and its memory of which locks it has on a file. A child
inherits both. If any thread was inside SQLite when the process was forked, whichever part it worked for, some lock
may be taken for ever, and the child must not touch SQLite at all: not even to close what it inherited. Otherwise
everything that was open has to be closed before anything is opened again, for the child has the memory of the
parent's file locks, but not the locks.

So every part that keeps SQLite connections joins here, and in a child whoever comes first settles it for all.

**Not promised.** Anything about connections that the user's own code has open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol
from weakref import WeakMethod


class Closable(Protocol):
    """A connection."""

    def close(self) -> None: ...


Open = tuple[Sequence[Closable], int]
"""What a part has open: connections that are idle, and how many are in use."""


class ForkedSqlite:
    """The parts of this process that use SQLite."""

    def __init__(self) -> None:
        self._parts: list[WeakMethod[Callable[[], Open]]] = []
        self._settled_in: int | None = None
        self._is_lost = False
        self._kept: list[Closable] = []  # so that nothing closes them

    def join(self, what_is_open: Callable[[], Open]) -> None:
        """Be asked, in a child, what is open: by a bound method, as long as its object lives."""
        self._parts = [*(part for part in self._parts if part() is not None), WeakMethod(what_is_open)]

    def settle(self, process_id: int, idle: Sequence[Closable], *, in_use: int) -> bool:
        """Close, in a child, all that is inherited, and say whether SQLite must not be used in this process.

        `idle` and `in_use` are what the caller has itself had open, and does not tell any more when asked.
        """
        if self._settled_in != process_id:
            opened = [(idle, in_use), *(ask() for part in self._parts if (ask := part()) is not None)]
            inherited = [connection for connections, _ in opened for connection in connections]
            self._settled_in, self._is_lost = process_id, any(count > 0 for _, count in opened)
            if self._is_lost:
                self._kept += inherited
            else:
                for connection in inherited:
                    connection.close()
        return self._is_lost


FORKED_SQLITE = ForkedSqlite()
