"""SQLite in a forked child: one decision for the whole process.

SQLite keeps its locks per process: mutexes between threads, and a table of the locks it has on files. A child inherits
both. If any thread was inside SQLite when the process was forked, a mutex may stay locked for ever, and the child must
not use SQLite at all, not even to close inherited connections. Otherwise all inherited connections must be closed
before a file is opened again, because the child has the table of the parent's file locks, but not the locks.

So every part that keeps SQLite connections registers here. In a child, the first part that uses SQLite decides for all
parts: those that existed at the fork, those that are created later, and those of the child's own children. Code that
opens a file checks the decision first.

Before a fork, the forking thread waits a moment for threads that are inside SQLite, and new calls wait until the fork
is done. This only makes success more likely: the decision is made in the child, from what was really open. The waits
are short, because the forking thread may itself be inside SQLite, or hold a lock that such a thread needs.

**Not promised.** Anything about connections that the user's own code has opened.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from fencepost.core.weak_method import BoundWeakly
from fencepost.sql.held_files import holds_any

_FORKS_WITHIN_S = 1.0  # longer than a usual statement takes; a fork must not be delayed much more
_WAITS_AT_MOST_S = 2.0  # longer than a fork waits
_LOOK_AGAIN_S = 0.0005  # statements take less than a millisecond
_TIDY_FROM = 16  # so many parts, before the first look for those that are gone

LOST = (
    "this process was forked in the middle of a call to SQLite, whose locks do not survive that; "
    "fork before SQLite is used, or start a new process (spawn)"
)


class Closable(Protocol):
    """A connection, or a cursor of one."""

    def close(self) -> None: ...


Open = tuple[Sequence[Closable], int]
"""What a part has open, in the order in which to close it, and how many connections are in use."""


class ForkedSqlite:
    """The parts of this process that use SQLite."""

    def __init__(self, collect_nothing: Callable[[], None] = lambda: None) -> None:
        self._collect_nothing = collect_nothing
        self._parts: list[BoundWeakly[Open]] = []
        self._tidy_at = _TIDY_FROM
        self._settled_in: int | None = None
        self._is_lost = False
        self._kept: list[Closable] = []  # referenced, so that the garbage collector does not close them
        self.forking: list[int] = []  # one entry for every thread that is about to fork

    def join(self, what_is_open: Callable[[], Open]) -> None:
        """Register a bound method that returns what is open. It is called in a child, as long as its object exists."""
        if len(self._parts) >= self._tidy_at:
            self._parts = [part for part in self._parts if part() is not None]
            self._tidy_at = max(2 * len(self._parts), _TIDY_FROM)
        self._parts = [*self._parts, BoundWeakly(what_is_open)]

    def settle(self, process_id: int, idle: Sequence[Closable], *, in_use: int) -> bool:
        """In a child: close all inherited connections. Returns True if SQLite must not be used in this process.

        `idle` and `in_use` are the caller's own connections, which its registered method no longer returns. A child of
        a process that must not use SQLite must not use it either.
        """
        if self._settled_in != process_id:
            opened = [(idle, in_use), *(ask() for part in self._parts if (ask := part()) is not None)]
            inherited = [connection for connections, _ in opened for connection in connections]
            self._settled_in = process_id
            self._is_lost = self._is_lost or any(count > 0 for _, count in opened)
            if self._is_lost:
                self._kept += inherited
                self._collect_nothing()  # there may be connections among the objects that are no longer referenced
            else:
                for connection in inherited:
                    with suppress(Exception):  # the others must still be closed
                        connection.close()
        return self._is_lost

    def before_fork(self, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        """In the parent: wait for a limited time until no thread is inside SQLite. Not inside a transaction."""
        self.forking.append(1)
        give_up_at = clock() + (0.0 if holds_any() else _FORKS_WITHIN_S)
        while self._is_in_use() and clock() < give_up_at:
            sleep(_LOOK_AGAIN_S)

    def after_fork(self) -> None:
        """In the parent: let waiting calls continue."""
        if self.forking:
            self.forking.pop()

    def let_fork(self, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        """Wait, before a call to SQLite, while a thread is about to fork. To be called if `forking` is not empty."""
        give_up_at = clock() + _WAITS_AT_MOST_S  # another library's fork hook may call SQLite between ours
        while self.forking and clock() < give_up_at:
            sleep(_LOOK_AGAIN_S)

    def _is_in_use(self) -> bool:
        try:
            return any(ask()[1] > 0 for part in list(self._parts) if (ask := part()) is not None)
        except RuntimeError:  # a set changed during iteration, so it is in use
            return True

    @property
    def is_lost(self) -> bool:
        """Whether this process must not call SQLite, because it would wait for ever. `LOST` is the message."""
        return self._is_lost


FORKED_SQLITE = ForkedSqlite(gc.freeze)
