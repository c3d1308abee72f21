"""Where a path can be cut, and the ways in which it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from threading import get_ident
from typing import Protocol, TypeVar

T = TypeVar("T")

EXITED = 77


class Way(Enum):
    """What happens at a point."""

    EXIT = "exit"  # the process ends before it; before the one that never comes: when all is done
    ERROR = "error"  # it is never sent: the connection breaks, and whoever asked lives on
    LOST = "lost reply"  # it was done, and the connection breaks before the answer
    KILLED = "killed"  # the server ends the connection before it comes


class Link(Protocol):
    """A connection on which round trips are made."""

    def error(self, trip: Callable[[], T]) -> T:
        """Break before the round trip."""
        ...

    def lost(self, trip: Callable[[], T]) -> T:
        """Make it, and break before the answer."""
        ...

    def killed(self, trip: Callable[[], T]) -> T:
        """Be ended by the server, then make it."""
        ...


class Points:
    """Counts round trips, and cuts one of them."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.is_armed = False
        self.was_reached = False
        self._number: int | None = None
        self._way: Way | None = None
        self._thread: int | None = None

    def arm(self, number: int | None = None, way: Way | None = None, *, is_alone: bool = False) -> None:
        """Count from now on; cut round trip `number`, from 1. With `is_alone`, what other threads do does not count."""
        self._thread = get_ident() if is_alone else None
        self.labels, self.is_armed, self.was_reached = [], True, False
        self._number, self._way = number, way

    def disarm(self) -> None:
        """Count no more. A process that was to exit when all is done exits."""
        if self.is_armed and self._way is Way.EXIT and self._number == len(self.labels) + 1:
            os._exit(EXITED)
        self.is_armed = False

    def passes(self, label: str, link: Link, trip: Callable[[], T]) -> T:
        """Make a round trip, or what becomes of it here."""
        if not self.is_armed or self._thread not in (None, get_ident()):
            return trip()
        self.labels.append(" ".join(label.split())[:100])
        if len(self.labels) != self._number:
            return trip()
        self.was_reached = True
        match self._way:
            case Way.EXIT:
                os._exit(EXITED)
            case Way.ERROR:
                return link.error(trip)
            case Way.LOST:
                return link.lost(trip)
            case Way.KILLED:
                return link.killed(trip)
        return trip()

    @property
    def seen(self) -> tuple[str, ...]:
        return tuple(self.labels)


POINTS = Points()
"""One for the process: whatever is not armed passes it by."""
