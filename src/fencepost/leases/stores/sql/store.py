"""The lease contract on SQL tables. See the package's docstring and `leases.store` for its promises."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

from fencepost.core.grants import AlreadyDone, Grant, Held, LeaseRecord, Lost, PastGrant, Renewed, Session, SessionSight
from fencepost.core.runtime import Runtime
from fencepost.core.tick import Tick
from fencepost.errors import StoreUnavailable
from fencepost.leases.store import Capabilities, Watched
from fencepost.leases.stores.sql.backend import Backend, GrantEnding, LeaseConnection, micros, transaction
from fencepost.leases.stores.sql.calls import Calls
from fencepost.leases.stores.sql.endings import SessionEndings, chunks
from fencepost.leases.stores.sql.looking import LeaseLook
from fencepost.leases.stores.sql.reading import LeaseReading
from fencepost.leases.stores.sql.sightings import Sightings
from fencepost.leases.stores.sql.statements import ALWAYS, NEVER, TOKEN_SUM_PRIME, marks
from fencepost.leases.stores.sql.tidying import Tidying
from fencepost.leases.stores.sql.waiting import Read, RefusalWatch

_CONNECTIONS = 8  # enough for many threads, because calls take milliseconds; a server allows few per process
ROUNDS = 8  # attempts to take a name that others keep taking first, before it counts as busy
BUSY_S = 0.05  # when to ask again for such a name
_SPARED_NAP_S = 0.25  # when to look again at a session that is being watched
_SPARED_MOST = 1000  # names that are remembered, so that memory stays bounded

WatchMaker = Callable[[Read, Calls], RefusalWatch]


@dataclass(frozen=True, slots=True)
class Acquisition:
    """One acquisition, and its parameters for `Statements.take` and `Statements.insert`."""

    session: Session
    name: str
    grant_id: str
    tick: Tick | None
    floor: int
    lenience_us: int = 0

    @property
    def to_insert(self) -> tuple[object, ...]:
        """The parameters of `Statements.insert`."""
        return (*self._granted, *self.asking)

    @property
    def to_take(self) -> tuple[object, ...]:
        """The parameters of `Statements.take`."""
        return (*self._granted, ALWAYS if self.tick is None else self.tick.at_us, *self.asking)

    @property
    def asking(self) -> tuple[str, int]:
        """The session that asks, and how long it may have been expired."""
        return self.session.id, self.lenience_us

    @property
    def _granted(self) -> tuple[object, ...]:
        mark = self.tick.at_us if self.tick is not None and self.tick.at_most_once else NEVER
        return (self.floor, self.session.id, self.grant_id, self.session.holder, mark, self.name)

    def granted(self, token: int) -> Grant:
        """Return the grant with this token."""
        return Grant(self.name, self.session, self.grant_id, token, self.tick)


class SqlLeaseStore:
    """Leases in the tables of one database.

    It has up to eight connections for calls, and separate ones for renewals: as many as there are concurrent
    renewals, at most one per session.
    """

    def __init__(
        self,
        runtime: Runtime,
        backend: Backend,
        *,
        capabilities: Capabilities,
        call_timeout_s: float,
        history_us: int,
        watch: WatchMaker,
    ) -> None:
        self._runtime = runtime
        self._backend = backend
        self._capabilities = capabilities
        self._timeout_s = call_timeout_s
        self._sql = backend.sql
        self._reading = LeaseReading(backend.sql)
        self._calls = Calls(runtime, backend, limit=_CONNECTIONS)
        self._heartbeats = Calls(runtime, backend, limit=_CONNECTIONS)
        self._sightings = Sightings(runtime)
        self._endings = SessionEndings(backend, backend.sql, self._sightings)
        self._tidying = Tidying(
            runtime,
            self._calls,
            sql=backend.sql,
            endings=self._endings,
            timeout_s=call_timeout_s,
            history_us=history_us,
        )
        self._watch = watch(self.read, self._calls)
        self._renewal_timeout_s: dict[str, float] = {}
        self._alive_until: dict[str, float] = {}  # own sessions: a ttl after the last confirmed renewal was sent
        self._spared_until: dict[str, float] = {}

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do."""
        return self._capabilities

    def start(self) -> tuple[str, ...]:
        """Connect, create the tables if they are missing, and refuse an unsafe server."""
        for calls in (self._calls, self._heartbeats):
            calls.pool.open()
        try:
            return self._calls.run_raw(self._timeout_s, self._backend.prepare)
        except self._backend.driver_errors as error:
            if (refusal := self._backend.refusal(error)) is not None:
                raise refusal from error
            raise self._calls.unavailable(error, self._timeout_s) from error
        except self._calls.expected as error:
            raise self._calls.unavailable(error, self._timeout_s) from error

    def open(self, holder: str, *, ttl_s: float, call_timeout_s: float) -> Session:
        """Insert a session. If the reply is lost, another is opened, and the first one expires."""
        ttl_us = micros(ttl_s)
        sent_at = self._runtime.monotonic()

        def insert(connection: LeaseConnection) -> str:
            session_id = self._runtime.new_id()
            connection.change(self._sql.open, (session_id, holder, ttl_us, ttl_us))
            return session_id

        session = Session(self._calls.run(self._timeout_s, insert), holder, ttl_s)
        self._renewal_timeout_s[session.id] = call_timeout_s
        self._alive_until[session.id] = sent_at + ttl_s
        # On a local file this is fast, and a separate task could be inside SQLite when the process forks.
        self._tidying.now_and_then(beside=self._capabilities.scope == "network")
        return session

    def renew(self, session: Session, grants: Collection[Grant]) -> Renewed | Lost:
        """Extend the session with one statement on its row, whatever the number of grants.

        The statement also returns the sum of the session's tokens. Only if it differs from the sum of `grants`, a
        second statement finds out which of them are gone. If the last renewal is younger than the ttl by our own clock,
        the database's clock does not matter: the renewal succeeds unless the session was ended.
        """
        sent_at = self._runtime.monotonic()
        parameters = (micros(session.ttl_s), session.id, self._lenience_us(session))
        expected = sum(grant.token % TOKEN_SUM_PRIME for grant in grants)

        def prolong(connection: LeaseConnection) -> Renewed | Lost:
            found = connection.number(self._sql.renew, parameters)
            if found is None:
                self._alive_until.pop(session.id, None)
                return Lost("the session expired, was closed, or its row was deleted")
            self._alive_until[session.id] = sent_at + session.ttl_s
            return Renewed() if found == expected else Renewed(self._gone(connection, session, grants))

        self._tidying.now_and_then(beside=True)
        timeout_s = self._renewal_timeout_s.get(session.id, self._timeout_s)
        # A session without grants keeps no connection for its renewals: there may be hundreds of waiting processes.
        outcome = (self._heartbeats if grants else self._calls).run(timeout_s, prolong)
        self._calls.pool.drop_unused(0.0 if not grants else None)
        return outcome

    def acquire(
        self, session: Session, name: str, *, grant_id: str, tick: Tick | None = None, floor: int = 0
    ) -> Grant | Held | AlreadyDone | Lost:
        """Take the name: with one statement if it is free."""
        wanted = Acquisition(session, name, grant_id, tick, floor, self._lenience_us(session))
        return self._calls.run(self._timeout_s, lambda c: self._acquire(c, wanted))

    def release(self, grant: Grant, *, done: bool = True, keep_for_s: float = 0.0) -> bool:
        """Release the grant if it is current, in one transaction, including the history."""
        return self._end(GrantEnding.by_release(grant, done=done, keep_for_s=keep_for_s))

    def missing(self, grants: Collection[Grant]) -> frozenset[str]:
        """Read which grants are current."""
        return self._calls.run(self._timeout_s, lambda c: self._missing(c, list(grants)))

    def watch(self, grants: Collection[Grant]) -> Watched:
        """Read and record which sessions were renewed; see `fencepost.leases.store.WatchesSessions`."""
        return self._calls.run(self._timeout_s, lambda c: self._watched(c, list(grants)))

    def close(self, session: Session) -> None:
        """Delete the session and free its leases."""
        self._calls.run(self._timeout_s, lambda c: self._endings.close(c, session.id))
        self._renewal_timeout_s.pop(session.id, None)
        self._alive_until.pop(session.id, None)

    def read(self, name: str) -> LeaseRecord | None:
        """Read one name."""
        found = self._calls.run(self._timeout_s, lambda c: self._look(c, name))
        return None if found is None else found.record()

    def records(self) -> Iterator[LeaseRecord]:
        """Read all names."""
        rows = self._calls.run(self._timeout_s, lambda c: c.rows(self._sql.records))
        return iter([LeaseLook.of(row).record() for row in rows])

    def page(self, *, after: str, limit: int, is_held: bool) -> list[LeaseRecord]:
        """Read some names; see `fencepost.leases.store.ShowsLeases`."""
        return self._calls.run(
            self._timeout_s, lambda c: self._reading.page(c.rows, after=after, limit=limit, is_held=is_held)
        )

    def sessions(self, grants: Collection[Grant]) -> dict[str, SessionSight]:
        """Read how the sessions look that have these grants; see `fencepost.leases.store.ShowsLeases`."""
        found = self._calls.run(self._timeout_s, lambda c: self._reading.sessions(c.rows, grants))
        return {grant_id: sight for grant_id, (_, _, sight) in found.items()}

    def history(self, name: str | None, *, limit: int) -> list[PastGrant]:
        """Read the latest ended grants."""
        return self._calls.run(self._timeout_s, lambda c: self._reading.history(c.rows, name, limit=limit))

    def revoke(self, record: LeaseRecord) -> bool:
        """Take the name away; the holder notices at its next renewal."""
        if record.grant_id is None:
            return False
        return self._end(GrantEnding(name=record.name, grant_id=record.grant_id, token=record.token, why="revoked"))

    def reset(self, name: str, token: int, *, reason: str) -> int | None:
        """Reset a token that a wrong clock has put ahead, and record it in the history; see `ResetsTokens`."""

        def lower(connection: LeaseConnection) -> int | None:
            with transaction(connection):
                found = connection.number(self._sql.reset, (name, token))
                if found is not None:
                    connection.change(self._sql.past_of, (f"token {token} reset: {reason}", name))
                return found

        return self._calls.run(self._timeout_s, lower)

    def wait_change(self, held: Held, timeout_s: float) -> None:
        """Wait until the name may be free."""
        now = self._runtime.monotonic()
        if self._spared_until.get(held.name, now) > now:  # looks free but is not, so a watch would return at once
            self._runtime.sleep(min(timeout_s, _SPARED_NAP_S))
            return
        self._watch.wait(held, timeout_s)

    def shutdown(self) -> None:
        """Close all connections; those in use as soon as their call ends."""
        self._watch.shutdown()
        for calls in (self._calls, self._heartbeats):
            calls.pool.close()

    def forget_connections(self) -> None:
        """In a forked child: leave the connections to the parent."""
        self._watch.forget()
        self._tidying.forget()
        self._sightings.forget()
        opened = [calls.pool.forget() for calls in (self._calls, self._heartbeats)]
        idle = [connection for connections, _ in opened for connection in connections]
        self._backend.forget(idle, in_use=sum(in_use for _, in_use in opened))

    def open_now(self) -> tuple[list[LeaseConnection], int]:
        """Return the idle connections, and how many are in use."""
        opened = [calls.pool.open_now() for calls in (self._calls, self._heartbeats)]
        return [connection for idle, _ in opened for connection in idle], sum(in_use for _, in_use in opened)

    def _acquire(self, connection: LeaseConnection, wanted: Acquisition) -> Grant | Held | AlreadyDone | Lost:
        found: LeaseLook | None = None
        for _ in range(ROUNDS):
            token = connection.number(self._sql.take, wanted.to_take)
            if token is not None:
                return wanted.granted(token)
            seen = self._look_for(connection, wanted)
            if isinstance(seen, Lost):
                return seen
            found = seen
            outcome = self._insert(connection, wanted) if found is None else self._judge(connection, found, wanted)
            if outcome is not None:
                return outcome
        # Others were faster every time: the name is busy rather than free.
        return Held(wanted.name, None, found.token if found else 0, None, BUSY_S)

    def _insert(self, connection: LeaseConnection, wanted: Acquisition) -> Grant | None:
        """Take a name that has no record yet; None if another session has created one."""
        token = connection.number(self._sql.insert, wanted.to_insert)
        return None if token is None else wanted.granted(token)

    def _judge(
        self, connection: LeaseConnection, found: LeaseLook, wanted: Acquisition
    ) -> Grant | Held | AlreadyDone | None:
        """Return why the name was not taken; None if the attempt should be repeated."""
        if found.grant_id == wanted.grant_id:
            return wanted.granted(found.token)
        if found.session_id is not None and (found.is_dead or found.is_ahead):
            spared_s = self._buried_or_spared(connection, found.session_id, is_there=found.expires_at is not None)
            if spared_s is None or (spared_s == 0 and found.is_dead):
                return None
            if spared_s > 0:
                return self._spared(found, spared_s)
        if (held := found.held()) is not None:
            return held
        if wanted.tick is not None and wanted.tick.at_us <= found.last_tick:
            return AlreadyDone(found.name, wanted.tick, found.last_tick)
        return None

    def _buried_or_spared(self, connection: LeaseConnection, session_id: str, *, is_there: bool) -> float | None:
        """End a session that looks dead. None if it is gone; else how long to watch it, or 0 if it is alive."""
        if is_there and self._is_ours(session_id):
            return _SPARED_NAP_S
        burial = self._endings.bury(connection, session_id)
        return None if burial.is_gone else burial.spared_s

    def _spared(self, found: LeaseLook, spared_s: float) -> Held:
        """Refuse a name whose session looks dead to the database, but has not been watched for its ttl."""
        if len(self._spared_until) > _SPARED_MOST:
            self._spared_until.clear()  # costs their waiters one more round
        self._spared_until[found.name] = self._runtime.monotonic() + spared_s
        return Held(found.name, found.holder, found.token, found.grant_id, spared_s)

    def _is_ours(self, session_id: str) -> bool:
        """Whether it is a session of this store that is alive by our own clock."""
        return self._runtime.monotonic() < self._alive_until.get(session_id, float("-inf"))

    def _lenience_us(self, session: Session) -> int:
        return ALWAYS if self._is_ours(session.id) else 0

    def _look(self, connection: LeaseConnection, name: str) -> LeaseLook | None:
        rows = connection.rows(self._sql.look, (name,))
        return LeaseLook.of(rows[0]) if rows else None

    def _look_for(self, connection: LeaseConnection, wanted: Acquisition) -> LeaseLook | Lost | None:
        """Look at the name on behalf of a session: `Lost` if that one is gone, None if there is no such name yet."""
        [(is_alive, *row)] = connection.rows(self._sql.look_for, (*wanted.asking, wanted.name))
        if is_alive is None:
            return Lost("the session expired, was closed, or its row was deleted")
        return None if row[0] is None else LeaseLook.of(tuple(row))

    def _end(self, ending: GrantEnding) -> bool:
        until = self._runtime.monotonic() + self._timeout_s
        has_ended, somebody_waits = self._calls.run(self._timeout_s, lambda c: self._end_once(c, ending))
        if somebody_waits:
            self._wake(ending.name, until)
        return has_ended

    def _end_once(self, connection: LeaseConnection, ending: GrantEnding) -> tuple[bool, bool]:
        has_ended, somebody_waits = connection.end_grant(ending)
        if not has_ended and connection.repeats:
            # The first attempt may have ended it, and only its reply was lost: the history shows it.
            has_ended = bool(connection.rows(self._sql.has_ended, (ending.name, ending.token, ending.why)))
        return has_ended, somebody_waits

    def _wake(self, name: str, until: float) -> None:
        """Notify waiters. A failure does not matter, because they also check regularly."""
        left_s = until - self._runtime.monotonic()
        with suppress(StoreUnavailable):
            self._calls.run(left_s, lambda c: self._backend.announce(c, [name]))

    def _gone(self, connection: LeaseConnection, session: Session, grants: Collection[Grant]) -> frozenset[str]:
        there = {row[0] for row in connection.rows(self._sql.grants_of, (session.id,))}
        return frozenset(grant.grant_id for grant in grants if grant.grant_id not in there)

    def _missing(self, connection: LeaseConnection, grants: list[Grant]) -> frozenset[str]:
        there: set[str] = set()
        for chunk in chunks([grant.name for grant in grants]):
            rows = connection.rows(f"{self._sql.current}{marks(len(chunk))}", tuple(chunk))
            there.update(grant_id for grant_id, session_id, is_alive in rows if is_alive or self._is_ours(session_id))
        return frozenset(grant.grant_id for grant in grants if grant.grant_id not in there)

    def _watched(self, connection: LeaseConnection, grants: list[Grant]) -> Watched:
        """Find missing grants: those without a row, or whose session is dead by the database's clock and by ours."""
        there: set[str] = set()
        again_in_s = float("inf")
        for grant_id, (session_id, mark, sight) in self._reading.sessions(connection.rows, grants).items():
            spared_s = self._sightings.spared_s(session_id, mark=mark, ttl_us=sight.ttl_us)
            if spared_s > 0 or sight.is_current:
                there.add(grant_id)
                again_in_s = min(again_in_s, spared_s) if spared_s > 0 else again_in_s
        return Watched(frozenset(grant.grant_id for grant in grants if grant.grant_id not in there), again_in_s)
