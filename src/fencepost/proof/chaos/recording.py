"""A lease store that records every call that changes a lease, and its outcome."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from fencepost.core.grants import AlreadyDone, Grant, Held, LeaseRecord, Lost, Renewed, Session
from fencepost.core.tick import Tick
from fencepost.errors import StoreUnavailable
from fencepost.leases.store import Capabilities, LeaseStore
from fencepost.proof.chaos.lines import Recorder
from fencepost.proof.history import EntryKind


class RecordingStore:
    """Wraps a store, and records acquire, renew, release and revoke."""

    def __init__(self, store: LeaseStore, recorder: Recorder) -> None:
        self._store = store
        self._recorder = recorder

    @property
    def capabilities(self) -> Capabilities:
        """Those of the store."""
        return self._store.capabilities

    def renew(self, session: Session, grants: Collection[Grant]) -> Renewed | Lost:
        """Renew, and record which grants are gone."""
        call = self._recorder.invoke("renew", session=session.id)
        try:
            outcome = self._store.renew(session, grants)
        except StoreUnavailable:
            self._recorder.end(call, EntryKind.UNKNOWN, "renew", session=session.id)
            raise
        if isinstance(outcome, Lost):
            self._recorder.end(call, EntryKind.REFUSED, "renew", session=session.id)
        else:
            self._recorder.end(call, EntryKind.OK, "renew", session=session.id, detail={"gone": sorted(outcome.gone)})
        return outcome

    def acquire(
        self, session: Session, name: str, *, grant_id: str, tick: Tick | None = None, floor: int = 0
    ) -> Grant | Held | AlreadyDone | Lost:
        """Acquire, and record the token."""
        fields = {"name": name, "session": session.id, "grant": grant_id}
        call = self._recorder.invoke("acquire", **fields)
        try:
            outcome = self._store.acquire(session, name, grant_id=grant_id, tick=tick, floor=floor)
        except StoreUnavailable:
            self._recorder.end(call, EntryKind.UNKNOWN, "acquire", **fields)
            raise
        if isinstance(outcome, Grant):
            self._recorder.end(call, EntryKind.OK, "acquire", **fields, token=outcome.token)
        else:
            self._recorder.end(call, EntryKind.REFUSED, "acquire", **fields, detail=_why(outcome))
        return outcome

    def release(self, grant: Grant, *, done: bool = True, keep_for_s: float = 0.0) -> bool:
        """Release, and record whether it was ours."""
        call = self._began("release", grant)
        try:
            was_ours = self._store.release(grant, done=done, keep_for_s=keep_for_s)
        except StoreUnavailable:
            self._ended(call, EntryKind.UNKNOWN, "release", grant)
            raise
        self._ended(call, EntryKind.OK if was_ours else EntryKind.REFUSED, "release", grant)
        return was_ours

    def revoke(self, record: LeaseRecord) -> bool:
        """Revoke; chaos never does."""
        return self._store.revoke(record)

    def start(self) -> tuple[str, ...]:
        return self._store.start()

    def open(self, holder: str, *, ttl_s: float, call_timeout_s: float) -> Session:
        """Open a session, and record its name."""
        call = self._recorder.invoke("open")
        session = self._store.open(holder, ttl_s=ttl_s, call_timeout_s=call_timeout_s)
        self._recorder.end(call, EntryKind.OK, "open", session=session.id)
        return session

    def missing(self, grants: Collection[Grant]) -> frozenset[str]:
        return self._store.missing(grants)

    def close(self, session: Session) -> None:
        """Close the session; what still hangs on it is free from then on."""
        call = self._recorder.invoke("close", session=session.id)
        self._store.close(session)
        self._recorder.end(call, EntryKind.OK, "close", session=session.id)

    def read(self, name: str) -> LeaseRecord | None:
        return self._store.read(name)

    def records(self) -> Iterator[LeaseRecord]:
        return self._store.records()

    def wait_change(self, held: Held, timeout_s: float) -> None:
        self._store.wait_change(held, timeout_s)

    def shutdown(self) -> None:
        self._store.shutdown()

    def forget_connections(self) -> None:
        self._store.forget_connections()

    def _began(self, what: str, grant: Grant) -> int:
        return self._recorder.invoke(what, **_of(grant))

    def _ended(self, call: int, kind: EntryKind, what: str, grant: Grant) -> None:
        self._recorder.end(call, kind, what, **_of(grant))


def _why(outcome: Held | AlreadyDone | Lost) -> dict[str, Any]:
    if isinstance(outcome, Held):
        return {"why": "held", "held_by": outcome.grant_id} if outcome.grant_id else {"why": "held"}
    return {"why": "lost" if isinstance(outcome, Lost) else "done"}


def _of(grant: Grant) -> dict[str, Any]:
    return {"name": grant.name, "session": grant.session.id, "token": grant.token, "grant": grant.grant_id}
