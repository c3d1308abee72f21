"""The page of memory that a supervisor and one worker process share: five words, each written by one side.

==  ===============  ==========  ==================================================================================
 0  `trusted_until`  supervisor  until when, on the monotonic clock, the node may act
 1  `is_lost`        supervisor  the node may no longer act, whatever the clock says
 2  `stop`           supervisor  which claim is to be stopped, and why
 3  `current`        worker      which claim executes, or executed last; zero before the first
 4  `started_at`     worker      since when, on the same clock
==  ===============  ==========  ==================================================================================

A serial number that is never used twice for one worker identifies a claim, so a request to stop one claim cannot stop
the next one.

**Promises.** Each word is eight aligned bytes, read and written as a whole, so no reader sees half a word. `current`
names a claim before its function is called: a worker that dies has started no claim that its page did not show.
"""

from __future__ import annotations

from fencepost.core.runs import StopReason

_TRUSTED_UNTIL, _IS_LOST, _STOP, _CURRENT, _STARTED_AT = range(5)
_BYTES = 8 * 5  # the five words above, eight bytes each
_REASONS = tuple(StopReason)
_STEP = 8  # more than there are reasons


class SharedPage:
    """The words in a page that both processes map."""

    __slots__ = ("_floats", "_ints")

    def __init__(self, page: memoryview) -> None:
        """Use a page of shared memory. A new page is all zeros, which means that there is no trust."""
        self._ints = page[:_BYTES].cast("q")
        self._floats = page[:_BYTES].cast("d")

    def release(self) -> None:
        """Release the views, so that the memory can be unmapped."""
        self._ints.release()
        self._floats.release()

    # -- called by the supervisor ------------------------------------------------------------------------------------

    def trust(self, until: float) -> None:
        """Set the time until which the worker may act."""
        self._floats[_TRUSTED_UNTIL] = until

    def lose(self) -> None:
        """Record that the worker may no longer act."""
        self._ints[_IS_LOST] = 1

    def stop(self, serial: int, why: StopReason) -> None:
        """Ask the worker to stop a claim. Ignored after a request to stop a later claim, because this one has ended."""
        if serial >= self._ints[_STOP] // _STEP:
            self._ints[_STOP] = serial * _STEP + _REASONS.index(why)

    def executing(self) -> tuple[int, float]:
        """Return the claim that executes, or executed last, and since when."""
        while True:
            serial, started_at = self._ints[_CURRENT], self._floats[_STARTED_AT]
            if serial == self._ints[_CURRENT]:
                return serial, started_at

    # -- called by the worker ----------------------------------------------------------------------------------------

    def begin(self, serial: int, now: float) -> None:
        """Show which claim is about to be executed."""
        self._floats[_STARTED_AT] = now
        self._ints[_CURRENT] = serial

    def stopped(self, serial: int) -> StopReason | None:
        """Return why a claim has to stop, or None if the supervisor has not asked for it."""
        if self._ints[_IS_LOST]:
            return StopReason.LOST
        asked, reason = divmod(self._ints[_STOP], _STEP)
        return _REASONS[reason] if asked == serial else None

    def is_trusted_at(self, now: float) -> bool:
        """Whether the node may act at `now`."""
        return now < self._floats[_TRUSTED_UNTIL]
