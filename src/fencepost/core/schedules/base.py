"""The interface of every kind of schedule, and the range of the calendar.

A schedule is a set of instants, its due times (*dues*), in whole microseconds since 1970 UTC. The set depends only on
the schedule and the time zone database, so all nodes compute the same due times.

The calendar begins with 1970 and ends with 2199. So every search ends, even if a schedule is never due again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

SECOND_US = 1_000_000
DAY_S = 86_400
FIRST_YEAR = 1970  # instants are counted from its beginning
LAST_YEAR = 2199  # where every search ends; `LAST_DAY` is its last day
FIRST_DAY = -1
"""Days are counted from 1970-01-01 as day 0. West of Greenwich, the first instant belongs to the previous day."""
LAST_DAY = 84_005
"""2199-12-31."""
LAST_S = (LAST_DAY + 1) * DAY_S - 1
LAST_US = LAST_S * SECOND_US

CHECKED_FROM_US = 1_735_689_600 * SECOND_US
"""A schedule that is never due from 2025-01-01 on is refused when it is created."""


class Dues(ABC):
    """The set of due times of one schedule."""

    __slots__ = ()

    @abstractmethod
    def due_after(self, after_us: int) -> int | None:
        """Return the first due time strictly after `after_us`; None if there is none."""

    @abstractmethod
    def due_before(self, before_us: int) -> int | None:
        """Return the last due time strictly before `before_us`; None if there is none."""

    @abstractmethod
    def count(self, after_us: int, until_us: int) -> int:
        """Return the number of due times in (after, until], without listing them."""

    def dues(self, after_us: int, until_us: int, limit: int) -> list[int]:
        """Return the first `limit` due times in (after, until], in ascending order."""
        found: list[int] = []
        due_us = self.due_after(after_us)
        while due_us is not None and due_us <= until_us and len(found) < limit:
            found.append(due_us)
            due_us = self.due_after(due_us)
        return found
