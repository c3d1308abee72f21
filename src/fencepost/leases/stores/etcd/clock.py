"""Store time for etcd, whose API has no clock.

Every reply contains two values that only increase: the HTTP ``Date`` of the member, in whole seconds, and the cluster's
revision, which every write increases by one. Together they make a time in microseconds::

    store time = Date · 1,000,000 + revision mod 1,000,000

Within a second it increases with the revision. A grant and its release are two writes, so it increases faster than
"previous token plus one", and a token from it is never ahead of it. From one second to the next it increases with the
clock. So a token from a reply is larger than every earlier token, even if the record was deleted by hand or the whole
cluster was wiped (revision back to 1).

Between two replies the time is estimated: the last reading plus the whole seconds since. The estimate is never too
high: ``Date`` was cut to the second, the reply took time, and the revision can only have increased.

**Where it could fail**, and only together with the loss of the record: the members' clocks differ by more than
the time since the last grant; or the revision passes a multiple of a million between two grants within one second.
"""

from __future__ import annotations

from calendar import timegm
from email.utils import parsedate

from fencepost.core.runtime import Runtime

_SECOND_US = 1_000_000


class EtcdClock:
    """The latest reading of the store's time, and the estimate from it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._parsed = ("", 0)
        self._latest = (0, 0, 0.0)

    def read(self, date: str, revision: int) -> int:
        """Record the reading of a reply that has just arrived, and return the store's time in µs.

        A reply without a date, which a proxy may have removed, gives an estimate, or 0 if there was no reading yet.
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
        """Return the server's time, rounded to the second, for display."""
        return self.now_us() // _SECOND_US * _SECOND_US


def _seconds(date: str) -> int:
    parsed = parsedate(date)
    return timegm(parsed) if parsed else 0
