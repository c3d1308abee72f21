"""Waits for a name by polling. A database with notifications has its own watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fencepost.core.grants import Held, LeaseRecord
from fencepost.core.runtime import Runtime

Read = Callable[[str], LeaseRecord | None]


class RefusalWatch(Protocol):
    """Returns when a refusal may no longer be true."""

    def wait(self, held: Held, timeout_s: float) -> None: ...
    def shutdown(self) -> None: ...
    def forget(self) -> None: ...


class Polling:
    """Checks every `interval_s`, and once at the start, so that no change is missed."""

    def __init__(self, runtime: Runtime, read: Read, *, interval_s: float) -> None:
        self._runtime = runtime
        self._read = read
        self._interval_s = interval_s

    def wait(self, held: Held, timeout_s: float) -> None:
        """Return when the name is free, has another holder, or `timeout_s` have passed."""
        until = self._runtime.monotonic() + timeout_s
        while not has_changed(held, self._read(held.name)):
            left_s = until - self._runtime.monotonic()
            if left_s <= 0:
                return
            self._runtime.sleep(min(self._interval_s, left_s))

    def shutdown(self) -> None:
        """Nothing to end."""

    def forget(self) -> None:
        """Nothing is inherited."""


def has_changed(held: Held, record: LeaseRecord | None) -> bool:
    """Whether `record` differs from the refusal `held`."""
    return record is None or record.token != held.token or record.grant_id != held.grant_id or record.free_in_s is None
