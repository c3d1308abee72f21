"""The operations of the lease store, as requests to etcd."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from math import ceil
from typing import Any

from fencepost.core.fencing import AHEAD_US
from fencepost.core.grants import AlreadyDone, Grant, Held, LeaseRecord, Lost, Renewed, Session, next_token
from fencepost.core.runtime import Runtime
from fencepost.core.tick import Tick
from fencepost.errors import StoreUnavailable
from fencepost.leases.store import Capabilities, Grade
from fencepost.leases.stores.etcd import checks
from fencepost.leases.stores.etcd.client import Client, EtcdAnswer, EtcdRefused, Lane
from fencepost.leases.stores.etcd.inspection import EtcdInspection
from fencepost.leases.stores.etcd.transactions import (
    Part,
    delete,
    found,
    get,
    is_absent,
    is_held_by,
    is_unchanged,
    put,
    seen,
)
from fencepost.leases.stores.etcd.values import (
    EtcdHold,
    EtcdKeys,
    EtcdNameState,
    EtcdRecord,
    Record,
    grant_id_in,
    hold_of,
    hold_value,
    record_value,
)
from fencepost.leases.stores.known_names import KnownNames
from fencepost.leases.urls import StoreUrl

DEFAULT_PREFIX = "/fencepost"
_NOT_FOUND = 5  # the code of gRPC: etcd does not know the lease, so the session has ended
_ALREADY_EXISTS = "lease already exists"
_ATTEMPTS = 8  # to take a name that others keep taking first, before it counts as held
_KNOWN_LIMIT = 10_000  # records that are remembered: a few megabytes
_GETS_AT_ONCE = 100  # by default, etcd allows 128 operations in a transaction
_PAUSE_WITHOUT_WATCH_S = 0.2  # before the caller asks again, if the watch failed


def from_url(url: StoreUrl, runtime: Runtime) -> EtcdStore:
    """Create the store, without connecting to the server yet."""
    url.only_options(("ca", "cert", "key"))
    return EtcdStore(url, runtime)


class _SessionEnded(StoreUnavailable):
    """etcd does not know the lease of a session."""


class EtcdStore:
    """Leases in etcd. See the package's docstring for what it promises."""

    capabilities = Capabilities(
        grade=Grade.CONSENSUS,
        watch=True,
        renewal_sees_grants=False,
        smallest_ttl_s=2.0,
        loses="what a restored backup does not know",
    )

    def __init__(self, url: StoreUrl, runtime: Runtime) -> None:
        self._url = url
        self._runtime = runtime
        self._call_timeout_s = url.call_timeout_s
        self._client = Client(url, runtime)
        self._keys = EtcdKeys(url.path.rstrip("/") or DEFAULT_PREFIX)
        self._inspection = EtcdInspection(self._ask, self._keys)
        self._known: KnownNames[EtcdRecord] = KnownNames(_KNOWN_LIMIT)
        self._renewal_timeout_s: dict[str, float] = {}
        runtime.after_fork(self, self.forget_connections)

    def start(self) -> tuple[str, ...]:
        """Check version, permissions and size of the cluster."""
        return checks.examine(self._client, self._keys, self._url, self._deadline())

    def open(self, holder: str, *, ttl_s: float, call_timeout_s: float) -> Session:
        """Open a session: an etcd lease of whole seconds, rounded up."""
        lease_id, granted_s = self._grant_lease(ttl_s, self._deadline())
        self._renewal_timeout_s[lease_id] = call_timeout_s
        return Session(lease_id, holder, granted_s)

    def renew(self, session: Session, grants: Collection[Grant]) -> Renewed | Lost:
        """Keep the etcd lease alive, on a separate connection. Only `missing` shows what happened to `grants`."""
        timeout_s = self._renewal_timeout_s.get(session.id, self._call_timeout_s)
        deadline = self._runtime.monotonic() + timeout_s
        answer = self._ask("lease/keepalive", {"ID": session.id}, deadline, self._client.renewals)
        if "result" not in answer.body:
            raise StoreUnavailable(f"etcd could not renew the session: {answer.body.get('error')}")
        if int(answer.body["result"].get("TTL", 0)) <= 0:
            return Lost("the session expired, or was closed")
        return Renewed()

    def acquire(
        self, session: Session, name: str, *, grant_id: str, tick: Tick | None = None, floor: int = 0
    ) -> Grant | Held | AlreadyDone | Lost:
        """Take the name: with one transaction if it is free and the record is as remembered."""
        try:
            return self._acquire(session, name, grant_id, tick, floor)
        except _SessionEnded as ended:
            return Lost(str(ended))

    def _acquire(
        self, session: Session, name: str, grant_id: str, tick: Tick | None, floor: int
    ) -> Grant | Held | AlreadyDone:
        deadline = self._deadline()
        wanted = Grant(name, session, grant_id, 0, tick)
        known = self._known.get(name)
        now = (
            self._look(name, deadline) if known is None or known.has_done(tick) else EtcdNameState(None, "0", 0, known)
        )
        for _ in range(_ATTEMPTS):
            if (answer := self._judge(now, wanted, deadline)) is not None:
                return answer
            token = next_token(previous=now.known.token, floor=floor, store_time_us=self._client.clock.now_us())
            grant = replace(wanted, token=token)
            if (stands_there := self._take(grant, now.known, deadline)) is None:
                return grant
            now = stands_there
        return Held(name, None, now.known.token, None, 0.0)  # others were faster every time

    def release(self, grant: Grant, *, done: bool = True, keep_for_s: float = 0.0) -> bool:
        """Release the grant, in one transaction. Keeping the name closed needs another etcd lease."""
        deadline = self._deadline()
        holder_key = self._keys.holder(grant.name)
        record = self._record_after(grant, deadline) if done and grant.tick is not None else None
        kept_lease, success = None, delete(holder_key)
        if keep_for_s > 0:
            kept_lease, kept_s = self._grant_lease(keep_for_s, deadline)
            success = put(holder_key, hold_value(EtcdHold("", grant.token, None, None, kept_s)), kept_lease)
        body = {
            "compare": is_held_by(holder_key, grant.grant_id),
            "success": [success] if record is None else [success, self._put_record(grant.name, record)],
            "failure": self._gets(grant.name),
        }
        answer = self._txn(body, deadline)
        if not answer.body.get("succeeded"):
            if kept_lease is not None:
                self._revoke_lease(kept_lease, deadline)
            return answer.repeated and _was_let_go(grant, seen(answer))
        if record is not None:
            self._known.remember(grant.name, EtcdRecord(answer.revision, record.token, record))
        return True

    def missing(self, grants: Collection[Grant]) -> frozenset[str]:
        """Compare the holder keys with the grants, a hundred in one round trip."""
        deadline = self._deadline()
        asked = list(grants)
        gone: set[str] = set()
        for start in range(0, len(asked), _GETS_AT_ONCE):
            some = asked[start : start + _GETS_AT_ONCE]
            answer = self._txn({"success": [get(self._keys.holder(grant.name)) for grant in some]}, deadline)
            for index, grant in enumerate(some):
                if grant.grant_id not in map(grant_id_in, found(answer, index)):
                    gone.add(grant.grant_id)
        return frozenset(gone)

    def close(self, session: Session) -> None:
        """Revoke the etcd lease; etcd deletes the holder keys that are attached to it."""
        self._renewal_timeout_s.pop(session.id, None)
        self._revoke_lease(session.id, self._deadline())

    def read(self, name: str) -> LeaseRecord | None:
        """Read one name, and the remaining time of the holder's session."""
        return self._inspection.read(name, self._deadline())

    def records(self) -> Iterator[LeaseRecord]:
        """Read all names, page by page."""
        return self._inspection.records(self._deadline)

    def revoke(self, record: LeaseRecord) -> bool:
        """Delete the holder key, if it still belongs to that grant."""
        deadline = self._deadline()
        now = self._look(record.name, deadline)
        if record.grant_id is None or now.hold is None or now.hold.grant_id != record.grant_id:
            return False
        key = self._keys.holder(record.name)
        answer = self._txn({"compare": [is_unchanged(key, now.hold_revision)], "success": [delete(key)]}, deadline)
        return bool(answer.body.get("succeeded"))

    def reset(self, name: str, token: int, *, reason: str) -> int | None:
        """Reset a token that a wrong clock has put ahead; see `ResetsTokens`."""
        deadline = self._deadline()
        now = self._look(name, deadline)
        now_us, last = self._client.clock.now_us(), now.known.record
        if now.hold is not None or last is None or last.token != token or token <= now_us + AHEAD_US:
            return None
        key = self._keys.record(name)
        unchanged = [is_unchanged(key, now.known.revision), is_absent(self._keys.holder(name))]
        lowered = put(key, record_value(last._replace(token=now_us)))
        answer = self._txn({"compare": unchanged, "success": [lowered]}, deadline)
        return now_us if answer.body.get("succeeded") else None

    def wait_change(self, held: Held, timeout_s: float) -> None:
        """Read the name, and watch from the revision of that read on, so that no change is missed."""
        deadline = self._runtime.monotonic() + timeout_s
        try:
            answer = self._ask("kv/txn", {"success": self._gets(held.name)}, min(deadline, self._deadline()))
            if _is_still(held, seen(answer)):
                self._watch(held.name, answer.revision + 1, deadline)
        except StoreUnavailable:
            left_s = deadline - self._runtime.monotonic()
            self._runtime.sleep(max(0.0, min(left_s, _PAUSE_WITHOUT_WATCH_S)))

    def shutdown(self) -> None:
        """Close all connections."""
        self._client.close()

    def forget_connections(self) -> None:
        """In a forked child: leave all connections to the parent."""
        self._client.forget()

    def _deadline(self) -> float:
        return self._runtime.monotonic() + self._call_timeout_s

    def _look(self, name: str, deadline: float) -> EtcdNameState:
        return self._noted(name, self._txn({"success": self._gets(name)}, deadline))

    def _noted(self, name: str, answer: EtcdAnswer) -> EtcdNameState:
        now = seen(answer)
        self._known.remember(name, now.known if now.known.revision else None)
        return now

    def _take(self, grant: Grant, known: EtcdRecord, deadline: float) -> EtcdNameState | None:
        """Try to become the holder. Returns None on success, or the current state of the name."""
        tick = grant.tick
        marks = tick is not None and tick.at_most_once
        record = Record(
            token=grant.token,
            last_tick_us=tick.at_us if tick is not None and marks else known.last_tick_us,
            holder=grant.session.holder,
            grant_id=grant.grant_id,
            acquired_at_us=self._client.clock.wall_us(),
        )
        holder_key, record_key = self._keys.holder(grant.name), self._keys.record(grant.name)
        body = {
            "compare": [is_absent(holder_key), is_unchanged(record_key, known.revision)],
            "success": [
                put(record_key, record_value(record)),
                put(holder_key, hold_value(hold_of(grant)), grant.session.id),
            ],
            "failure": [get(holder_key), get(record_key)],
        }
        answer = self._txn(body, deadline)
        if not answer.body.get("succeeded"):
            return self._noted(grant.name, answer)
        self._known.remember(grant.name, EtcdRecord(answer.revision, grant.token, record))
        return None

    def _judge(self, now: EtcdNameState, wanted: Grant, deadline: float) -> Grant | Held | AlreadyDone | None:
        """Return the result of an acquisition in this state of the name, or None if the name can be taken."""
        hold, name, tick = now.hold, wanted.name, wanted.tick
        if hold is not None and hold.grant_id == wanted.grant_id:
            return replace(wanted, token=hold.token)
        if hold is not None and not hold.grant_id:
            left_s = self._inspection.left_s(now.lease_id, deadline) or 1.0
            return Held(name, None, hold.token, None, left_s, is_kept=True)
        if hold is not None:
            return Held(name, hold.holder, hold.token, hold.grant_id, hold.ttl_s)
        if tick is not None and now.known.has_done(tick):
            return AlreadyDone(name, tick, now.known.last_tick_us or 0)
        return None

    def _record_after(self, grant: Grant, deadline: float) -> Record:
        """Return the grant's record with its tick marked. While the grant is current, no other process writes it."""
        known = self._known.get(grant.name)
        if known is None or known.token != grant.token:
            known = self._look(grant.name, deadline).known
        record = known.record or Record(grant.token, None, grant.session.holder, grant.grant_id, 0)
        at_us = grant.tick.at_us if grant.tick is not None else 0
        return record._replace(last_tick_us=max(at_us, record.last_tick_us or at_us))

    def _put_record(self, name: str, record: Record) -> Part:
        return put(self._keys.record(name), record_value(record))

    def _gets(self, name: str) -> list[Part]:
        return [get(self._keys.holder(name)), get(self._keys.record(name))]

    def _grant_lease(self, ttl_s: float, deadline: float) -> tuple[str, float]:
        """Create an etcd lease. The client chooses its id, so a repeated request creates only one."""
        lease_id = str(int(self._runtime.new_id(), 16) >> 66 | 1)
        wanted_s = ceil(ttl_s)
        try:
            answer = self._client.call("lease/grant", {"ID": lease_id, "TTL": wanted_s}, deadline)
        except EtcdRefused as error:
            if str(error).endswith(_ALREADY_EXISTS):  # our own, from a request whose reply was lost
                return lease_id, float(wanted_s)
            raise StoreUnavailable(f"etcd refused a lease: {error}") from error
        return lease_id, float(answer.body["TTL"])

    def _revoke_lease(self, lease_id: str, deadline: float) -> None:
        try:
            self._client.call("lease/revoke", {"ID": lease_id}, deadline)
        except EtcdRefused as error:
            if error.code != _NOT_FOUND:
                raise StoreUnavailable(f"etcd refused to revoke a lease: {error}") from error

    def _watch(self, name: str, revision: int, deadline: float) -> None:
        request = {"create_request": {"key": self._keys.holder(name), "start_revision": revision}}
        for message in self._client.stream("watch", request, deadline):
            result = message.get("result", {})
            if result.get("events"):
                return
            if "error" in message or result.get("canceled"):
                raise StoreUnavailable("etcd ended the watch")
        if self._runtime.monotonic() < deadline:
            raise StoreUnavailable("etcd closed the watch")

    def _txn(self, body: dict[str, Any], deadline: float) -> EtcdAnswer:
        return self._ask("kv/txn", body, deadline)

    def _ask(self, method: str, body: dict[str, Any], deadline: float, lane: Lane | None = None) -> EtcdAnswer:
        try:
            return self._client.call(method, body, deadline, lane)
        except EtcdRefused as error:
            if error.code == _NOT_FOUND:
                raise _SessionEnded("the session has ended: etcd no longer knows its lease") from error
            raise StoreUnavailable(f"etcd refused: {error}") from error


def _was_let_go(grant: Grant, now: EtcdNameState) -> bool:
    """Return whether a release that was sent twice succeeded, if the second request found another state.

    If there was no later holder, the state is that after the release. Otherwise the outcome is unknown: either the
    first request released the grant, or the grant had ended before.
    """
    is_open = now.hold is None or not now.hold.grant_id
    if is_open and now.known.token == grant.token:
        return True
    raise StoreUnavailable(f"the connection broke while lock {grant.name!r} was released, and it has changed since")


def _is_still(held: Held, now: EtcdNameState) -> bool:
    return now.hold is not None and now.hold.grant_id == (held.grant_id or "") and now.hold.token == held.token
