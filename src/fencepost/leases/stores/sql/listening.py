"""PostgreSQL tells when a name may be free: one LISTEN connection per process, shared by all who wait."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

from fencepost.core.grants import Held
from fencepost.core.runtime import Event, Runtime
from fencepost.errors import StoreUnavailable
from fencepost.leases.stores.sql.waiting import Read, has_changed

_LOOK_EVERY_S = 1.0
_LINGER_ROUNDS = 30
_ROUND_S = 1.0

Dial = Callable[[], psycopg.Connection[Any]]
Mark = Callable[[str, float], None]


class Listening:
    """Waits for notifications, and looks for itself every second, for a notification can be lost.

    Those who wait mark the lease's row; who ends a grant notifies only if it finds the mark. The order is: listen,
    mark, look, wait. So either the look sees the end, or the end sees the mark.
    """

    def __init__(self, runtime: Runtime, *, dial: Dial, mark: Mark, read: Read) -> None:
        self._runtime = runtime
        self._dial = dial
        self._mark = mark
        self._read = read
        self._lock = runtime.lock()
        self._ear: _Ear | None = None
        self._inherited: list[_Ear | None] = []

    def forget(self) -> None:
        """Begin anew, in a forked child: the listener lives in the parent, and its connection is the parent's."""
        self._inherited.append(self._ear)
        self._lock = self._runtime.lock()
        self._ear = None

    def wait(self, held: Held, timeout_s: float) -> None:
        """Return when the name may be free, or after `timeout_s`."""
        until = self._runtime.monotonic() + timeout_s
        told, ear = self._runtime.event(), self._listener()
        ear.add(held.name, told)
        try:
            if not ear.listens_within(timeout_s):
                return
            self._mark(held.name, timeout_s)
            while not has_changed(held, self._read(held.name)):
                left_s = until - self._runtime.monotonic()
                if left_s <= 0 or told.wait(min(left_s, _LOOK_EVERY_S)):
                    return
        finally:
            ear.remove(held.name, told)

    def shutdown(self) -> None:
        """End the listener."""
        with self._lock:
            if self._ear is not None:
                self._ear.stop()
            self._ear = None

    def _listener(self) -> _Ear:
        with self._lock:
            if self._ear is None or self._ear.is_closed:
                self._ear = _Ear(self._runtime, self._dial)
                self._runtime.spawn("fencepost-listen", self._ear.listen)
            return self._ear


class _Ear:
    """The connection that listens, and who is to be told of which name.

    It connects in its own task, so that those who come meanwhile wait beside each other for it and not in line.
    """

    def __init__(self, runtime: Runtime, dial: Dial) -> None:
        self._lock = runtime.lock()
        self._dial = dial
        self._has_dialled = runtime.event()
        self._failure: StoreUnavailable | None = None
        self._waiting: dict[str, list[Event]] = {}
        self._idle_rounds = 0
        self.is_closed = False

    def listens_within(self, timeout_s: float) -> bool:
        """Wait for the connection; `StoreUnavailable` if it could not be made."""
        has_dialled = self._has_dialled.wait(timeout_s)
        if self._failure is not None:
            raise StoreUnavailable(str(self._failure)) from self._failure
        return has_dialled

    def add(self, name: str, told: Event) -> None:
        with self._lock:
            self._waiting.setdefault(name, []).append(told)

    def remove(self, name: str, told: Event) -> None:
        with self._lock:
            waiting = self._waiting.get(name, [])
            if told in waiting:
                waiting.remove(told)
            if not waiting:
                self._waiting.pop(name, None)

    def stop(self) -> None:
        self.is_closed = True

    def listen(self) -> None:
        """Connect, and pass notifications on until nobody has waited for a while, or the connection breaks."""
        try:
            self._listen_on(self._dial())
        except StoreUnavailable as error:
            self._failure = error
        finally:
            self.is_closed = True
            self._has_dialled.set()
            self._tell_all()

    def _listen_on(self, connection: psycopg.Connection[Any]) -> None:
        self._has_dialled.set()
        with suppress(psycopg.Error, OSError):
            while self._is_wanted():
                for notification in connection.notifies(timeout=_ROUND_S):
                    self._tell(notification.payload)
        with suppress(Exception):
            connection.close()

    def _is_wanted(self) -> bool:
        with self._lock:
            self._idle_rounds = 0 if self._waiting else self._idle_rounds + 1
            if self._idle_rounds > _LINGER_ROUNDS:
                self.is_closed = True
        return not self.is_closed

    def _tell(self, name: str) -> None:
        with self._lock:
            told = list(self._waiting.get(name, ()))
        for event in told:
            event.set()

    def _tell_all(self) -> None:
        with self._lock:
            names = list(self._waiting)
        for name in names:
            self._tell(name)
