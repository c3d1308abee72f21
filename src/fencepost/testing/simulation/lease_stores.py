"""Lease stores of the simulation: the memory store as a server, one that forgets, and the way of a process to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

from fencepost.core.grants import AlreadyDone, Grant, Held, LeaseRecord, Lost, PastGrant, Renewed, Session
from fencepost.core.tick import Tick
from fencepost.errors import StoreUnavailable
from fencepost.leases.store import Capabilities
from fencepost.leases.stores.memory import MemoryStore
from fencepost.proof.history import EntryKind, History
from fencepost.testing.simulation.hub import Hub, Process
from fencepost.testing.simulation.runtime import StoreRuntime
from fencepost.testing.simulation.weather import AFTER, BEFORE, LATE, SLOW, Weather

T = TypeVar("T")

_REMEMBERED = 64  # acquisitions; a store that is to forget more of them forgets everything


class ForgetfulStore(MemoryStore):
    """Like a server whose replica is promoted: it forgets what it acknowledged a moment ago.

    Only names are forgotten: sessions stay. So a name may come back with a holder that has released it, and belong to
    a session that is renewed for ever.
    """

    def __init__(self, runtime: StoreRuntime) -> None:
        super().__init__(runtime)
        self._states: list[tuple[float, dict[str, Any]]] = []

    def acquire(
        self, session: Session, name: str, *, grant_id: str, tick: Tick | None = None, floor: int = 0
    ) -> Grant | Held | AlreadyDone | Lost:
        """Take the name, and remember how it was before."""
        self._states.append((self._runtime.monotonic(), dict(self._entries)))
        del self._states[:-_REMEMBERED]
        return super().acquire(session, name, grant_id=grant_id, tick=tick, floor=floor)

    def forget(self, seconds: float) -> None:
        """Restore the state of that time ago; before its oldest state, it is empty."""
        now = self._runtime.monotonic()
        newer = [state for state in self._states if state[0] > now - seconds]
        if not newer:
            return
        before = newer[0][1] if len(newer) < len(self._states) else {}
        self._entries = dict(before)
        self._states = self._states[: -len(newer)]


class InOrder(frozenset[str]):
    """A set with the same order of iteration in every process."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__()))


class Way:
    """The connection of one process to a lease store: each call takes time, may fail, and is recorded."""

    def __init__(
        self,
        store: MemoryStore,
        *,
        hub: Hub,
        weather: Weather,
        history: History,
        process: Process,
        slot: int,
        kind: str,
        latency_s: float,
        call_timeout_s: float,
    ) -> None:
        self._store = store
        self._hub = hub
        self._weather = weather
        self._history = history
        self._process = process
        self._slot = slot
        self._kind = kind
        self._latency_s = latency_s
        self._timeout_s = call_timeout_s

    @property
    def capabilities(self) -> Capabilities:
        return self._store.capabilities

    def start(self) -> tuple[str, ...]:
        return ()

    def open(self, holder: str, *, ttl_s: float, call_timeout_s: float) -> Session:
        call = self._invoke("open")
        opened = self._told(call, "open", lambda: self._store.open(holder, ttl_s=ttl_s, call_timeout_s=call_timeout_s))
        self._end(call, "open", EntryKind.OK, session=opened.id)
        return opened

    def renew(self, session: Session, grants: Collection[Grant]) -> Renewed | Lost:
        call = self._invoke("renew", session=session.id)
        outcome = self._told(call, "renew", lambda: self._store.renew(session, grants))
        if isinstance(outcome, Renewed):
            self._end(call, "renew", EntryKind.OK, session=session.id, detail={"gone": sorted(outcome.gone)})
        else:
            self._end(call, "renew", EntryKind.REFUSED, session=session.id)
        return outcome

    def acquire(
        self, session: Session, name: str, *, grant_id: str, tick: Tick | None = None, floor: int = 0
    ) -> Grant | Held | AlreadyDone | Lost:
        call = self._invoke("acquire", name=name, session=session.id, grant=grant_id)
        outcome = self._told(
            call,
            "acquire",
            lambda: self.taking(
                name, lambda: self._store.acquire(session, name, grant_id=grant_id, tick=tick, floor=floor)
            ),
        )
        if isinstance(outcome, Grant):
            self._end(call, "acquire", EntryKind.OK, name=name, token=outcome.token, grant=grant_id, session=session.id)
        else:
            self._end(
                call, "acquire", EntryKind.REFUSED, name=name, grant=grant_id, session=session.id, detail=_why(outcome)
            )
        return outcome

    def release(self, grant: Grant, *, done: bool = True, keep_for_s: float = 0.0) -> bool:
        about: dict[str, Any] = {"name": grant.name, "grant": grant.grant_id, "token": grant.token}
        call = self._invoke("release", **about)
        was_held = self._told(call, "release", lambda: self._store.release(grant, done=done, keep_for_s=keep_for_s))
        self._end(call, "release", EntryKind.OK if was_held else EntryKind.REFUSED, **about)
        return was_held

    def missing(self, grants: Collection[Grant]) -> frozenset[str]:
        return InOrder(self._do(lambda: self._store.missing(grants)))

    def close(self, session: Session) -> None:
        call = self._invoke("close", session=session.id)
        self._told(call, "close", lambda: self._store.close(session))
        self._end(call, "close", EntryKind.OK, session=session.id)

    def read(self, name: str) -> LeaseRecord | None:
        return self._do(lambda: self._store.read(name))

    def records(self) -> Iterator[LeaseRecord]:
        return self._do(self._store.records)

    def history(self, name: str | None, *, limit: int) -> list[PastGrant]:
        return self._store.history(name, limit=limit)

    def revoke(self, record: LeaseRecord) -> bool:
        return self._do(lambda: self._store.revoke(record))

    def wait_change(self, held: Held, timeout_s: float) -> None:
        self._do(lambda: None)
        self._store.wait_change(held, timeout_s)

    def shutdown(self) -> None:
        """Nothing to close."""

    def forget_connections(self) -> None:
        """Nothing forks here."""

    def taking(self, name: str, take: Callable[[], T]) -> T:
        """Take a name, at the store."""
        return take()

    # -- how a call goes ---------------------------------------------------------------------------------------------

    def _told(self, call: int, what: str, work: Callable[[], T]) -> T:
        try:
            return self._do(work)
        except StoreUnavailable:
            self._end(call, what, EntryKind.UNKNOWN)
            raise

    def _do(self, work: Callable[[], T]) -> T:
        hub = self._hub
        shot = self._weather.shot(self._slot, self._kind)
        if self._weather.is_away(self._slot, self._kind):
            hub.wait(self._timeout_s)
            raise StoreUnavailable("the store does not answer (simulated)")
        self._travel()
        if self._weather.is_away(self._slot, self._kind) or (shot is not None and shot.how == BEFORE):
            raise StoreUnavailable("the store did not get it (simulated)")
        if shot is not None and shot.how == LATE:
            self._happen_later(work)
            raise StoreUnavailable("the store does not answer (simulated)")
        if shot is not None and shot.how == SLOW:
            hub.wait(min(shot.length_s, self._timeout_s))
        result = work()
        self._travel()
        is_late = shot is not None and shot.how == SLOW and shot.length_s >= self._timeout_s
        if is_late or self._weather.is_away(self._slot, self._kind) or (shot is not None and shot.how == AFTER):
            raise StoreUnavailable("the reply was lost (simulated)")
        return result

    def _happen_later(self, work: Callable[[], object]) -> None:
        hub = self._hub
        late_by_s = self._timeout_s * (1 + hub.dice.random())

        def happen() -> None:
            hub.wait(late_by_s)
            work()

        hub.spawn(Process("late", 0), "late call", happen)
        hub.wait(self._timeout_s)

    def _travel(self) -> None:
        draw = self._hub.dice.random()
        self._hub.wait(draw * self._latency_s if draw < 0.98 else draw * 20 * self._latency_s)

    def _invoke(self, what: str, **about: Any) -> int:
        return self._history.invoke(self._hub.now, what, self._process.name, **about)

    def _end(self, call: int, what: str, kind: EntryKind, **about: Any) -> None:
        self._history.end(call, self._hub.now, kind, what, self._process.name, **about)


def _why(refused: Held | AlreadyDone | Lost) -> dict[str, Any]:
    match refused:
        case Held():
            return {"why": "held", "held_by": refused.grant_id} if refused.grant_id else {"why": "held"}
        case AlreadyDone():
            return {"why": "done"}
        case Lost():
            return {"why": "lost"}
