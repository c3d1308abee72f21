"""Jitter: start a little later, so that a thousand jobs of one minute do not start at once.

The delay is drawn from the schedule's id and the due time, so every node finds the same one, and a run that
is planned twice by mistake would still want the same start. It delays the start and never touches the tick:
its identity, its window and its lateness are those of the due time.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

from fencepost.core.duration import Duration, seconds, spelled
from fencepost.core.schedules.base import SECOND_US
from fencepost.errors import InvalidSchedule

_MOST_S = 86_400.0


class Jittered(Protocol):
    """Any schedule."""

    @property
    def jitter_us(self) -> int:
        """The longest delay."""


def jitter_us(schedule: Jittered, schedule_id: str, due_us: int) -> int:
    """Return by how much the start of this tick is delayed: 0 ≤ delay ≤ the schedule's jitter."""
    if schedule.jitter_us == 0:
        return 0
    digest = blake2b(f"{schedule_id}\0{due_us}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % (schedule.jitter_us + 1)


def jitter_from(value: Duration) -> int:
    """Return a user's jitter in microseconds; more than a day is refused."""
    jitter_s = seconds(value, what="jitter")
    if jitter_s > _MOST_S:
        raise InvalidSchedule(f"jitter {spelled(jitter_s)} is too long; at most {spelled(_MOST_S)}")
    return round(jitter_s * SECOND_US)
