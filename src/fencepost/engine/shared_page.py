"""The page of memory that a supervisor and one worker process share: a handful of words, each written by one side.

==  ===============  ==========  ==================================================================================
 0  `trusted_until`  supervisor  until when, on the monotonic clock, the node may act
 1  `is_lost`        supervisor  the right to act is gone, whatever the clock says
 2  `stop`           supervisor  which claim is to be stopped, and why
 3  `current`        worker      which claim executes, or executed last; zero before the first
 4  `started_at`     worker      since when, on the same clock
==  ===============  ==========  ==================================================================================

A claim is named by a serial number that its worker never sees twice, so what is said of one is not heard by the next.

**Promises.** Each word is eight aligned bytes, written and read at once, so no reader sees half a word. `current`
names a claim before its function is called: a worker that dies has started nothing that its board did not show.
"""

from __future__ import annotations

from fencepost.core.runs import StopReason

_TRUSTED_UNTIL, _IS_LOST, _STOP, _CURRENT, _STARTED_AT = range(5)
_BYTES = 8 * 5
_REASONS = tuple(StopReason)
_STEP = 8  # more than there are reasons


class SharedPage:
    """The words, over a page that both processes map."""

    __slots__ = ("_floats", "_ints")

    def __init__(self, page: memoryview) -> None:
        """Look at a page of shared memory; a new one is all zeros, which trusts nobody."""
        self._ints = page[:_BYTES].cast("q")
        self._floats = page[:_BYTES].cast("d")

    def release(self) -> None:
        """Look no more, so that the memory can be given back."""
        self._ints.release()
        self._floats.release()

    # -- the supervisor's --------------------------------------------------------------------------------------------

    def trust(self, until: float) -> None:
        """Let the worker act until then."""
        self._floats[_TRUSTED_UNTIL] = until

    def lose(self) -> None:
        """Let it act no more."""
        self._ints[_IS_LOST] = 1

    def stop(self, serial: int, why: StopReason) -> None:
        """Ask it to stop one claim, unless it was asked to stop a later one: then this one has ended."""
        if serial >= self._ints[_STOP] // _STEP:
            self._ints[_STOP] = serial * _STEP + _REASONS.index(why)

    def executing(self) -> tuple[int, float]:
        """Return the claim that executes, or executed last, and since when."""
        while True:
            serial, started_at = self._ints[_CURRENT], self._floats[_STARTED_AT]
            if serial == self._ints[_CURRENT]:
                return serial, started_at

    # -- the worker's ------------------------------------------------------------------------------------------------

    def begin(self, serial: int, now: float) -> None:
        """Say which claim is about to be executed."""
        self._floats[_STARTED_AT] = now
        self._ints[_CURRENT] = serial

    def stopped(self, serial: int) -> StopReason | None:
        """Return why a claim has to stop, if the supervisor said so."""
        if self._ints[_IS_LOST]:
            return StopReason.LOST
        asked, reason = divmod(self._ints[_STOP], _STEP)
        return _REASONS[reason] if asked == serial else None

    def is_trusted_at(self, now: float) -> bool:
        """Whether the node's trust lasts."""
        return now < self._floats[_TRUSTED_UNTIL]
