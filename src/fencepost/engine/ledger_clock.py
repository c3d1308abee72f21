"""From the ledger's time to this node's monotonic clock: when to wake for what is due there.

Each answer of the ledger says what time it was. The difference to the monotonic reading taken right after it is an
upper bound of when that moment is here, late by at most the answer's way back.
"""

from __future__ import annotations

from fencepost.core.clock_gate import ClockGate, Leap
from fencepost.core.contact import Contact
from fencepost.core.runtime import Runtime


class LedgerClock:
    """What this node knows of the ledger's time. Read and told by all its loops."""

    def __init__(self, runtime: Runtime, *, longest_gap_s: float) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._gate = ClockGate()
        self._contact = Contact(longest_gap_s=longest_gap_s)
        self._ahead_us = 0
        self._told_us: int | None = None
        self._untold: list[Leap] = []

    def told(self, ledger_us: int) -> bool:
        """Note an answer of the ledger; return whether its clock is to be believed.

        Only the first to tell of an answer is listened to: who says the same later only says it late.
        """
        now = self._runtime.monotonic()
        with self._lock:
            if ledger_us == self._told_us:
                return self._gate.is_open
            self._told_us = ledger_us
            self._ahead_us = ledger_us - round(now * 1_000_000)
            self._contact.answered(now)
            was_open = self._gate.is_open
            leap = self._gate.observe(ledger_us=ledger_us, now=now)
            if leap is not None and was_open:  # one that lasts is told of once
                self._untold.append(leap)
            return self._gate.is_open

    def unanswered(self) -> None:
        """Note that a call was not answered."""
        with self._lock:
            self._contact.unanswered()

    @property
    def is_believed(self) -> bool:
        """Whether the ledger's clock advances as ours does."""
        return self._gate.is_open

    def untold(self) -> list[Leap]:
        """Return the leaps that nobody has been told of yet."""
        with self._lock:
            untold, self._untold = self._untold, []
        return untold

    def contact_s(self) -> float:
        """How long contact has been unbroken."""
        with self._lock:
            return self._contact.lasted_s(self._runtime.monotonic())

    def here(self, ledger_us: int) -> float:
        """Return the monotonic reading at which it will be `ledger_us` in the ledger."""
        return (ledger_us - self._ahead_us) / 1_000_000

    def there_us(self) -> int:
        """Return the ledger's time now, as far as this node can tell."""
        return round(self._runtime.monotonic() * 1_000_000) + self._ahead_us
