"""SQLite in a forked child: decided once, for all parts of the process together.

SQLite keeps its locks per process: those between threads, and its memory of which locks it has on a file. A child
inherits both. If any thread was inside SQLite when the process was forked, whichever part it worked for, some lock
may be taken for ever, and the child must not touch SQLite at all: not even to close what it inherited. Otherwise
everything that was open has to be closed before anything is opened again, for the child has the memory of the
parent's file locks, but not the locks.

So every part that keeps SQLite connections joins here, and in a child whoever comes first settles it for all: for those
who lived at the fork, for those who are made later, and for the child's own children. Whoever opens a file asks first.

Before that, who forks waits a moment for those who are inside, and those who come meanwhile wait until it has forked.
That is a courtesy: what was open is looked at in the child, where nothing moves any more. Nobody waits for long, for
who forks may itself be inside, or have what somebody inside needs.

**Not promised.** Anything about connections that the user's own code has open.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from fencepost.core.weak_method import BoundWeakly
from fencepost.sql.held_files import holds_any

_FORKS_WITHIN_S = 1.0
_WAITS_AT_MOST_S = 2.0
_LOOK_AGAIN_S = 0.0005

LOST = (
    "this process was forked in the middle of a call to SQLite, whose locks do not survive that; "
    "fork before it is used, or start the process anew (spawn)"
)


class Closable(Protocol):
    """A connection, or a cursor of one."""

    def close(self) -> None: ...


Open = tuple[Sequence[Closable], int]
"""What a part has open, in the order in which it is to be closed, and how many connections are in use."""


class ForkedSqlite:
    """The parts of this process that use SQLite."""

    def __init__(self, collect_nothing: Callable[[], None] = lambda: None) -> None:
        self._collect_nothing = collect_nothing
        self._parts: list[BoundWeakly[Open]] = []
        self._settled_in: int | None = None
        self._is_lost = False
        self._kept: list[Closable] = []  # so that nothing closes them
        self.forking: list[int] = []  # one entry for every thread that is about to fork

    def join(self, what_is_open: Callable[[], Open]) -> None:
        """Be asked, in a child, what is open: by a bound method, as long as its object lives."""
        self._parts = [*(part for part in self._parts if part() is not None), BoundWeakly(what_is_open)]

    def settle(self, process_id: int, idle: Sequence[Closable], *, in_use: int) -> bool:
        """Close, in a child, all that is inherited, and say whether SQLite must not be used in this process.

        `idle` and `in_use` are what the caller has itself had open, and does not tell any more when asked. A child of a
        process that must not use SQLite must not either.
        """
        if self._settled_in != process_id:
            opened = [(idle, in_use), *(ask() for part in self._parts if (ask := part()) is not None)]
            inherited = [connection for connections, _ in opened for connection in connections]
            self._settled_in = process_id
            self._is_lost = self._is_lost or any(count > 0 for _, count in opened)
            if self._is_lost:
                self._kept += inherited
                self._collect_nothing()  # somebody's connection may be among what nobody needs any more
            else:
                for connection in inherited:
                    with suppress(Exception):  # whatever one of them has, the others are closed
                        connection.close()
        return self._is_lost

    def before_fork(self, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        """Wait, in the parent, until nobody is inside SQLite; not for long, and not at all for who waits."""
        self.forking.append(1)
        give_up_at = clock() + (0.0 if holds_any() else _FORKS_WITHIN_S)
        while self._is_in_use() and clock() < give_up_at:
            sleep(_LOOK_AGAIN_S)

    def after_fork(self) -> None:
        """Let those go on, in the parent, who wait."""
        if self.forking:
            self.forking.pop()

    def let_fork(self, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        """Wait, before a call to SQLite, while somebody is about to fork: to be called if there are any `forking`."""
        give_up_at = clock() + _WAITS_AT_MOST_S  # a hook of somebody else's may call us between ours
        while self.forking and clock() < give_up_at:
            sleep(_LOOK_AGAIN_S)

    def _is_in_use(self) -> bool:
        try:
            return any(ask()[1] > 0 for part in list(self._parts) if (ask := part()) is not None)
        except RuntimeError:  # a set has changed while we looked: somebody is at it
            return True

    @property
    def is_lost(self) -> bool:
        """Whether this process must not call SQLite at all: it would wait for ever. `LOST` says so."""
        return self._is_lost


FORKED_SQLITE = ForkedSqlite(gc.freeze)
