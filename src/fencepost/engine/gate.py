"""The gate of an external lease store: a further lease before a run with an exclusive key may start.

The ledger alone decides who owns a run. Where the application names another store for its leases (etcd, Redis, …),
a run with an exclusive key also needs the lease of that name there, so that work is excluded that does not go
through this ledger at all. Order: take the lease → claim in the ledger with the lease's token → start. The run is
trusted until the earlier of the two ends: when the lease is lost, the run is stopped.

**Not promised.** That a lease is never taken in vain: another node may claim the run in between; then it is let go
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from fencepost.core.duration import Duration
from fencepost.core.events import Event, What
from fencepost.core.runs import Claim
from fencepost.core.runtime import Runtime
from fencepost.errors import StoreUnavailable
from fencepost.leases.lease import Lease
from fencepost.leases.locks import Locks


class Gate:
    """The leases that this node holds for the runs it has claimed. Used by the exchange alone."""

    def __init__(
        self,
        locks: Locks,
        *,
        runtime: Runtime,
        ttl: Duration,
        on_lost: Callable[[int, int], None],
        emit: Callable[[Event], None],
    ) -> None:
        self._locks = locks
        self._runtime = runtime
        self._ttl = ttl
        self._on_lost = on_lost
        self._emit = emit
        self._held: dict[str, Lease] = {}
        self._used_by: dict[str, tuple[int, int]] = {}

    def open(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """Take the leases of these keys, each above the token last given under it; return the tokens of those we got.

        A store that does not answer opens nothing: the runs stay queued.
        """
        tokens: dict[str, int] = {}
        for key, last_token in wanted.items():
            lease = self._taken(key, floor=last_token + 1)
            if lease is not None:
                self._held[key] = lease
                tokens[key] = lease.token
        return tokens

    def settle(self, claims: Iterable[Claim]) -> None:
        """Tie the leases to the runs they were taken for, and let go of the rest."""
        for claim in claims:
            if claim.exclusive_key in self._held:
                self._tie(claim.exclusive_key, claim)
        self.release([key for key in self._held if key not in self._used_by], is_in_use=False)

    def release(self, keys: Iterable[str | None], *, is_in_use: bool = True) -> None:
        """Let go of the leases of runs that have ended."""
        for key in keys:
            if key is not None and (lease := self._held.pop(key, None)) is not None:
                if is_in_use:
                    self._used_by.pop(key, None)
                lease.release()

    def close(self) -> None:
        """Let go of everything."""
        self.release(list(self._held))

    def _taken(self, key: str, *, floor: int) -> Lease | None:
        if key in self._held:
            return None  # the run it was taken for has not ended
        try:
            return self._locks.try_lock(key, ttl=self._ttl, floor=floor)
        except StoreUnavailable as error:
            self._emit(Event(What.STORE_WARNING, lock=key, reason=f"the lease store did not answer: {error}"))
            return None

    def _tie(self, key: str, claim: Claim) -> None:
        self._used_by[key] = (claim.run_id, claim.token)
        self._held[key].on_lost(lambda _: self._lost(claim))

    def _lost(self, claim: Claim) -> None:
        with suppress(KeyError):
            self._on_lost(claim.run_id, claim.token)
