"""Releases that the store has not confirmed, repeated until it does.

An acquisition that was not answered is owed a release as well, for it may have been granted. It may even be granted
*after* a release that found nothing, when the request was merely slow; so that one is repeated for a while, although
it was answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fencepost.core.grants import Grant
from fencepost.core.runtime import Runtime
from fencepost.leases.store import LeaseStore


@dataclass(frozen=True, slots=True)
class OwedRelease:
    """A release that is due. Until `doubtful_until`, "there was nothing to release" does not settle it."""

    grant: Grant
    done: bool = False
    keep_until: float = 0.0
    doubtful_until: float = float("-inf")

    @property
    def is_doubtful(self) -> bool:
        """Whether there may be nothing to release at all."""
        return self.doubtful_until > float("-inf")


class Settler:
    """Settles what one session owes, on a task that lives only while something is owed."""

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
        """Whether a release is owed that the end of the session would not settle as well."""
        return any(not owed.is_doubtful for owed in self._owed)

    def owe(self, owed: OwedRelease) -> None:
        """Repeat a release in the background until it is settled or the session has ended."""
        with self._lock:
            if owed in self._owed:
                return
            self._owed.append(owed)
            must_start, self._is_running = not self._is_running, True
        if must_start:
            self._runtime.spawn("fencepost-settler", self._run)

    def settle_now(self) -> bool:
        """Try once, for a session that is about to be closed; False if the store did not answer."""
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
        except Exception:  # noqa: BLE001 - unknown, whatever it was; repeated until the session ends
            return False
        return was_held or now >= owed.doubtful_until

    def _strike_out(self, owed: OwedRelease) -> None:
        with self._lock:
            if owed in self._owed:
                self._owed.remove(owed)
