"""The operations of the lease store, as requests to ZooKeeper."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from kazoo.exceptions import NodeExistsError, NoNodeError

from fencepost.core.fencing import AHEAD_US
from fencepost.core.grants import AlreadyDone, Grant, Held, LeaseRecord, Lost, Renewed, Session, next_token
from fencepost.core.runtime import Runtime
from fencepost.core.tick import Tick
from fencepost.errors import StoreUnavailable
from fencepost.leases.store import Capabilities, Grade
from fencepost.leases.stores.known_names import KnownNames
from fencepost.leases.stores.zookeeper import checks
from fencepost.leases.stores.zookeeper.clock import ZooKeeperClock
from fencepost.leases.stores.zookeeper.inspection import ZooKeeperInspection
from fencepost.leases.stores.zookeeper.link import Ensemble, Link, SessionEnded
from fencepost.leases.stores.zookeeper.nodes import (
    ZooKeeperNameState,
    ZooKeeperPaths,
    ZooKeeperRecord,
    hold_of,
    new_record,
    to_hold,
)
from fencepost.leases.stores.zookeeper.transactions import (
    Part,
    commit,
    create,
    delete,
    exists,
    is_unchanged,
    write,
)
from fencepost.leases.stores.zookeeper.watches import Watches
from fencepost.leases.urls import StoreUrl

DEFAULT_PORT = 2181
DEFAULT_ROOT = "/fencepost"
# ZooKeeper counts versions in 32 bits, and treats -1 as any version: a record is replaced before the count overflows.
MOST_VERSIONS = 2_000_000_000
_ATTEMPTS = 8  # to take a name that others keep taking first, before it counts as held
_KNOWN_LIMIT = 10_000  # records that are remembered: a few megabytes
_SHARED_SESSION_S = 10.0  # no lease depends on it; short, so that the server soon drops it after a crash
_PAUSE_WITHOUT_WATCH_S = 0.2  # before the caller asks again, if the watch failed


def from_url(url: StoreUrl, runtime: Runtime) -> ZooKeeperStore:
    """Create the store, without connecting to the server yet."""
    url.only_options(())
    return ZooKeeperStore(url, runtime)


@dataclass(frozen=True, slots=True)
class _OpenSession:
    """A session of this process: its connection, its node, and the records as its grants left them."""

    link: Link
    node: str
    call_timeout_s: float
    granted: dict[str, ZooKeeperRecord] = field(default_factory=dict)


class ZooKeeperStore:
    """Leases in ZooKeeper. See the package's docstring for what it promises."""

    capabilities = Capabilities(
        grade=Grade.CONSENSUS,
        watch=True,
        renewal_sees_grants=False,
        loses="what a restored backup does not know",
    )

    def __init__(self, url: StoreUrl, runtime: Runtime) -> None:
        hosts = [f"[{host}]" if ":" in host else host for host, _ in url.hosts] or ["127.0.0.1"]
        ports = [port or DEFAULT_PORT for _, port in url.hosts] or [DEFAULT_PORT]
        self._runtime = runtime
        self._url = url
        self._call_timeout_s = url.call_timeout_s
        self._place = Ensemble(
            hosts=",".join(f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)),
            login=f"{url.user}:{url.password or ''}" if url.user else None,
            connect_s=self._call_timeout_s / len(hosts),
        )
        self._paths = ZooKeeperPaths(url.path.rstrip("/") or DEFAULT_ROOT)
        self._clock = ZooKeeperClock(runtime)
        self._inspection = ZooKeeperInspection(self._paths, self._clock)
        self._known: KnownNames[ZooKeeperRecord] = KnownNames(_KNOWN_LIMIT)
        self._lock = runtime.lock()
        self._sessions: dict[str, _OpenSession] = {}
        self._shared_link: Link | None = None
        self._watches = Watches(runtime)
        runtime.after_fork(self, self.forget_connections)

    def start(self) -> tuple[str, ...]:
        """Connect, create the root, and check the permissions."""
        deadline = self._deadline()
        try:
            return checks.examine(self._shared(deadline), self._paths, self._runtime.new_id(), self._url, deadline)
        except BaseException:
            if self._shared_link is not None:  # so that no thread continues to try to connect
                self._shared_link.abandon()
            self._shared_link = None
            raise

    def open(self, holder: str, *, ttl_s: float, call_timeout_s: float) -> Session:
        """Open a ZooKeeper session on its own connection, and create a node that represents it."""
        deadline = self._deadline()
        session_id = self._runtime.new_id()
        link = Link(self._place, self._runtime, timeout_s=ttl_s, is_renewed_by_us=True)
        opened = _OpenSession(link, self._paths.session(session_id), call_timeout_s)
        link.start()
        try:
            link.wait_connected(deadline)
            self._create_session_node(opened, holder, deadline)
        except BaseException:
            link.abandon()
            raise
        self._sessions[session_id] = opened
        return Session(session_id, holder, link.negotiated_s)

    def renew(self, session: Session, grants: Collection[Grant]) -> Renewed | Lost:
        """Write the session's node: one round trip. Only `missing` shows what happened to `grants`."""
        opened = self._sessions.get(session.id)
        if opened is None:
            return Lost("the session was closed")
        sent_at = self._runtime.monotonic()
        try:
            stat = opened.link.ask(lambda kazoo: kazoo.set_async(opened.node, b""), sent_at + opened.call_timeout_s)
        except (SessionEnded, NoNodeError):
            self._sessions.pop(session.id, None)
            opened.link.stop()
            return Lost("the session expired, or its node was deleted")
        self._clock.read(stat.mtime, sent_at)
        return Renewed()

    def acquire(
        self, session: Session, name: str, *, grant_id: str, tick: Tick | None = None, floor: int = 0
    ) -> Grant | Held | AlreadyDone | Lost:
        """Take the name: with one multi if it is free and the record is as remembered."""
        try:
            return self._acquire(session, name, grant_id, tick, floor)
        except SessionEnded as ended:
            return Lost(str(ended))

    def _acquire(
        self, session: Session, name: str, grant_id: str, tick: Tick | None, floor: int
    ) -> Grant | Held | AlreadyDone:
        deadline = self._deadline()
        opened = self._opened(session)
        wanted = Grant(name, session, grant_id, 0, tick)
        known = self._known.get(name)
        is_enough = known is not None and not known.has_done(tick) and not self._is_kept(known)
        now = ZooKeeperNameState(None, known) if is_enough else self._look(opened.link, name, deadline)
        for _ in range(_ATTEMPTS):
            there = now.known
            if there is None:
                now = self._create(opened.link, name, deadline)
                continue
            if (answer := self._judge(now, there, wanted)) is not None:
                return answer
            if there.version >= MOST_VERSIONS:
                now = self._begin_again(opened.link, name, there, deadline)
                continue
            token = next_token(previous=there.token, floor=floor, store_time_us=self._clock.earliest_us())
            grant = replace(wanted, token=token)
            if (stands_there := self._take(opened, grant, there, deadline)) is None:
                return grant
            now = stands_there
        return Held(name, None, now.known.token if now.known else 0, None, 0.0)  # others were faster every time

    def release(self, grant: Grant, *, done: bool = True, keep_for_s: float = 0.0) -> bool:
        """Release the grant, in one multi, if the record is unchanged since the grant."""
        deadline = self._deadline()
        opened = self._sessions.get(grant.session.id)
        link = opened.link if opened is not None and not opened.link.has_ended else self._shared(deadline)
        known = opened.granted.pop(grant.grant_id, None) if opened is not None else None
        repeated = False
        for _ in range(_ATTEMPTS):
            if known is None:
                now = self._look(link, grant.name, deadline)
                if now.known is None or now.hold is None or now.hold.grant_id != grant.grant_id:
                    return repeated and _was_let_go(grant, now)
                known = self._mended(link, grant.name, now.known, deadline)
            after = self._after(grant, known, done=done, keep_for_s=keep_for_s)
            outcome = commit(link, self._release_parts(grant.name, known, after), deadline)
            if outcome.is_done:
                self._known.remember(grant.name, after)
                return True
            known, repeated = None, repeated or outcome.repeated
        raise StoreUnavailable(f"lock {grant.name!r} changed faster than it could be released")

    def missing(self, grants: Collection[Grant]) -> frozenset[str]:
        """Read all holders in one round trip."""
        deadline = self._deadline()
        return self._inspection.missing(self._shared(deadline), list(grants), deadline)

    def close(self, session: Session) -> None:
        """End the ZooKeeper session, which removes its holders."""
        opened = self._sessions.pop(session.id, None)
        if opened is None:
            return
        if not opened.link.stop()(self._call_timeout_s):
            opened.link.abandon()
            raise StoreUnavailable("ZooKeeper did not confirm the end of the session; it will expire by itself")

    def read(self, name: str) -> LeaseRecord | None:
        """Read one name."""
        deadline = self._deadline()
        return self._inspection.read(self._shared(deadline), name, deadline)

    def records(self) -> Iterator[LeaseRecord]:
        """Read all names, a hundred in one round trip."""
        return self._inspection.records(self._shared(self._deadline()), self._deadline)

    def revoke(self, record: LeaseRecord) -> bool:
        """Delete the holder, if it still belongs to that grant."""
        deadline = self._deadline()
        link = self._shared(deadline)
        now = self._inspection.seen(link, record.name, deadline)
        if now.known is None or now.hold is None or now.hold.grant_id != record.grant_id:
            return False
        known = self._mended(link, record.name, now.known, deadline)
        return commit(link, self._release_parts(record.name, known, known), deadline).is_done

    def reset(self, name: str, token: int, *, reason: str) -> int | None:
        """Reset a token that a wrong clock has put ahead; see `ResetsTokens`."""
        deadline = self._deadline()
        link = self._shared(deadline)
        now, now_us = self._inspection.seen(link, name, deadline), self._clock.earliest_us()
        if now.known is None or now.hold is not None or now.known.token != token or token <= now_us + AHEAD_US:
            return None
        known = self._mended(link, name, now.known, deadline)
        lowered = known._replace(token=now_us).to_json()
        parts = [exists(self._paths.era(name, known.era)), write(self._paths.record(name), lowered, known.version)]
        return now_us if commit(link, parts, deadline).is_done else None

    def wait_change(self, held: Held, timeout_s: float) -> None:
        """Watch the holder's node, then check that it still has the same holder, then wait."""
        until = self._runtime.monotonic() + timeout_s
        if held.grant_id is None:  # kept closed: nothing changes before the time is over
            self._runtime.sleep(min(timeout_s, max(held.free_in_s or 0.0, 0.01)))
            return
        try:
            self._wait_for_holder(held, held.grant_id, until)
        except StoreUnavailable:
            left_s = until - self._runtime.monotonic()
            self._runtime.sleep(max(0.0, min(left_s, _PAUSE_WITHOUT_WATCH_S)))

    def shutdown(self) -> None:
        """Close all connections, which also ends their ZooKeeper sessions."""
        links = [opened.link for opened in self._sessions.values()]
        links += [self._shared_link] if self._shared_link is not None else []
        self._sessions.clear()
        self._shared_link = None
        deadline = self._deadline()
        for link, confirmed in [(link, link.stop()) for link in links]:
            if not confirmed(max(0.0, deadline - self._runtime.monotonic())):
                link.abandon()

    def forget_connections(self) -> None:
        """In a forked child: leave all connections to the parent."""
        for opened in self._sessions.values():
            opened.link.forget()
        if self._shared_link is not None:
            self._shared_link.forget()
        self._lock = self._runtime.lock()
        self._sessions = {}
        self._shared_link = None
        self._watches = Watches(self._runtime)

    def _deadline(self) -> float:
        return self._runtime.monotonic() + self._call_timeout_s

    def _shared(self, deadline: float) -> Link:
        """Return the connection for requests that do not belong to a session."""
        link = self._shared_link
        if link is None or link.is_dead:
            with self._lock:  # held only while a thread is started, never while waiting for a server
                link = self._shared_link
                if link is None or link.is_dead:
                    link = Link(self._place, self._runtime, timeout_s=_SHARED_SESSION_S, is_renewed_by_us=False)
                    link.start()
                    self._shared_link = link
        link.wait_connected(deadline)
        return link

    def _opened(self, session: Session) -> _OpenSession:
        opened = self._sessions.get(session.id)
        if opened is None:
            raise SessionEnded("the session has ended: it was closed, lost, or belongs to another process")
        return opened

    def _create_session_node(self, opened: _OpenSession, holder: str, deadline: float) -> None:
        """Create the node, and read the server's clock from it. If it exists, it is ours: a reply was lost."""
        sent_at = self._runtime.monotonic()

        def create_node() -> None:
            opened.link.ask(lambda kazoo: kazoo.create_async(opened.node, holder.encode(), ephemeral=True), deadline)

        try:
            create_node()
        except NodeExistsError:
            pass
        except NoNodeError:
            opened.link.ask(lambda kazoo: kazoo.ensure_path_async(self._paths.sessions), deadline)
            create_node()
        _, stat = opened.link.ask(lambda kazoo: kazoo.get_async(opened.node), deadline)
        self._clock.read(stat.ctime, sent_at)

    def _look(self, link: Link, name: str, deadline: float) -> ZooKeeperNameState:
        now = self._inspection.seen(link, name, deadline)
        self._known.remember(name, now.known)
        return now

    def _create(self, link: Link, name: str, deadline: float) -> ZooKeeperNameState:
        """Create the record with its era, unless it exists, and read it."""
        era = self._runtime.new_id()[:12]
        parts = [create(self._paths.record(name), new_record(era)), create(self._paths.era(name, era))]
        if commit(link, parts, deadline).is_missing(0):
            link.ask(lambda kazoo: kazoo.ensure_path_async(self._paths.leases), deadline)
            commit(link, parts, deadline)
        return self._look(link, name, deadline)

    def _begin_again(self, link: Link, name: str, known: ZooKeeperRecord, deadline: float) -> ZooKeeperNameState:
        """Replace the record of a free name with one that has the same content, and whose version starts at 0."""
        path, fresh = self._paths.record(name), known._replace(era=self._runtime.new_id()[:12])
        content = fresh.to_json() if known.is_granted else new_record(fresh.era)
        parts = [
            delete(self._paths.era(name, known.era)),
            delete(path, known.version),
            create(path, content),
            create(self._paths.era(name, fresh.era)),
        ]
        commit(link, parts, deadline)
        return self._look(link, name, deadline)

    def _mended(self, link: Link, name: str, known: ZooKeeperRecord, deadline: float) -> ZooKeeperRecord:
        """Create the era's node again, if it alone was deleted."""
        path = self._paths.era(name, known.era)
        link.ask_all([lambda kazoo: kazoo.create_async(path)], deadline)
        return known

    def _take(
        self, opened: _OpenSession, grant: Grant, known: ZooKeeperRecord, deadline: float
    ) -> ZooKeeperNameState | None:
        """Try to become the holder. Returns None on success, or the current state of the name."""
        name, tick = grant.name, grant.tick
        last_tick_us = tick.at_us if tick is not None and tick.at_most_once else known.last_tick_us
        record = ZooKeeperRecord(known.era, known.version + 1, grant.token, last_tick_us, 0, is_granted=True)
        sent_at = self._runtime.monotonic()
        parts = [
            exists(opened.node),
            exists(self._paths.era(name, known.era)),
            write(self._paths.record(name), record.to_json(), known.version),
            create(self._paths.holder(name), hold_of(grant, self._clock.earliest_us()), ephemeral=True),
        ]
        outcome = commit(opened.link, parts, deadline)
        if outcome.is_done:
            self._clock.read(outcome.values[2].mtime, sent_at)
            self._known.remember(name, record)
            opened.granted[grant.grant_id] = record
            return None
        if outcome.is_missing(0):
            raise SessionEnded("the session has ended: its node is gone")
        now = self._look(opened.link, name, deadline)
        if outcome.is_missing(1) and now.known is not None:
            self._mended(opened.link, name, now.known, deadline)
        return now

    def _judge(
        self, now: ZooKeeperNameState, known: ZooKeeperRecord, wanted: Grant
    ) -> Grant | Held | AlreadyDone | None:
        """Return the result of an acquisition in this state of the name, or None if the name can be taken."""
        hold, name, tick = now.hold, wanted.name, wanted.tick
        if hold is not None and hold.grant_id == wanted.grant_id:
            return replace(wanted, token=hold.token)
        if hold is not None:
            return Held(name, hold.holder, hold.token, hold.grant_id, hold.ttl_s)
        if self._is_kept(known):
            left_us = known.kept_until_us - self._clock.earliest_us()
            return Held(name, None, known.token, None, max(left_us, 0) / 1_000_000, is_kept=True)
        if tick is not None and known.has_done(tick):
            return AlreadyDone(name, tick, known.last_tick_us or 0)
        return None

    def _is_kept(self, known: ZooKeeperRecord) -> bool:
        return known.kept_until_us > self._clock.earliest_us()

    def _after(self, grant: Grant, known: ZooKeeperRecord, *, done: bool, keep_for_s: float) -> ZooKeeperRecord:
        """Return the record after a release; unchanged, if there is nothing to record."""
        after = known
        if done and grant.tick is not None:
            after = after._replace(last_tick_us=max(grant.tick.at_us, known.last_tick_us or grant.tick.at_us))
        if keep_for_s > 0:
            after = after._replace(kept_until_us=self._clock.latest_us() + int(keep_for_s * 1_000_000))
        return after if after == known else after._replace(version=known.version + 1)

    def _release_parts(self, name: str, known: ZooKeeperRecord, after: ZooKeeperRecord) -> list[Part]:
        """Delete the holder if the record is unchanged. Every grant changes it, so the holder is also the same."""
        path = self._paths.record(name)
        is_noted = after == known
        note = is_unchanged(path, known.version) if is_noted else write(path, after.to_json(), known.version)
        return [exists(self._paths.era(name, known.era)), note, delete(self._paths.holder(name))]

    def _wait_for_holder(self, held: Held, grant_id: str, until: float) -> None:
        deadline = min(until, self._deadline())
        link, path = self._shared(deadline), self._paths.holder(held.name)
        changed, callback = self._watches.join(path)
        is_watched = False
        try:
            content, _ = link.ask(lambda kazoo: kazoo.get_async(path, watch=callback), deadline)
            is_watched = True
            if to_hold(content).grant_id == grant_id:
                changed.wait(max(0.0, until - self._runtime.monotonic()))
        except NoNodeError:
            return
        finally:
            self._watches.leave(path, changed, is_watched=is_watched)


def _was_let_go(grant: Grant, now: ZooKeeperNameState) -> bool:
    """Return whether a release that was sent twice succeeded, if the second request found another state.

    If there was no later holder, the state is that after the release. Otherwise the outcome is unknown: either the
    first request released the grant, or the grant had ended before.
    """
    if now.hold is None and now.known is not None and now.known.token == grant.token:
        return True
    raise StoreUnavailable(f"the connection broke while lock {grant.name!r} was released, and it has changed since")
