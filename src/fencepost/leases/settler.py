"""Releases that the store has not confirmed, retried until it does.

An acquisition without a reply is released too, because it may have been granted. If the request was only slow, it may
even be granted *after* a release that found nothing. So such a release is repeated for a while, even if the store
replied to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fencepost.core.grants import Grant
from fencepost.core.runtime import Runtime
from fencepost.leases.store import LeaseStore


@dataclass(frozen=True, slots=True)
class OwedRelease:
    """A release that the store has not confirmed. Before `doubtful_until`, the reply "nothing held" is not enough."""

    grant: Grant
    done: bool = False
    keep_until: float = 0.0
    doubtful_until: float = float("-inf")

    @property
    def is_doubtful(self) -> bool:
        """Whether the acquisition may not have been granted at all."""
        return self.doubtful_until > float("-inf")


class Settler:
    """Retries the owed releases of one session, on a task that runs only while there are any."""

    def __init__(
        self,
        *,
        store: LeaseStore,
        runtime: Runtime,
        retry_every_s: float,
        is_alive: Callable[[], bool],
        on_settled: Callable[[], None],
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._retry_every_s = retry_every_s
        self._is_alive = is_alive
        self._on_settled = on_settled
        self._lock = runtime.lock()
        self._owed: list[OwedRelease] = []
        self._is_running = False

    @property
    def has_debts(self) -> bool:
        """Whether a release is owed that must be done before the session is closed."""
        return any(not owed.is_doubtful for owed in self._owed)

    def owe(self, owed: OwedRelease) -> None:
        """Retry a release in the background until it is confirmed or the session has ended."""
        with self._lock:
            if owed in self._owed:
                return
            self._owed.append(owed)
            must_start, self._is_running = not self._is_running, True
        if must_start:
            self._runtime.spawn("fencepost-settler", self._run)

    def settle_now(self) -> bool:
        """Try each release once, before the session is closed. Returns False if the store did not reply."""
        debts = [owed for owed in self._owed if not owed.is_doubtful]
        return all(self._is_settled(owed) for owed in debts)

    def _run(self) -> None:
        while self._is_alive():
            for owed in list(self._owed):
                if self._is_settled(owed):
                    self._strike_out(owed)
            with self._lock:
                self._is_running = bool(self._owed)
            if not self._is_running:
                break
            self._runtime.sleep(self._retry_every_s)
        self._on_settled()

    def _is_settled(self, owed: OwedRelease) -> bool:
        now = self._runtime.monotonic()
        try:
            was_held = self._store.release(owed.grant, done=owed.done, keep_for_s=max(owed.keep_until - now, 0.0))
        except Exception:  # noqa: BLE001 - the outcome is unknown; retried until the session ends
            return False
        return was_held or now >= owed.doubtful_until

    def _strike_out(self, owed: OwedRelease) -> None:
        with self._lock:
            if owed in self._owed:
                self._owed.remove(owed)
