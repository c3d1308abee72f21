"""From the ledger's time to this node's monotonic clock: when to wake for a due time.

Each answer of the ledger contains its time. The monotonic time read right after the answer is an upper bound for that
moment, late by at most the time that the answer took to arrive. An answer that took long says little: a process that
was suspended while its answer was on the way reads a time that is hours old.
"""

from __future__ import annotations

from fencepost.core.clock_gate import ClockGate, Leap
from fencepost.core.contact import Contact
from fencepost.core.runtime import Runtime

_LATE_S = 60.0  # more than any call may take, and little beside what `ClockGate` calls a leap


class LedgerClock:
    """What this node knows about the ledger's time. All its loops read and update it."""

    def __init__(self, runtime: Runtime, *, longest_gap_s: float) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._gate = ClockGate()
        self._contact = Contact(longest_gap_s=longest_gap_s)
        self._ahead_us = 0
        self._observed_us: int | None = None
        self._unreported: list[Leap] = []

    def observe(self, ledger_us: int, *, since: float) -> bool:
        """Record the time in an answer of the ledger. Return whether its clock can be trusted.

        `since`: when it was asked, or before, on the monotonic clock. From an answer that came late, only a leap ahead
        is believed. Only the first call with the same time counts: a later one would only make the difference less
        accurate.
        """
        now = self._runtime.monotonic()
        with self._lock:
            if ledger_us == self._observed_us:
                return self._gate.is_open
            self._contact.answered(now)
            is_late = now - since > _LATE_S and not self._gate.is_ahead(ledger_us, now)
            if is_late and self._observed_us is not None:
                return self._gate.is_open
            self._observed_us = ledger_us
            self._ahead_us = ledger_us - round(now * 1_000_000)
            if is_late:  # the first answer: better than nothing, but later ones are not compared with it
                return self._gate.is_open
            was_open = self._gate.is_open
            leap = self._gate.observe(ledger_us=ledger_us, now=now)
            if leap is not None and was_open:  # a leap that lasts is reported once
                self._unreported.append(leap)
            return self._gate.is_open

    def unanswered(self) -> None:
        """Record that a call was not answered."""
        with self._lock:
            self._contact.unanswered()

    @property
    def is_known(self) -> bool:
        """Whether the ledger has answered yet. Before that, its time cannot be estimated."""
        return self._observed_us is not None

    @property
    def is_believed(self) -> bool:
        """Whether the ledger's clock advances like the clock of this node."""
        return self._gate.is_open

    def unreported_leaps(self) -> list[Leap]:
        """Return the leaps that were not reported yet."""
        with self._lock:
            unreported_leaps, self._unreported = self._unreported, []
        return unreported_leaps

    def contact_s(self) -> float:
        """Return how long contact with the ledger has been unbroken."""
        with self._lock:
            return self._contact.lasted_s(self._runtime.monotonic())

    def here(self, ledger_us: int) -> float:
        """Return the monotonic time at which the ledger's time will be `ledger_us`."""
        return (ledger_us - self._ahead_us) / 1_000_000

    def there_us(self) -> int:
        """Return the ledger's time now, as estimated by this node."""
        return round(self._runtime.monotonic() * 1_000_000) + self._ahead_us
