"""What a process has seen of sessions, by its own clock."""

from __future__ import annotations

from fencepost.leases.stores.sql.sightings import Sightings
from fencepost.threaded import ThreadedRuntime

TTL_US = 30_000_000


class Clock(ThreadedRuntime):
    """A clock that stands still until it is set."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_dead_are_found_however_many_there_are() -> None:
    clock = Clock()
    sightings = Sightings(clock)
    spared = set()
    for clock.now in (0.0, 15.0, 30.0):
        spared = {sightings.spared_s(f"s{each}", mark=7, ttl_us=TTL_US) for each in range(6000)}
    assert spared == {0.0}


def test_those_that_nobody_sees_any_more_are_forgotten() -> None:
    clock = Clock()
    sightings = Sightings(clock)
    for each in range(12_000):
        clock.now += 1.0
        sightings.spared_s(f"s{each}", mark=7, ttl_us=TTL_US)
    assert len(sightings) < 6000
