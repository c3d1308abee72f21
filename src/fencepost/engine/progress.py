"""The progress of a run on its way to the ledger: a separate task sends the latest value about twice a second.

Progress is only for display. It never makes the job wait, and if the ledger does not answer, the value is dropped and
the run continues. The last value is sent after a pause, and at the latest when the function returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fencepost.core.texts import beginning
from fencepost.engine.context import RunContext
from fencepost.errors import FencepostError

EVERY_S = 0.5  # people do not read faster, and the ledger need not write more often
LONGEST_NOTE = 500  # a sentence


class RunProgress:
    """The progress of one run. `show` may be called from any thread."""

    def __init__(self, context: RunContext, run_id: int, token: int) -> None:
        self._context = context
        self._run_id = run_id
        self._token = token
        self._lock = context.runtime.lock()
        self._send_lock = context.runtime.lock()  # held while sending, so that values arrive in order
        self._shown: tuple[float, str | None] | None = None
        self._is_sending = False
        self._sent_at = float("-inf")
        self._holders = 0

    def show(self, fraction: float, note: str | None = None) -> None:
        """Set the value; it is sent after a pause."""
        number = float(fraction)
        if not math.isfinite(number):
            raise ValueError(f"progress {fraction!r} is not a fraction; give a number from 0 to 1")
        with self._lock:
            self._shown = (min(max(number, 0.0), 1.0), None if note is None else beginning(str(note), LONGEST_NOTE))
        self._begin()

    def hold(self) -> Callable[[], None]:
        """Send nothing until the returned function is called."""
        with self._lock:
            self._holders += 1
        return self._let_go

    def settle(self) -> None:
        """Send what is left, now."""
        self._send()

    def _let_go(self) -> None:
        with self._lock:
            self._holders -= 1
        self._begin()

    def _begin(self) -> None:
        """Start the sender, unless it is running or has nothing to send."""
        with self._lock:
            if self._is_sending or self._shown is None or self._holders:
                return
            self._is_sending = True
        self._context.runtime.spawn("fencepost-progress", self._send_in_time)

    def _send_in_time(self) -> None:
        runtime = self._context.runtime
        while self._is_wanted():
            pause_s = self._sent_at + EVERY_S - runtime.monotonic()
            if pause_s > 0:
                runtime.sleep(pause_s)
            self._send()

    def _is_wanted(self) -> bool:
        with self._lock:
            self._is_sending = self._shown is not None and not self._holders
            return self._is_sending

    def _send(self) -> None:
        with self._send_lock:
            shown = self._taken()
            if shown is None:
                return
            try:
                self._context.show(self._run_id, self._token, *shown)
            except FencepostError:
                return  # the value is only for display, and the next one replaces it

    def _taken(self) -> tuple[float, str | None] | None:
        """Remove and return the value to be sent now."""
        with self._lock:
            if self._holders:
                return None
            shown, self._shown = self._shown, None
            self._sent_at = self._context.runtime.monotonic()
            return shown
