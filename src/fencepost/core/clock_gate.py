"""The clock gate: if the ledger's clock jumps, a node must not skip due times or declare living nodes dead.

A node compares the ledger's time with its own monotonic clock, which also counts while the machine is suspended. While
both advance alike, the gate is open. When the ledger's time is ahead of the expected time by more than the limit, the
gate closes: the node plans nothing and declares no node dead until the clock is back within the limit, or an operator
has checked it and restarts the node. A jump back is reported and then accepted: it repeats nothing, because planning
only moves forward, and it makes no node look dead.

**Not promised.** That a jump below the limit is noticed; misfire policies handle it. Nor that a jump is noticed that
happened while the node was not running.
"""

from __future__ import annotations

from dataclasses import dataclass

LIMIT_US = 3_600_000_000  # an hour: far more than the corrections of a healthy clock, which are accepted


@dataclass(frozen=True, slots=True)
class Leap:
    """The ledger's clock is off by this much against the node's monotonic clock."""

    by_us: int

    @property
    def is_ahead(self) -> bool:
        """Whether the clock jumped forward."""
        return self.by_us > 0

    def __str__(self) -> str:
        direction = "ahead" if self.is_ahead else "back"
        return f"the ledger's clock leapt {direction} by {abs(self.by_us) / 1e6:.0f} s"


class ClockGate:
    """Decides whether the ledger's clock can be trusted. The caller serializes the calls."""

    __slots__ = ("_first_ledger_us", "_first_now", "_limit_us", "leap")

    def __init__(self, limit_us: int = LIMIT_US) -> None:
        self._limit_us = limit_us
        self._first_ledger_us: int | None = None
        self._first_now = 0.0
        self.leap: Leap | None = None

    @property
    def is_open(self) -> bool:
        """Whether planning and reaping are allowed."""
        return self.leap is None or not self.leap.is_ahead

    def observe(self, *, ledger_us: int, now: float) -> Leap | None:
        """Compare the two clocks; return a jump ahead as long as it lasts, and a jump back once.

        The first reading is trusted. Small differences come from slewing clocks, and are accepted.
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
