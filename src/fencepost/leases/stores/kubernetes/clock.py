"""The API server's clock, as far as its replies show it. Without input or output.

Every reply has a ``Date`` header in whole seconds, and nothing more precise. It is used for two values:

- *bounds* of the server's time now. A reply with date S to a request sent at `sent_at` and received at `received_at`
  (monotonic readings) was written between S and S + 1 s of the server's time, so the difference between the two clocks
  is in ``[S − received_at, S + 1 − sent_at]``. Many replies narrow that second down to milliseconds. Bounds that
  contradict each other mean that a clock was set, or that another API server with another clock replied: then only the
  newest reply counts.
- `store_time_us`, the time for tokens.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime

_SECOND_US = 1_000_000
_WRITES_PER_SECOND_MAX = 20_000  # more than an etcd can do


def store_time_us(date_s: int, version: str) -> int:
    """Return a time in µs that increases with every write, although the server shows only whole seconds.

    Resource versions are etcd revisions: each write to the cluster has a larger one. Their last six digits replace the
    missing microseconds. If a version is not a number, the whole second is used.
    """
    return date_s * _SECOND_US + (int(version) % _SECOND_US if version.isdecimal() else 0)


def may_have_begun_again(version: str) -> bool:
    """Whether the last six digits may have restarted from zero within this second.

    Then `store_time_us` may be smaller than a moment ago, and an acquisition without other information (because the
    record was deleted) has to wait for the next second.
    """
    if not version.isdecimal():
        return True
    return int(version) >= _SECOND_US and int(version) % _SECOND_US < _WRITES_PER_SECOND_MAX


class ServerClock:
    """What is known of the server's time. Several threads may update it: a lost update only costs precision."""

    __slots__ = ("_bounds", "_last", "date_s")

    def __init__(self) -> None:
        self.date_s = 0
        """The largest date seen, in seconds since 1970; 0 before the first reply."""
        self._last = ("", 0)
        self._bounds = (float("-inf"), float("inf"))

    def note(self, header: str, *, sent_at: float, received_at: float) -> None:
        """Record the ``Date`` of a reply. An invalid header is ignored."""
        last_header, seen_s = self._last
        if header != last_header:
            try:
                seen_s = int(parsedate_to_datetime(header).timestamp())
            except ValueError:
                return
            self._last = (header, seen_s)
            self.date_s = max(self.date_s, seen_s)
        self._narrow(seen_s - received_at, seen_s + 1 - sent_at)

    def _narrow(self, low: float, high: float) -> None:
        known_low, known_high = self._bounds
        if low > known_high or high < known_low:
            self._bounds = (low, high)
        else:
            self._bounds = (max(low, known_low), min(high, known_high))

    @property
    def is_known(self) -> bool:
        """Whether any reply had a date."""
        return self.date_s > 0

    def earliest_us(self, now: float) -> int:
        """Return the earliest possible server time at the monotonic reading `now`."""
        return int((self._bounds[0] + now) * _SECOND_US) if self.is_known else 0

    def latest_us(self, now: float) -> int:
        """Return the latest possible server time."""
        return int((self._bounds[1] + now) * _SECOND_US) + 1 if self.is_known else 0
