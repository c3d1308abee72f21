"""The clock gate: if the ledger's clock jumps, a node must not skip due times or declare living nodes dead.

A node compares the ledger's time with its own monotonic clock, which also counts while the machine is suspended. While
both advance alike, the gate is open. When the ledger's time is ahead of the expected time by more than the limit, the
gate closes: the node plans nothing and declares no node dead until the clock is back within the limit, or an operator
has checked it and restarts the node. A jump back is reported and then accepted: it repeats nothing, because planning
only moves forward, and it makes no node look dead.

A clock that had been followed for ten minutes, jumped back, and is put right within an hour is trusted again: a
database whose machine was suspended shows an old time until the machine has asked for the right one. This holds once an
hour, so that two clocks that answer in turn close the gate.

**Not promised.** That a jump below the limit is noticed; misfire policies handle it. Nor that a jump is noticed that
happened while the node was not running.
"""

from __future__ import annotations

from dataclasses import dataclass

LIMIT_US = 3_600_000_000  # an hour: far more than the corrections of a healthy clock, which are accepted
_RETURN_WITHIN_S = 3600.0  # services that set clocks ask every few minutes, some every half an hour
_FOLLOWED_S = 600.0  # a clock that was wrong for a moment, and then right, is not to be trusted when it is wrong again


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

    __slots__ = ("_first_ledger_us", "_first_now", "_left", "_left_at", "_limit_us", "_returned_at", "_since", "leap")

    def __init__(self, limit_us: int = LIMIT_US) -> None:
        self._limit_us = limit_us
        self._first_ledger_us: int | None = None
        self._first_now = 0.0
        self._since = 0.0  # when the clock began to advance as it does now
        self._left = 0  # what the ledger's time minus ours was before it jumped back
        self._left_at = self._returned_at = float("-inf")
        self.leap: Leap | None = None

    @property
    def is_open(self) -> bool:
        """Whether planning and reaping are allowed."""
        return self.leap is None or not self.leap.is_ahead

    def observe(self, *, ledger_us: int, now: float) -> Leap | None:
        """Compare the two clocks; return a jump ahead as long as it lasts, and a jump back once.

        The first reading is trusted. Small differences come from slewing clocks, and are accepted.
        """
        off_us, is_back = self._off_us(ledger_us, now)
        if self._first_ledger_us is None:
            self._since = now
        elif is_back:
            self._since = self._returned_at = now
            self._left_at = float("-inf")
        elif off_us < -self._limit_us:
            self._leave(ledger_us - off_us, now)
        self.leap = Leap(off_us) if abs(off_us) > self._limit_us else None
        if off_us <= self._limit_us:
            self._follow(ledger_us, now)
        return self.leap

    def is_ahead(self, ledger_us: int, now: float) -> bool:
        """Return whether this would be a jump ahead, without noting it."""
        return self._off_us(ledger_us, now)[0] > self._limit_us

    def _off_us(self, ledger_us: int, now: float) -> tuple[int, bool]:
        """Return how far this is from what was expected, and whether it is as before a jump back of the last hour."""
        if self._first_ledger_us is None:
            return 0, False
        off_us = ledger_us - self._first_ledger_us - round((now - self._first_now) * 1_000_000)
        if off_us <= self._limit_us or now - self._left_at > _RETURN_WITHIN_S:
            return off_us, False
        is_back = abs(ledger_us - round(now * 1_000_000) - self._left) <= self._limit_us
        return (0, True) if is_back else (off_us, False)

    def _leave(self, expected_us: int, now: float) -> None:
        """Note a jump back, from where the clock may return. Of several in a row, that is before the first."""
        if now - self._since >= _FOLLOWED_S and now - self._returned_at > _RETURN_WITHIN_S:
            self._left, self._left_at = expected_us - round(now * 1_000_000), now
        self._since = now

    def _follow(self, ledger_us: int, now: float) -> None:
        self._first_ledger_us = ledger_us
        self._first_now = now
