"""The operations of the store: each is one script on the server, or one pipeline of scripts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from fencepost.core.fencing import AHEAD_US
from fencepost.core.grants import AlreadyDone, Grant, Held, LeaseRecord, Lost, Renewed, Session
from fencepost.core.runtime import Runtime
from fencepost.core.tick import Tick
from fencepost.errors import StoreUnavailable
from fencepost.leases.store import Capabilities, Grade
from fencepost.leases.stores.redis.checks import examine
from fencepost.leases.stores.redis.records import RedisKeys, record_from
from fencepost.leases.stores.redis.route import route_from_url
from fencepost.leases.stores.redis.scripts import (
    ACQUIRE,
    FREE,
    READ,
    RELEASE,
    RENEW,
    RESET,
    WAITING,
    Command,
    Script,
    Word,
)
from fencepost.leases.stores.redis.sessions import OpenSession, OpenSessions
from fencepost.leases.stores.redis.wire import Wire
from fencepost.leases.stores.redis.wires import Wires
from fencepost.leases.urls import StoreUrl

# How long the record of an unused name is kept.
REMEMBER_MS = 30 * 86400 * 1000  # so long it is known which ticks are done (docs/stores/redis.md)
# How many records one script handles: enough to make calls cheap, few enough not to block the server's other clients.
SCRIPT_KEYS = 100


class RedisStore:
    """Leases as hashes on one Redis or Valkey server."""

    capabilities = Capabilities(
        grade=Grade.BEST_EFFORT,
        durable_token=False,
        watch=True,
        renewal_round_trips="one pipeline",
        loses="who holds what, when the server restarts without an append-only file, is flushed, or a replica that "
        "had not heard of it is promoted; tokens still rise",
    )

    def __init__(self, url: StoreUrl, runtime: Runtime) -> None:
        self._runtime = runtime
        self._keys = RedisKeys(url.options.get("prefix", "fencepost"))
        self._timeout_s = url.call_timeout_s
        self._accepted_risks = url.accepted_risks()
        self._sessions = OpenSessions()
        route = route_from_url(url, runtime)
        self._calls = Wires(route, runtime.monotonic)
        self._renewals = Wires(route, runtime.monotonic)  # separate connections, so that nothing delays a renewal
        self._listeners = Wires(route, runtime.monotonic)

    def start(self) -> tuple[str, ...]:
        """Try everything that the store needs once, and check for what would make it unsafe."""
        for wires in self._all_wires:
            wires.open()
        return examine(
            calls=self._calls,
            listeners=self._listeners,
            key=self._keys.of(""),
            timeout_s=self._timeout_s,
            accepted_risks=self._accepted_risks,
        )

    def open(self, holder: str, *, ttl_s: float, call_timeout_s: float) -> Session:
        """Open a session. The server does not know it: each grant has its own expiry."""
        session = Session(self._runtime.new_id(), holder, ttl_s)
        self._sessions.add(session, call_timeout_s=call_timeout_s, now=self._runtime.monotonic())
        return session

    def renew(self, session: Session, grants: Collection[Grant]) -> Renewed | Lost:
        """Extend the grants that are still current, in one pipeline."""
        known, sent_at = self._sessions.get(session), self._runtime.monotonic()
        if known is None or sent_at >= known.alive_until:
            return _lost(known)
        listed = {grant.grant_id: grant.name for grant in grants}
        gone = self._gone(known, known.to_renew(listed), ttl_us=_microseconds(session.ttl_s))
        known.alive_until = sent_at + session.ttl_s
        return Renewed(gone.intersection(listed))

    def acquire(
        self, session: Session, name: str, *, grant_id: str, tick: Tick | None = None, floor: int = 0
    ) -> Grant | Held | AlreadyDone | Lost:
        """Take the name, in one round trip."""
        known = self._sessions.get(session)
        if known is None or self._runtime.monotonic() >= known.alive_until:
            return _lost(known)
        known.asking(grant_id, name)
        try:
            answer = self._calls.ask(self._acquisition(session, name, grant_id, tick, floor), self._timeout_s)
        except BaseException:
            known.unanswered(grant_id)
            raise
        if answer[0] == b"granted":
            return Grant(name, session, grant_id, answer[1], tick)
        known.refused(grant_id)
        if answer[0] == b"done" and tick is not None:
            return AlreadyDone(name, tick, answer[1])
        return _held(name, answer)

    def release(self, grant: Grant, *, done: bool = True, keep_for_s: float = 0.0) -> bool:
        """Release the grant, in one round trip, if it is current."""
        known = self._sessions.get(grant.session)
        if known is not None:
            known.unlisted.pop(grant.grant_id, None)
        tick_us = grant.tick.at_us if done and grant.tick is not None else ""
        keep_us = _microseconds(keep_for_s)
        once = RELEASE.call(self._keys.of(grant.name), grant.grant_id, keep_us, tick_us, REMEMBER_MS + keep_us // 1000)
        answer = self._calls.ask((*once, 0), self._timeout_s, repetition=(*once, 1))
        if known is not None:
            known.may_hold.pop(grant.grant_id, None)
        if answer < 0:
            raise StoreUnavailable(
                f"the connection broke while lock {grant.name!r} was released, and it has another holder now"
            )
        return bool(answer)

    def missing(self, grants: Collection[Grant]) -> frozenset[str]:
        """Compare with the server's records, in one pipeline."""
        return self._gone(None, {grant.grant_id: grant.name for grant in grants}, ttl_us=0)

    def close(self, session: Session) -> None:
        """Free the session's grants, in one pipeline."""
        known = self._sessions.get(session)
        if known is not None:
            self._free(known.may_hold.copy())
            self._sessions.remove(session)

    def read(self, name: str) -> LeaseRecord | None:
        """Read one record."""
        return next(iter(self._read([name])), None)

    def records(self) -> Iterator[LeaseRecord]:
        """Find all records by SCAN, which takes time on a server with many keys, and read them."""
        names = {self._keys.name_in(key) for key in self._scan()}
        return iter(self._read(sorted(names)))

    def revoke(self, record: LeaseRecord) -> bool:
        """Take the name away from the grant in `record`."""
        return record.grant_id is not None and self._free({record.grant_id: record.name}) == 1

    def reset(self, name: str, token: int, *, reason: str) -> int | None:
        """Reset a token that a wrong clock has put ahead; see `ResetsTokens`."""
        return int(self._calls.ask(RESET.call(self._keys.of(name), token, AHEAD_US), self._timeout_s)) or None

    def wait_change(self, held: Held, timeout_s: float) -> None:
        """Listen first, then check, then wait, so that a release in between is not missed."""
        wait_until = self._runtime.monotonic() + timeout_s
        key = self._keys.of(held.name)
        channel = f"{key}:changed"

        def listen(wire: Wire) -> None:
            wire.subscribe(channel)
            look = WAITING.call(key, held.grant_id or "", _microseconds(timeout_s))
            free_in_us = self._calls.ask(look, self._timeout_s)
            if free_in_us > 0:
                wire.answer_by = min(wait_until, self._runtime.monotonic() + free_in_us / 1e6)
                wire.wait_for_message(channel)
            wire.unsubscribe(channel)

        self._listeners.talk(listen, self._timeout_s)

    def shutdown(self) -> None:
        """Close all connections; those in use as soon as their call ends."""
        for wires in self._all_wires:
            wires.close()

    def forget_connections(self) -> None:
        """Leave the connections to the parent process."""
        for wires in self._all_wires:
            wires.forget()

    @property
    def _all_wires(self) -> tuple[Wires, ...]:
        return (self._calls, self._renewals, self._listeners)

    def _acquisition(self, session: Session, name: str, grant_id: str, tick: Tick | None, floor: int) -> Command:
        ttl_us = _microseconds(session.ttl_s)
        tick_us, is_at_most_once = ("", 0) if tick is None else (tick.at_us, int(tick.at_most_once))
        key = self._keys.of(name)
        return ACQUIRE.call(key, grant_id, session.id, session.holder, ttl_us, floor, tick_us, is_at_most_once)

    def _gone(self, known: OpenSession | None, names: Mapping[str, str], *, ttl_us: int) -> frozenset[str]:
        """Return which grants are not current; extend the others, if there is a ttl."""
        grant_ids = list(names)
        commands = self._over_records(RENEW, names, ttl_us) or [("PING",)]  # without grants, still check the connection
        wires, timeout_s = (self._calls, self._timeout_s) if known is None else (self._renewals, known.call_timeout_s)
        answers = wires.talk(lambda wire: wire.ask_all(commands), timeout_s)
        if not names:
            return frozenset()
        return frozenset(
            grant_ids[part * SCRIPT_KEYS + number - 1] for part, answer in enumerate(answers) for number in answer
        )

    def _free(self, names: Mapping[str, str]) -> int:
        commands = self._over_records(FREE, names, REMEMBER_MS)
        return sum(self._calls.talk(lambda wire: wire.ask_all(commands), self._timeout_s)) if commands else 0

    def _over_records(self, script: Script, names: Mapping[str, str], argument: Word) -> list[Command]:
        """Return the calls of `script` for grants (id to name), for one pipeline. Each handles some of the records."""
        pairs = list(names.items())
        parts = (pairs[start : start + SCRIPT_KEYS] for start in range(0, len(pairs), SCRIPT_KEYS))
        return [
            script.call_many([self._keys.of(name) for _, name in part], [argument, *(grant_id for grant_id, _ in part)])
            for part in parts
        ]

    def _read(self, names: Sequence[str]) -> list[LeaseRecord]:
        found: list[LeaseRecord] = []
        for start in range(0, len(names), SCRIPT_KEYS):
            part = names[start : start + SCRIPT_KEYS]
            now_us, *records = self._calls.ask(
                READ.call_many([self._keys.of(name) for name in part], ()), self._timeout_s
            )
            found.extend(
                record_from(name, fields, now_us)
                for name, fields in zip(part, records, strict=True)
                if fields and fields[0] is not None
            )
        return found

    def _scan(self) -> Iterator[str]:
        cursor: Any = 0
        while cursor != b"0":
            scan = ("SCAN", cursor, "MATCH", self._keys.pattern, "COUNT", 1000)
            cursor, keys = self._calls.ask(scan, self._timeout_s)
            yield from (key.decode() for key in keys)


def _lost(known: OpenSession | None) -> Lost:
    return Lost("the session was closed" if known is None else "the session was not renewed for its ttl")


def _held(name: str, answer: Sequence[Any]) -> Held:
    token, free_in_us, *holder = answer[1:]
    if not holder:
        return Held(name, None, token, None, free_in_us / 1e6, is_kept=True)
    return Held(name, holder[1].decode(), token, holder[0].decode(), free_in_us / 1e6)


def _microseconds(duration_s: float) -> int:
    return round(duration_s * 1e6)
