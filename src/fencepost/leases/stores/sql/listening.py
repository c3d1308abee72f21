"""PostgreSQL notifies waiters when a name may be free: one LISTEN connection per process, shared by all waiters.

It is the only connection that waiters need: the regular checks use it as well.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from fencepost.core.grants import Held, LeaseRecord
from fencepost.core.runtime import Flag, Runtime
from fencepost.errors import StoreUnavailable
from fencepost.leases.stores.sql.waiting import Read, has_changed
from fencepost.sql.parents import leave_to_parent
from fencepost.sql.psycopg_channel import Channel
from fencepost.sql.psycopg_link import ERRORS

_LINGER_S = 30.0  # the next waiter often comes soon, and then needs no new connection
_LOOK_EVERY_S = 1.0  # how late a waiter notices a release whose notification was lost

Dial = Callable[[], Channel]
Mark = Callable[[str, float], None]
Rest = Callable[[], None]  # closes connections that are not used while waiting
LookAt = Callable[[Channel, str], LeaseRecord | None]


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """One waiter: the refusal it got, and the flag that is set when it may no longer be true."""

    held: Held
    changed: Flag


class LeaseListener:
    """Waits for notifications, and also checks every second, because a notification can be lost.

    A waiter marks the lease's row, and the end of a grant sends a notification only if it finds the mark. The order
    is: listen, mark, check, wait. So either the check sees the end, or the end sees the mark.
    """

    def __init__(self, runtime: Runtime, *, dial: Dial, mark: Mark, read: Read, look: LookAt, rest: Rest) -> None:
        self._runtime = runtime
        self._rest = rest
        self._dial = dial
        self._mark = mark
        self._read = read
        self._look = look
        self._lock = runtime.lock()
        self._ear: _Ear | None = None

    def forget(self) -> None:
        """Reset in a forked child: the listener and its connection belong to the parent."""
        leave_to_parent([self._ear])
        self._lock = self._runtime.lock()
        self._ear = None

    def wait(self, held: Held, timeout_s: float) -> None:
        """Return when the name may be free, or after `timeout_s`."""
        until = self._runtime.monotonic() + timeout_s
        waiter, ear = Waiter(held, self._runtime.event()), self._listener()
        ear.add(waiter)
        try:
            if not ear.listens_within(timeout_s):
                return
            self._mark(held.name, timeout_s)
            if not has_changed(held, self._read(held.name)):
                self._rest()
                waiter.changed.wait(max(until - self._runtime.monotonic(), 0.0))
        finally:
            ear.remove(waiter)

    def shutdown(self) -> None:
        """End the listener."""
        with self._lock:
            if self._ear is not None:
                self._ear.stop()
            self._ear = None

    def _listener(self) -> _Ear:
        with self._lock:
            if self._ear is None or self._ear.is_closed:
                self._ear = _Ear(self._runtime, self._dial, self._look)
                self._runtime.spawn("fencepost-listen", self._ear.listen)
            return self._ear


class _Ear:
    """The connection that listens, and the waiters for each name.

    It connects on its own task, so that all waiters wait for it at the same time, not one after the other.
    """

    def __init__(self, runtime: Runtime, dial: Dial, look: LookAt) -> None:
        self._lock = runtime.lock()
        self._dial = dial
        self._look = look
        self._has_dialled = runtime.event()
        self._failure: StoreUnavailable | None = None
        self._waiting: list[Waiter] = []
        self._clock = runtime.monotonic
        self._wanted_at = self._clock()
        self.is_closed = False

    def listens_within(self, timeout_s: float) -> bool:
        """Wait for the connection. Raises `StoreUnavailable` if it could not be opened."""
        has_dialled = self._has_dialled.wait(timeout_s)
        if self._failure is not None:
            raise StoreUnavailable(str(self._failure)) from self._failure
        return has_dialled

    def add(self, waiter: Waiter) -> None:
        with self._lock:
            self._waiting.append(waiter)

    def remove(self, waiter: Waiter) -> None:
        with self._lock:
            self._waiting.remove(waiter)

    def stop(self) -> None:
        self.is_closed = True

    def listen(self) -> None:
        """Connect, and pass notifications on until there was no waiter for a while, or the connection breaks."""
        try:
            self._listen_on(self._dial())
        except StoreUnavailable as error:
            self._failure = error
        finally:
            self.is_closed = True
            self._has_dialled.set()
            self._wake_all()

    def _listen_on(self, channel: Channel) -> None:
        self._has_dialled.set()
        look_at = self._clock() + _LOOK_EVERY_S
        with suppress(*ERRORS, OSError):
            while self._is_wanted():
                for name in channel.wait(look_at - self._clock()):
                    self._wake(name)
                if self._clock() >= look_at:
                    self._look_for_all(channel)
                    look_at = self._clock() + _LOOK_EVERY_S
        channel.close()

    def _is_wanted(self) -> bool:
        """Whether there is a waiter, or was one a moment ago."""
        with self._lock:
            if self._waiting:
                self._wanted_at = self._clock()
            elif self._clock() > self._wanted_at + _LINGER_S:
                self.is_closed = True
        return not self.is_closed

    def _look_for_all(self, channel: Channel) -> None:
        """Wake the waiters whose refusal is no longer true, even without a notification."""
        waiters = self._who_waits()
        for name in {waiter.held.name for waiter in waiters}:
            record = self._look(channel, name)
            for waiter in waiters:
                if waiter.held.name == name and has_changed(waiter.held, record):
                    waiter.changed.set()

    def _wake(self, name: str) -> None:
        for waiter in self._who_waits():
            if waiter.held.name == name:
                waiter.changed.set()

    def _wake_all(self) -> None:
        for waiter in self._who_waits():
            waiter.changed.set()

    def _who_waits(self) -> list[Waiter]:
        with self._lock:
            return list(self._waiting)
