"""The clock gate: a ledger clock that leaps must not make a node skip a year, or bury the living.

A node compares the ledger's time with its own monotonic clock, which counts also while the machine sleeps. As long as
both advance alike, the gate is open. When the ledger's time is ahead by more than the limit of where it should be by
now, the gate closes: nothing is planned and nobody is declared dead until the clock is back within the limit, or an
operator has looked and starts the node anew. A leap back is told, and then followed: it repeats nothing, for what is
planned only moves forward, and it makes nobody look dead.

**Not promised.** That a leap below the limit is noticed: it is what misfire policies are for. Nor one that happened
while the node was not there.
"""

from __future__ import annotations

from dataclasses import dataclass

LIMIT_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Leap:
    """The ledger's clock is off by this much against the node's monotonic clock."""

    by_us: int

    @property
    def is_ahead(self) -> bool:
        """Whether it leapt forward."""
        return self.by_us > 0

    def __str__(self) -> str:
        direction = "ahead" if self.is_ahead else "back"
        return f"the ledger's clock leapt {direction} by {abs(self.by_us) / 1e6:.0f} s"


class ClockGate:
    """Whether the ledger's clock can be believed. The caller serializes the calls."""

    __slots__ = ("_first_ledger_us", "_first_now", "_limit_us", "leap")

    def __init__(self, limit_us: int = LIMIT_US) -> None:
        self._limit_us = limit_us
        self._first_ledger_us: int | None = None
        self._first_now = 0.0
        self.leap: Leap | None = None

    @property
    def is_open(self) -> bool:
        """Whether planning and reaping may go on."""
        return self.leap is None or not self.leap.is_ahead

    def observe(self, *, ledger_us: int, now: float) -> Leap | None:
        """Compare the two clocks; return the leap: while there is one ahead, once for one back.

        The first reading is believed. Small differences are slewing clocks, and are followed.
        """
        if self._first_ledger_us is None:
            self._follow(ledger_us, now)
            return None
        expected_us = self._first_ledger_us + round((now - self._first_now) * 1_000_000)
        off_us = ledger_us - expected_us
        self.leap = Leap(off_us) if abs(off_us) > self._limit_us else None
        if off_us <= self._limit_us:
            self._follow(ledger_us, now)
        return self.leap

    def _follow(self, ledger_us: int, now: float) -> None:
        self._first_ledger_us = ledger_us
        self._first_now = now
