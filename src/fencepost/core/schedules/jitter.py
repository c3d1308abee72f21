"""Jitter: delays starts, so that a thousand jobs of the same minute do not start at once.

The delay is computed from the schedule's id and the due time, so it is the same on every node. It delays only the
start. The identity of the tick, its window and its lateness are those of the due time.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

from fencepost.core.duration import Duration, seconds, spelled
from fencepost.core.schedules.base import SECOND_US
from fencepost.errors import InvalidSchedule

_MOST_S = 86_400.0  # a day: jitter spreads starts, and a longer delay belongs in the schedule itself


class Jittered(Protocol):
    """Any schedule."""

    @property
    def jitter_us(self) -> int:
        """The longest delay."""


def jitter_us(schedule: Jittered, schedule_id: str, due_us: int) -> int:
    """Return the delay of this tick's start: 0 ≤ delay ≤ the schedule's jitter."""
    if schedule.jitter_us == 0:
        return 0
    digest = blake2b(f"{schedule_id}\0{due_us}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % (schedule.jitter_us + 1)


def jitter_from(value: Duration) -> int:
    """Parse a jitter and return it in microseconds; more than a day is refused."""
    jitter_s = seconds(value, what="jitter")
    if jitter_s > _MOST_S:
        raise InvalidSchedule(f"jitter {spelled(jitter_s)} is too long; at most {spelled(_MOST_S)}")
    return round(jitter_s * SECOND_US)
