"""One session at a store, kept alive from its opening to its end, and the leases that depend on it.

Two tasks serve it. The *renewer* does what `core.lease.LeaseMachine` asks for, and may hang in a store call. The
*watcher* never calls the store: it waits until trust runs out and then ends every lease, on time, even if the renewer
hangs. If a task fails, it either continues or the session steps down; leases never depend on a task that has died.

A session is *retired* when the outcome of an acquisition or release on it is unknown, because it may then hold a lease
that no process knows of. A retired session accepts no new leases, retries the releases that are owed, and is closed as
soon as its last known lease has ended, which also frees the unknown ones.

A store that fails over to a replica may lose a release that it has confirmed. The name then stays held by a session
that is alive but does not know of it. So the session remembers its last ended grants, and if an acquisition is refused
because of one of them, that grant is released again.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.core.events import Event, What
from fencepost.core.grants import Grant, Lost, Session
from fencepost.core.lease import RAN_OUT, Effect, LeaseMachine, Phase, Renew, StepDown, WakeAt
from fencepost.core.runtime import Runtime
from fencepost.core.timings import Timings
from fencepost.errors import StoreUnavailable
from fencepost.leases.lease import Lease
from fencepost.leases.settler import OwedRelease, Settler
from fencepost.leases.store import LeaseStore

_REMEMBERED = 1000  # ended grants: a failover loses only the latest releases, and memory must stay bounded
# Waits use a clock that stops while the machine is suspended. So they are kept short, and CLOCK_BOOTTIME is read again.
_LONGEST_NAP_S = 1.0


class KeptSession:
    """Keeps `session` alive. Created by a `Keeper`; all methods may be called from any thread."""

    def __init__(
        self,
        *,
        store: LeaseStore,
        runtime: Runtime,
        timings: Timings,
        session: Session,
        opened_at: float,
        emit: Callable[[Event], None],
    ) -> None:
        self.session = session
        self._store = store
        self._runtime = runtime
        self._emit = emit
        self._lock = runtime.lock()
        self._wake = runtime.event()
        self._wake_watcher = runtime.event()
        self._leases: dict[str, Lease] = {}
        self._asking: set[str] = set()
        self._releasing: set[str] = set()
        self._ended: dict[str, OwedRelease] = {}
        self._is_retired = False
        self._is_closing = False
        self._is_unanswered = False
        self._idle_since = opened_at
        self._verified_at = opened_at
        self._machine = LeaseMachine(timings)
        self._machine.granted(sent_at=opened_at, now=opened_at)
        self._settler = Settler(
            store=store,
            runtime=runtime,
            retry_every_s=timings.retry_every_s,
            is_alive=lambda: self._machine.phase is Phase.HELD,
            on_settled=self._wake.set,
        )

    def run(self) -> None:
        """Start the two tasks."""
        self._runtime.spawn("fencepost-renewer", self._renewer)
        self._runtime.spawn("fencepost-watcher", self._watcher)

    @property
    def trusted_until(self) -> float:
        """The monotonic reading at which the right to act ends, unless a renewal moves it."""
        return self._machine.trusted_until

    @property
    def timings(self) -> Timings:
        """The timings in effect: those requested, or shorter ones that the store imposed."""
        return self._machine.timings

    def is_trusted(self) -> bool:
        """Whether leases of this session may act now."""
        return self._machine.is_trusted_at(self._runtime.monotonic())

    def has_ended(self) -> bool:
        """Whether trust has ended, decided under the lock: a concurrent renewal counts before this or not at all."""
        if self.is_trusted():
            return False
        with self._lock:
            self._machine.expire(self._runtime.monotonic())
            has_ended = self._machine.phase is not Phase.HELD
        self._wake_watcher.set()  # it ends the other leases
        return has_ended

    def lost_reason(self) -> str:
        """Return why the session can no longer be trusted."""
        if self._machine.phase is Phase.ENDED:
            return "the store was closed"
        return self._machine.reason or RAN_OUT

    def begin(self, grant_id: str) -> bool:
        """Register one acquisition. Returns False if the session accepts no more leases."""
        with self._lock:
            if self._is_retired or self._is_closing or not self.is_trusted():
                return False
            self._asking.add(grant_id)
            return True

    def adopt(self, lease: Lease) -> bool:
        """End an acquisition with a grant. Returns False if trust ran out in the meantime."""
        with self._lock:
            self._asking.discard(lease.grant.grant_id)
            if not self.is_trusted():
                return False
            self._leases[lease.grant.grant_id] = lease
            return True

    def refused(self, grant_id: str) -> None:
        """End an acquisition without a grant."""
        with self._lock:
            self._asking.discard(grant_id)
            self._idle_since = self._runtime.monotonic()

    def found_dead(self, grant_id: str, reason: str) -> None:
        """End an acquisition, and step down, because the store no longer knows the session."""
        self.refused(grant_id)
        self._refuse(reason)

    def unanswered(self, name: str, grant_id: str) -> None:
        """End an acquisition whose outcome is unknown to the caller: a lease that it got must be released."""
        with self._lock:
            self._asking.discard(grant_id)
        doubtful_until = self._runtime.monotonic() + self.session.ttl_s
        self._owe(OwedRelease(Grant(name, self.session, grant_id, token=0), doubtful_until=doubtful_until))

    def drop(self, lease: Lease) -> bool:
        """Forget a lease that its owner ends. Returns False if it was already gone.

        The session is not closed until `settled` is called, when the release was confirmed or is owed. Otherwise the
        store would find nothing to release, and would not mark the tick as done.
        """
        with self._lock:
            known = self._leases.pop(lease.grant.grant_id, None)
            self._releasing.add(lease.grant.grant_id)
            self._idle_since = self._runtime.monotonic()
            return known is not None and self.is_trusted()

    def settled(self, lease: Lease) -> None:
        """Record that a lease's owner has ended it."""
        with self._lock:
            self._releasing.discard(lease.grant.grant_id)

    def note_end(self, grant: Grant, *, done: bool = False, keep_until: float = 0.0) -> None:
        """Remember a grant whose end the store has confirmed."""
        with self._lock:
            self._ended[grant.grant_id] = OwedRelease(grant, done, keep_until)
            if len(self._ended) > _REMEMBERED:
                del self._ended[next(iter(self._ended))]

    def release_again(self, grant_id: str) -> None:
        """Release a grant again if it is an ended one of this session: the store has lost the first release."""
        owed = self._ended.get(grant_id)
        if owed is not None:
            self._settler.owe(owed)

    def owe_release(self, grant: Grant, *, done: bool, keep_until: float) -> None:
        """Retry a release in the background until the store replies."""
        self._owe(OwedRelease(grant, done, keep_until))

    def close(self) -> None:
        """End the session now; its leases are free at once. If the store does not reply, the session expires there."""
        with self._lock:
            was_live = self._machine.phase is Phase.HELD
            self._machine.released()
        self._step_down(self.lost_reason())
        if was_live and self._settler.settle_now():
            try:
                self._store.close(self.session)
            except Exception:  # noqa: BLE001 - the outcome is unknown; the session expires by itself
                return

    def forget(self) -> None:
        """In a forked child: everything here belongs to the parent, and a lock may be held by a thread that is gone."""
        self._lock = self._runtime.lock()
        self._machine.refused("the process was forked; leases belong to the parent")
        for lease in self._leases.values():
            lease.forget(self.lost_reason())
        self._leases.clear()

    # -- the renewer ---------------------------------------------------------------------------------------------

    def _renewer(self) -> None:
        try:
            while self._machine.phase is Phase.HELD and not self._close_if_idle():
                with self._lock:
                    effect = self._machine.tick(self._runtime.monotonic())
                self._carry_out(effect)
        except Exception as error:
            self._refuse(f"the renewer failed: {error!r}")
            raise

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Renew():
                self._renew()
            case StepDown(reason):
                self._step_down(reason)
            case WakeAt(at):
                self._wake.wait(min(max(at - self._runtime.monotonic(), 0.0), _LONGEST_NAP_S))
                self._wake.clear()

    def _renew(self) -> None:
        with self._lock:
            grants = [lease.grant for lease in self._leases.values()]
        sent_at = self._runtime.monotonic()
        try:
            outcome = self._store.renew(self.session, grants)
        except Exception as error:  # noqa: BLE001 - the renewer must survive any error of a driver
            self._unanswered_renewal(error)
            return
        if isinstance(outcome, Lost):
            self._refuse(outcome.reason)
            return
        with self._lock:
            effect = self._machine.renewed(sent_at=sent_at, now=self._runtime.monotonic())
        self._wake_watcher.set()
        self._report_renewed()
        self._lose_gone(outcome.gone | self._verified(grants), among=grants)
        if isinstance(effect, StepDown):
            self._step_down(effect.reason)

    def _unanswered_renewal(self, error: Exception) -> None:
        with self._lock:
            effect = self._machine.unknown(self._runtime.monotonic())
        if not self._is_unanswered:  # report the first failure only, not each retry
            self._is_unanswered = True
            self._emit(Event(What.RENEWAL_UNANSWERED, holder=self.session.holder, reason=str(error) or repr(error)))
        if isinstance(effect, StepDown):
            self._step_down(effect.reason)

    def _report_renewed(self) -> None:
        self._emit(Event(What.RENEWED, holder=self.session.holder))
        if self._is_unanswered:
            self._is_unanswered = False
            self._emit(Event(What.RENEWAL_ANSWERED, holder=self.session.holder))

    def _verified(self, grants: list[Grant]) -> frozenset[str]:
        """Check the single grants once per ttl, if the store's renewals do not report on them."""
        now = self._runtime.monotonic()
        if self._store.capabilities.renewal_sees_grants or now < self._verified_at + self.session.ttl_s:
            return frozenset()
        self._verified_at = now
        try:
            return self._store.missing(grants) if grants else frozenset()
        except StoreUnavailable:
            return frozenset()

    def _lose_gone(self, gone: frozenset[str], *, among: list[Grant]) -> None:
        for grant in among:
            if grant.grant_id in gone:
                with self._lock:
                    lease = self._leases.pop(grant.grant_id, None)
                if lease is not None:
                    self.note_end(grant)
                    lease.end("the store no longer knows this grant: it was revoked, deleted, or taken over")

    def _close_if_idle(self) -> bool:
        with self._lock:
            if self._leases or self._asking or self._releasing or self._settler.has_debts:
                return False
            idle_s = self._runtime.monotonic() - self._idle_since
            if not self._is_retired and idle_s < self.session.ttl_s:
                return False
            self._is_closing = True
        self.close()
        return True

    def _owe(self, owed: OwedRelease) -> None:
        """Retire the session, because it may hold a lease that no process knows of, and retry the release."""
        with self._lock:
            self._is_retired = True
            self._leases.pop(owed.grant.grant_id, None)
        self._settler.owe(owed)

    # -- the watcher ---------------------------------------------------------------------------------------------

    def _watcher(self) -> None:
        while self._machine.phase is Phase.HELD:
            with self._lock:
                effect = self._machine.expire(self._runtime.monotonic())
            if isinstance(effect, StepDown):
                break
            self._wake_watcher.wait(min(max(effect.at - self._runtime.monotonic(), 0.0), _LONGEST_NAP_S))
            self._wake_watcher.clear()
        self._step_down(self.lost_reason())  # the task that noticed first may have been interrupted on the way

    def _refuse(self, reason: str) -> None:
        with self._lock:
            effect = self._machine.refused(reason)
        if isinstance(effect, StepDown):
            self._step_down(effect.reason)

    def _step_down(self, reason: str) -> None:
        """End every lease. Each is removed only after it has ended, so that an interruption leaves none out."""
        self._wake.set()
        self._wake_watcher.set()
        while (lease := self._any_lease()) is not None:
            lease.end(reason)
            with self._lock:
                self._leases.pop(lease.grant.grant_id, None)

    def _any_lease(self) -> Lease | None:
        with self._lock:
            return next(iter(self._leases.values()), None)
