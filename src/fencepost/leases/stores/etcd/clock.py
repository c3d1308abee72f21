"""Store time for etcd, which shows no clock of its own in its API.

Every answer carries two things that only rise: the HTTP ``Date`` of the member, in whole seconds, and the cluster's
revision, which every write raises by one. Together they make a time in microseconds::

    store time = Date · 1,000,000 + revision mod 1,000,000

Within a second it rises with the revision. A grant and its release are two writes, so it rises faster than
"previous token plus one" does, and a token drawn from it never runs ahead of it. From one second to
the next it rises with the clock. So a token drawn from an answer is larger than every token drawn
before, also when the record was deleted by hand or the whole cluster was wiped (revision back to 1).

Between two answers the time is estimated: the last one seen plus the whole seconds since. That is never more than
the truth: ``Date`` was cut to the second, the reply took time, and the revision can only have grown.

**Where it could fail**, and only together with the loss of the record: the members' clocks differ by more than
the time since the last grant; or the revision passes a multiple of a million between two grants within one second.
"""

from __future__ import annotations

from calendar import timegm
from email.utils import parsedate

from fencepost.core.runtime import Runtime

_SECOND_US = 1_000_000


class EtcdClock:
    """The latest reading of the store's time, and what it must be by now."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._parsed = ("", 0)
        self._latest = (0, 0, 0.0)

    def read(self, date: str, revision: int) -> int:
        """Take the reading of an answer that just came, and return the store's time in µs.

        An answer without a date, which something between has stripped, is none: it is estimated, or 0 at first.
        """
        text, second = self._parsed
        if date != text:
            second = _seconds(date)
            if not second:
                return self.now_us() if self._latest[0] else 0
            self._parsed = (date, second)
        self._latest = (second, revision, self._runtime.monotonic())
        return second * _SECOND_US + revision % _SECOND_US

    def now_us(self) -> int:
        """Return a store time that is not later than the true one."""
        second, revision, read_at = self._latest
        return (second + int(self._runtime.monotonic() - read_at)) * _SECOND_US + revision % _SECOND_US

    def wall_us(self) -> int:
        """Return the time of day by the server's clock, to the second: for people to read."""
        return self.now_us() // _SECOND_US * _SECOND_US


def _seconds(date: str) -> int:
    parsed = parsedate(date)
    return timegm(parsed) if parsed else 0
