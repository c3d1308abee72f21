"""The lease contract on SQL tables. What it promises stands in the package's docstring and in `leases.store`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

from fencepost.core.grants import AlreadyDone, Grant, Held, LeaseRecord, Lost, PastGrant, Renewed, Session
from fencepost.core.runtime import Runtime
from fencepost.core.tick import Tick
from fencepost.errors import StoreUnavailable
from fencepost.leases.store import Capabilities
from fencepost.leases.stores.sql.backend import Backend, Connection, Ending
from fencepost.leases.stores.sql.calls import Calls
from fencepost.leases.stores.sql.endings import Endings, chunks
from fencepost.leases.stores.sql.looking import Look
from fencepost.leases.stores.sql.statements import ALWAYS, NEVER, TOKEN_SUM_PRIME, marks
from fencepost.leases.stores.sql.tidying import Tidying
from fencepost.leases.stores.sql.waiting import Read, Watch

_CONNECTIONS = 8
ROUNDS = 8
BUSY_S = 0.05

WatchMaker = Callable[[Read, Calls], Watch]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One acquisition, and the parameters it makes for `Statements.take` and `Statements.insert`."""

    session: Session
    name: str
    grant_id: str
    tick: Tick | None
    floor: int

    @property
    def to_insert(self) -> tuple[object, ...]:
        """The parameters of `Statements.insert`."""
        mark = self.tick.at_us if self.tick is not None and self.tick.at_most_once else NEVER
        return (self.floor, self.session.id, self.grant_id, self.session.holder, mark, self.name, self.session.id)

    @property
    def to_take(self) -> tuple[object, ...]:
        """The parameters of `Statements.take`."""
        *most, session_id = self.to_insert
        return (*most, ALWAYS if self.tick is None else self.tick.at_us, session_id)

    def granted(self, token: int) -> Grant:
        """Return the grant it became."""
        return Grant(self.name, self.session, self.grant_id, token, self.tick)


class SqlLeaseStore:
    """Leases in the tables of one database.

    It keeps up to eight connections for calls and, apart from them, as many for renewals as there are renewals at
    one time, which is one per session.
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
        self._calls = Calls(runtime, backend, limit=_CONNECTIONS)
        self._heartbeats = Calls(runtime, backend, limit=_CONNECTIONS)
        self._endings = Endings(backend, backend.sql)
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

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do."""
        return self._capabilities

    def start(self) -> tuple[str, ...]:
        """Connect, make the tables if they are missing, refuse what is unsafe."""
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
        """Insert a session. If the reply is lost, another is opened and the first runs out by itself."""
        ttl_us = micros(ttl_s)

        def insert(connection: Connection) -> str:
            session_id = self._runtime.new_id()
            connection.change(self._sql.open, (session_id, holder, ttl_us, ttl_us))
            return session_id

        session = Session(self._calls.run(self._timeout_s, insert), holder, ttl_s)
        self._renewal_timeout_s[session.id] = call_timeout_s
        # On a local file it is quick, and a task of its own could be in the middle of it when the process forks.
        self._tidying.now_and_then(beside=self._capabilities.scope == "network")
        return session

    def renew(self, session: Session, grants: Collection[Grant]) -> Renewed | Lost:
        """Prolong the session by one statement on its row, whatever the number of grants.

        The statement also yields a sum over the tokens that hang on the session. Only if it is not the sum of
        `grants` is a second statement needed, to see which of them are gone.
        """
        parameters = (micros(session.ttl_s), session.id, session.id)
        expected = sum(grant.token % TOKEN_SUM_PRIME for grant in grants)

        def prolong(connection: Connection) -> Renewed | Lost:
            found = connection.number(self._sql.renew, parameters)
            if found is None:
                return Lost("the session expired, was closed, or its row was deleted")
            return Renewed() if found == expected else Renewed(self._gone(connection, session, grants))

        self._tidying.now_and_then(beside=True)
        timeout_s = self._renewal_timeout_s.get(session.id, self._timeout_s)
        outcome = self._heartbeats.run(timeout_s, prolong)
        self._calls.pool.drop_unused()
        return outcome

    def acquire(
        self, session: Session, name: str, *, grant_id: str, tick: Tick | None = None, floor: int = 0
    ) -> Grant | Held | AlreadyDone | Lost:
        """Take the name: one statement if it is free."""
        wanted = Wanted(session, name, grant_id, tick, floor)
        return self._calls.run(self._timeout_s, lambda c: self._acquire(c, wanted))

    def release(self, grant: Grant, *, done: bool = True, keep_for_s: float = 0.0) -> bool:
        """Let go, if the grant is current: one transaction, history included."""
        ending = Ending(
            name=grant.name,
            grant_id=grant.grant_id,
            token=grant.token,
            why="released",
            keep_us=micros(keep_for_s),
            done_tick_us=grant.tick.at_us if done and grant.tick is not None else NEVER,
        )
        return self._end(ending)

    def missing(self, grants: Collection[Grant]) -> frozenset[str]:
        """Read which grants are current."""
        return self._calls.run(self._timeout_s, lambda c: self._missing(c, list(grants)))

    def close(self, session: Session) -> None:
        """Delete the session and free what hangs on it."""
        self._calls.run(self._timeout_s, lambda c: self._endings.close(c, session.id))
        self._renewal_timeout_s.pop(session.id, None)

    def read(self, name: str) -> LeaseRecord | None:
        """Read one name."""
        found = self._calls.run(self._timeout_s, lambda c: self._look(c, name))
        return None if found is None else found.record()

    def records(self) -> Iterator[LeaseRecord]:
        """Read all names."""
        rows = self._calls.run(self._timeout_s, lambda c: c.rows(self._sql.records))
        return iter([Look.of(row).record() for row in rows])

    def history(self, name: str | None, *, limit: int) -> list[PastGrant]:
        """Read the latest ended grants."""
        sql, parameters = (self._sql.history, ()) if name is None else (self._sql.history_of, (name,))
        rows = self._calls.run(self._timeout_s, lambda c: c.rows(sql, (*parameters, limit)))
        return [PastGrant(_text(row[0]), *row[1:]) for row in rows]

    def revoke(self, record: LeaseRecord) -> bool:
        """Take the name away; the holder learns of it at its next renewal."""
        if record.grant_id is None:
            return False
        return self._end(Ending(name=record.name, grant_id=record.grant_id, token=record.token, why="revoked"))

    def wait_change(self, held: Held, timeout_s: float) -> None:
        """Wait until the name may be free."""
        self._watch.wait(held, timeout_s)

    def shutdown(self) -> None:
        """Close all connections; those in use as soon as their call ends."""
        self._watch.shutdown()
        for calls in (self._calls, self._heartbeats):
            calls.pool.close()

    def forget_connections(self) -> None:
        """Leave the parent's connections to the parent."""
        self._watch.forget()
        self._tidying.forget()
        opened = [calls.pool.forget() for calls in (self._calls, self._heartbeats)]
        idle = [connection for connections, _ in opened for connection in connections]
        self._backend.forget(idle, in_use=sum(in_use for _, in_use in opened))

    def open_now(self) -> tuple[list[Connection], int]:
        """Return the connections that are idle, and how many are in use."""
        opened = [calls.pool.open_now() for calls in (self._calls, self._heartbeats)]
        return [connection for idle, _ in opened for connection in idle], sum(in_use for _, in_use in opened)

    def _acquire(self, connection: Connection, wanted: Wanted) -> Grant | Held | AlreadyDone | Lost:
        found: Look | None = None
        for _ in range(ROUNDS):
            token = connection.number(self._sql.take, wanted.to_take)
            if token is not None:
                return wanted.granted(token)
            [(is_alive, *row)] = connection.rows(self._sql.look_for, (wanted.session.id, wanted.name))
            if is_alive is None:
                return Lost("the session expired, was closed, or its row was deleted")
            found = None if row[0] is None else Look.of(tuple(row))
            outcome = self._insert(connection, wanted) if found is None else self._judge(connection, found, wanted)
            if outcome is not None:
                return outcome
        # Others were quicker every time: it is busy rather than free.
        return Held(wanted.name, None, found.token if found else 0, None, BUSY_S)

    def _insert(self, connection: Connection, wanted: Wanted) -> Grant | None:
        """Take a name that has no record yet; None if it has one by now."""
        token = connection.number(self._sql.insert, wanted.to_insert)
        return None if token is None else wanted.granted(token)

    def _judge(self, connection: Connection, found: Look, wanted: Wanted) -> Grant | Held | AlreadyDone | None:
        """Say why the name was not taken; None if it is worth another try."""
        if found.grant_id == wanted.grant_id:
            return wanted.granted(found.token)
        if found.is_dead and found.session_id is not None:
            self._endings.bury(connection, found.session_id)
            return None
        if (held := found.held()) is not None:
            return held
        if wanted.tick is not None and wanted.tick.at_us <= found.last_tick:
            return AlreadyDone(found.name, wanted.tick, found.last_tick)
        return None

    def _look(self, connection: Connection, name: str) -> Look | None:
        rows = connection.rows(self._sql.look, (name,))
        return Look.of(rows[0]) if rows else None

    def _end(self, ending: Ending) -> bool:
        until = self._runtime.monotonic() + self._timeout_s
        has_ended, somebody_waits = self._calls.run(self._timeout_s, lambda c: self._end_once(c, ending))
        if somebody_waits:
            self._wake(ending.name, until)
        return has_ended

    def _end_once(self, connection: Connection, ending: Ending) -> tuple[bool, bool]:
        has_ended, somebody_waits = connection.end_grant(ending)
        if not has_ended and connection.repeats:
            # The first try may have ended it, and only its reply was lost: history knows.
            has_ended = bool(connection.rows(self._sql.has_ended, (ending.name, ending.token, ending.why)))
        return has_ended, somebody_waits

    def _wake(self, name: str, until: float) -> None:
        """Tell those who wait. It is a courtesy: they look for themselves before long."""
        left_s = until - self._runtime.monotonic()
        with suppress(StoreUnavailable):
            self._calls.run(left_s, lambda c: self._backend.announce(c, [name]))

    def _gone(self, connection: Connection, session: Session, grants: Collection[Grant]) -> frozenset[str]:
        there = {row[0] for row in connection.rows(self._sql.grants_of, (session.id,))}
        return frozenset(grant.grant_id for grant in grants if grant.grant_id not in there)

    def _missing(self, connection: Connection, grants: list[Grant]) -> frozenset[str]:
        there: set[str] = set()
        for chunk in chunks([grant.name for grant in grants]):
            rows = connection.rows(f"{self._sql.current}{marks(len(chunk))}", tuple(chunk))
            there.update(row[0] for row in rows)
        return frozenset(grant.grant_id for grant in grants if grant.grant_id not in there)


def micros(duration_s: float) -> int:
    """Return whole microseconds."""
    return round(duration_s * 1_000_000)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
