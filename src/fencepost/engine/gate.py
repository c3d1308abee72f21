"""The gate of an external lease store: a second lease that a run with an exclusive key needs before it may start.

The ledger alone decides which node owns a run. If the application names another store for its leases (etcd, Redis, …),
a run with an exclusive key also needs the lease of that name there, which excludes work that does not go through this
ledger at all. The order is: take the lease → claim in the ledger with the lease's token → start. The run is trusted
until the earlier of the two ends: when the lease is lost, the run is stopped.

No lease is requested for a key that a run of this ledger holds: the ledger decides about the next run with that key. A
key that the store refuses is not requested again for a moment, so that other keys are tried. A store that does not
answer is not called for a while; only runs with a key wait for it.

**Not promised.** That every lease is used: another node may claim the run in between. Then the lease is released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from fencepost.core.duration import Duration
from fencepost.core.events import Event, What
from fencepost.core.runs import Claim
from fencepost.core.runtime import Runtime
from fencepost.errors import FencepostError, StoreUnavailable
from fencepost.leases.lease import Lease
from fencepost.leases.locks import Locks
from fencepost.ledger.claiming import WantedKey

_REFUSED_FOR_S = 1.0  # who holds the lease is usually at work for longer; asking more often loads the store
_UNUSABLE_FOR_S = 60.0  # a name that the store cannot take stays so until somebody changes the code
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0  # doubled while the store is away: each call delays other runs


class ClaimLike(Protocol):
    """A claim or its ending."""

    @property
    def run_id(self) -> int: ...
    @property
    def token(self) -> int: ...
    @property
    def exclusive_key(self) -> str | None: ...


class Gate:
    """The leases that this node holds for the runs it has claimed. Only the exchange uses it."""

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
        self._refused_until: dict[str, float] = {}
        self._away_until = float("-inf")
        self._pause_s = _FIRST_PAUSE_S
        self.has_refused = False  # in the last call of `open`: then other keys may have been left out

    def refused(self) -> tuple[str, ...]:
        """Return the keys that must not be requested now."""
        now = self._runtime.monotonic()
        self._refused_until = {key: until for key, until in self._refused_until.items() if until > now}
        return tuple(self._refused_until)

    def open(self, wanted: Iterable[WantedKey]) -> dict[str, int]:
        """Take the leases of these keys, each with a token above the last one. Return the tokens of the leases taken.

        Keys that a run holds in the ledger get the token 0, with which no run starts.
        """
        self.has_refused = False
        tokens: dict[str, int] = {}
        for each in wanted:
            if each.is_taken:
                tokens[each.key] = 0
            elif (lease := self._taken(each.key, floor=each.last_token + 1)) is not None:
                self._held[each.key] = lease
                tokens[each.key] = lease.token
        return tokens

    def settle(self, claims: Iterable[Claim]) -> None:
        """Tie the leases to the submitted runs that they were taken for, and release the others."""
        for claim in claims:
            if claim.exclusive_key in self._held:
                self._tie(claim.exclusive_key, claim)
        for key in [key for key in self._held if key not in self._used_by]:
            self._let_go(key)

    def release(self, ended: Iterable[ClaimLike]) -> None:
        """Release the leases of runs that have ended."""
        for each in ended:
            key, used_by = each.exclusive_key, (each.run_id, each.token)
            if key is not None and self._used_by.get(key, used_by) == used_by:
                self._let_go(key)

    def close(self) -> None:
        """Release all leases."""
        for key in list(self._held):
            self._let_go(key)

    def _taken(self, key: str, *, floor: int) -> Lease | None:
        now = self._runtime.monotonic()
        if key in self._held or now < self._away_until:  # held: the run it was taken for has not ended
            return None
        try:
            lease = self._locks.try_lock(key, ttl=self._ttl, floor=floor)
        except StoreUnavailable as error:
            self._leave_alone(f"the lease store did not answer: {error}")
            return None
        except FencepostError as error:
            self._refuse(key, now + _UNUSABLE_FOR_S)
            self._emit(Event(What.STORE_WARNING, lock=key, reason=f"runs with this key cannot start: {error}"))
            return None
        self._pause_s = _FIRST_PAUSE_S
        if lease is None:
            self._refuse(key, now + _REFUSED_FOR_S)
        return lease

    def _refuse(self, key: str, until: float) -> None:
        self._refused_until[key] = until
        self.has_refused = True

    def _leave_alone(self, reason: str) -> None:
        """Do not call the store for a while, longer each time: each call would delay runs that need no lease."""
        self._away_until = self._runtime.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._emit(Event(What.STORE_WARNING, reason=f"{reason}; runs with an exclusive key wait"))

    def _tie(self, key: str, claim: Claim) -> None:
        run_id, token = self._used_by[key] = (claim.run_id, claim.token)
        self._held[key].on_lost(lambda _: self._on_lost(run_id, token))

    def _let_go(self, key: str) -> None:
        self._used_by.pop(key, None)
        lease = self._held.pop(key, None)
        if lease is None:
            return
        try:
            lease.release()
        except FencepostError as error:  # it is retried in the background, so that other keys do not wait for it
            self._emit(Event(What.STORE_WARNING, lock=key, reason=f"the lock could not be released: {error}"))
