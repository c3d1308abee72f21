"""The lease contract on advisory locks: a lock that belongs to a connection, and a row that keeps the token.

A name is held if its advisory lock is held; the row contains the holder and the token. There is a session row as well,
so that the store on tables alone sees the lease as held. The order of acquiring is lock, then row; the order of
releasing is row, then lock. So if a session has the lock and the row names another advisory session, that one is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from fencepost.core.grants import AlreadyDone, Grant, Held, LeaseRecord, Lost, Renewed, Session
from fencepost.core.runtime import Runtime
from fencepost.core.tick import Tick
from fencepost.errors import StoreRefused, StoreUnavailable, UnsafeStore
from fencepost.leases.store import Capabilities, Watched
from fencepost.leases.stores.sql.advisory_session import (
    AdvisorySession,
    SessionGoneError,
    SessionMuteError,
    halves,
    key_of,
)
from fencepost.leases.stores.sql.advisory_statements import (
    LIMITS,
    LOCKED,
    RESET_LIMITS,
    UNLOCK,
    UNLOCK_ALL,
    advisory_statements,
)
from fencepost.leases.stores.sql.backend import GrantEnding, LeaseConnection, micros
from fencepost.leases.stores.sql.looking import LeaseLook
from fencepost.leases.stores.sql.options import LeaseTables
from fencepost.leases.stores.sql.pooling import sessions_are_shared
from fencepost.leases.stores.sql.postgres_backend import PostgresBackend
from fencepost.leases.stores.sql.psycopg_connection import PsycopgConnection
from fencepost.leases.stores.sql.statements import TOKEN_SUM_PRIME
from fencepost.leases.stores.sql.store import BUSY_S, ROUNDS, Acquisition, SqlLeaseStore
from fencepost.leases.stores.sql.waiting import Polling
from fencepost.leases.urls import StoreUrl
from fencepost.sql.parents import leave_to_parent
from fencepost.sql.psycopg_link import ERRORS
from fencepost.sql.troubles import REPEATABLE, SLOW, CallTimedOut, trouble_of

T = TypeVar("T")

RISK = "pooled-sessions"
OLDEST_VERSION = 140000  # PostgreSQL 14, the first with idle_session_timeout
PREFIX = "adv-"  # of the ids of sessions whose leases are advisory locks
_POLL_S = 0.1  # how late a waiter may notice a release, at ten cheap queries per second
_BUSY = REPEATABLE | SLOW
_GONE = Lost("the connection that held the locks is gone")


class AdvisoryStore(SqlLeaseStore):
    """Leases as advisory locks of connections."""

    def __init__(
        self,
        runtime: Runtime,
        backend: PostgresBackend,
        tables: LeaseTables,
        url: StoreUrl,
        *,
        capabilities: Capabilities,
    ) -> None:
        super().__init__(
            runtime,
            backend,
            capabilities=capabilities,
            call_timeout_s=url.call_timeout_s,
            history_us=tables.history_us,
            watch=lambda read, _: Polling(runtime, read, interval_s=_POLL_S),
        )
        self._postgres = backend
        self._accepts_pooling = RISK in url.accepted_risks()
        self._advisory = advisory_statements(backend.sql, tables)
        self._sessions: dict[str, AdvisorySession] = {}

    def start(self) -> tuple[str, ...]:
        """Start like the store on tables; then check whether server sessions last."""
        warnings = super().start()
        try:
            self._check_version()
            return warnings + self._check_pooling()
        except BaseException:
            self.shutdown()
            raise

    def open(self, holder: str, *, ttl_s: float, call_timeout_s: float) -> Session:
        """Open a connection that the server closes when it was idle for the ttl, and insert the session."""
        sent_at = self._runtime.monotonic()
        until = sent_at + self._timeout_s
        session = Session(f"{PREFIX}{self._runtime.new_id()}", holder, ttl_s)
        try:
            connection = self._postgres.connect(self._timeout_s)
            connection.deadline = until
            self._prepare(connection, session, call_timeout_s)
        except self._calls.expected as error:
            raise self._calls.unavailable(error, self._timeout_s) from error
        self._sessions[session.id] = AdvisorySession(self._runtime, connection, timeout_s=call_timeout_s, ttl_s=ttl_s)
        self._alive_until[session.id] = sent_at + ttl_s
        self._tidying.now_and_then(beside=True)
        return session

    def renew(self, session: Session, grants: Collection[Grant]) -> Renewed | Lost:
        """Extend the session with one statement on its own connection, and check that its locks are still held."""
        if (own := self._sessions.get(session.id)) is None:
            return _GONE
        outcome = self._on(own, own.timeout_s, lambda c: self._prolong(c, own, session, grants))
        return outcome if outcome is not None else _GONE

    def acquire(
        self, session: Session, name: str, *, grant_id: str, tick: Tick | None = None, floor: int = 0
    ) -> Grant | Held | AlreadyDone | Lost:
        """Lock and write the row, in one statement if the name is free."""
        if (own := self._sessions.get(session.id)) is None or own.is_mute:
            return _GONE
        wanted = Acquisition(session, name, grant_id, tick, floor, self._lenience_us(session))
        outcome = self._on(own, self._timeout_s, lambda c: self._lock(c, own, wanted))
        if isinstance(outcome, StoreUnavailable):
            raise outcome
        return outcome if outcome is not None else _GONE

    def release(self, grant: Grant, *, done: bool = True, keep_for_s: float = 0.0) -> bool:
        """Write the row and unlock, in one statement."""
        if (own := self._sessions.get(grant.session.id)) is None:
            return False
        ending = GrantEnding.by_release(grant, done=done, keep_for_s=keep_for_s)
        return bool(self._on(own, self._timeout_s, lambda c: self._unlock(c, own, ending, grant.session.id)))

    def missing(self, grants: Collection[Grant]) -> frozenset[str]:
        """Check whether the rows are current and the locks are held."""

        def look(connection: LeaseConnection) -> frozenset[str]:
            locked = self._locked(connection)
            unlocked = {grant.grant_id for grant in grants if halves(key_of(grant.name)) not in locked}
            return self._missing(connection, list(grants)) | unlocked

        return self._calls.run(self._timeout_s, look)

    def watch(self, grants: Collection[Grant]) -> Watched:
        """Check the locks: they end with a connection, not by a clock."""
        return Watched(self.missing(grants))

    def close(self, session: Session) -> None:
        """Write the end of its leases, then close the connection, which frees the locks."""
        own = self._sessions.pop(session.id, None)
        try:
            super().close(session)
        finally:
            if own is not None:
                self._part_with(own)

    def read(self, name: str) -> LeaseRecord | None:
        """Read the row, and whether the lock is held."""

        def look(connection: LeaseConnection) -> LeaseRecord | None:
            found = self._look(connection, name)
            return None if found is None else _seen(found, self._locked(connection)).record()

        return self._calls.run(self._timeout_s, look)

    def records(self) -> Iterator[LeaseRecord]:
        """Read all rows, and which locks are held."""

        def look(connection: LeaseConnection) -> list[LeaseRecord]:
            locked = self._locked(connection)
            return [_seen(LeaseLook.of(row), locked).record() for row in connection.rows(self._sql.records)]

        return iter(self._calls.run(self._timeout_s, look))

    def page(self, *, after: str, limit: int, is_held: bool) -> list[LeaseRecord]:
        """Read some rows, and which locks are held."""
        sql = self._sql.page_of_held if is_held else self._sql.page

        def look(connection: LeaseConnection) -> list[LeaseRecord]:
            locked = self._locked(connection)
            return [_seen(LeaseLook.of(row), locked).record() for row in connection.rows(sql, (after, limit))]

        return self._calls.run(self._timeout_s, look)

    def shutdown(self) -> None:
        """Close all connections, those of sessions as well."""
        super().shutdown()
        while self._sessions:
            self._part_with(self._sessions.popitem()[1])

    def forget_connections(self) -> None:
        """In a forked child: leave all connections and sessions to the parent."""
        super().forget_connections()
        leave_to_parent(self._sessions.values())
        self._sessions = {}

    def _check_version(self) -> None:
        [(version,)] = self._calls.run(
            self._timeout_s, lambda c: c.rows("SELECT current_setting('server_version_num')::int")
        )
        if version < OLDEST_VERSION:
            raise StoreRefused(f"{self._backend.product}: advisory leases need PostgreSQL 14 (idle_session_timeout)")

    def _check_pooling(self) -> tuple[str, ...]:
        until = self._runtime.monotonic() + self._timeout_s

        def connect() -> PsycopgConnection:
            connection = self._postgres.connect(until - self._runtime.monotonic())
            connection.deadline = until
            return connection

        try:
            is_shared = sessions_are_shared(connect)
        except self._calls.expected as error:
            raise self._calls.unavailable(error, self._timeout_s) from error
        if not is_shared:
            return ()
        sentence = (
            f"{self._backend.product} is reached through a proxy that gives each transaction another session "
            "(pool_mode=transaction): advisory locks would belong to the next client"
        )
        if not self._accepts_pooling:
            raise UnsafeStore(RISK, f"{sentence}; connect past the proxy, or use postgresql://, which works through it")
        return (sentence,)

    def _prepare(self, connection: PsycopgConnection, session: Session, call_timeout_s: float) -> None:
        """Set the limits of the connection: short ones for row locks, because a renewal may be waiting for its turn."""
        limits = (max(1, round(session.ttl_s * 1000)), max(50, round(call_timeout_s * 250)))
        try:
            if not self._accepts_pooling:  # a pool by session may pass on the locks of a client that was killed
                connection.rows(UNLOCK_ALL)
            for name, value in zip(LIMITS, limits, strict=True):
                connection.rows("SELECT set_config(%s, %s, false)", (name, str(value)))
            ttl_us = micros(session.ttl_s)
            connection.change(self._sql.open, (session.id, session.holder, ttl_us, ttl_us))
        except BaseException:
            connection.close()
            raise

    def _part_with(self, own: AdvisorySession) -> None:
        """Unlock before closing: a proxy may keep the server's end of the connection, and so all locks."""
        if not own.is_mute:
            with suppress(StoreUnavailable):
                self._on(own, own.timeout_s, lambda c: self._leave_clean(c, own))
        own.end()

    def _leave_clean(self, connection: PsycopgConnection, own: AdvisorySession) -> None:
        for key in list(own.keys):
            self._unlock_key(connection, own, key)
        connection.rows(RESET_LIMITS, LIMITS)

    def _on(self, own: AdvisorySession, timeout_s: float, work: Callable[[PsycopgConnection], T]) -> T | None:
        """Do `work` on the session's connection; None if the connection is gone, which ends the session."""
        try:
            return own.run(timeout_s, work)
        except SessionGoneError:
            return None
        except SessionMuteError as error:
            raise StoreUnavailable(f"{self._backend.product} did not answer an earlier call of this session") from error
        except self._calls.expected as error:
            if self._calls.is_broken(error):
                return None
            raise self._calls.unavailable(error, timeout_s) from error

    def _prolong(
        self, connection: PsycopgConnection, own: AdvisorySession, session: Session, grants: Collection[Grant]
    ) -> Renewed | Lost:
        sent_at, lenience_us = self._runtime.monotonic(), self._lenience_us(session)
        rows = connection.rows(self._advisory.renew, (micros(session.ttl_s), session.id, lenience_us))
        if not rows:
            return Lost("the session expired, was closed, or its row was deleted")
        [(token_sum, locks)] = rows
        if locks < len(own.keys):
            return Lost("the server has released locks of this session")
        self._alive_until[session.id] = sent_at + session.ttl_s
        if token_sum == sum(grant.token % TOKEN_SUM_PRIME for grant in grants):
            return Renewed()
        gone = self._gone(connection, session, grants)
        for grant in grants:
            if grant.grant_id in gone:
                self._let_go(connection, own, grant.name)
        return Renewed(gone)

    def _lock(
        self, connection: PsycopgConnection, own: AdvisorySession, wanted: Acquisition
    ) -> Grant | Held | AlreadyDone | Lost | StoreUnavailable:
        """Lock and write. A busy row is returned as an error, not raised: an exception would end the session."""
        key = key_of(wanted.name)
        if key in own.keys:
            return self._locked_by_us(connection, wanted)
        try:
            [(got, token)] = connection.rows(self._advisory.lock, (key, *wanted.to_take))
            if got:
                own.keys[key] = wanted.name
            outcome = self._write(connection, wanted) if got and token is None else None
        except ERRORS as error:
            if isinstance(error, CallTimedOut) or trouble_of(error) not in _BUSY:
                raise
            # The lock may have been taken before the statement failed, and a rollback does not release it.
            self._unlock_key(connection, own, key)
            return StoreUnavailable(f"{self._backend.product}: the row of {wanted.name!r} is busy")
        if token is not None:
            return wanted.granted(token)
        if isinstance(outcome, Grant):
            return outcome
        if got:
            self._unlock_key(connection, own, key)
        return outcome if outcome is not None else self._refused(connection, wanted)

    def _write(self, connection: PsycopgConnection, wanted: Acquisition) -> Grant | Held | AlreadyDone | Lost:
        """Write the row of a name whose lock this session has, after ending the grant of its last holder."""
        for _ in range(ROUNDS):
            found = self._look_for(connection, wanted)
            if isinstance(found, Lost):
                return found
            outcome = self._insert(connection, wanted) if found is None else self._settle(connection, found, wanted)
            if outcome is not None:
                return outcome
            if (token := connection.number(self._sql.take, wanted.to_take)) is not None:
                return wanted.granted(token)
        return Held(wanted.name, None, 0, None, BUSY_S)

    def _settle(
        self, connection: PsycopgConnection, found: LeaseLook, wanted: Acquisition
    ) -> Grant | Held | AlreadyDone | None:
        """End the last grant. An advisory holder is gone, because we have its lock; one of the tables may be alive."""
        if found.session_id is None or not found.session_id.startswith(PREFIX) or found.grant_id is None:
            return self._judge(connection, found, wanted)
        connection.end_grant(GrantEnding(name=found.name, grant_id=found.grant_id, token=found.token, why="expired"))
        return None

    def _locked_by_us(self, connection: PsycopgConnection, wanted: Acquisition) -> Grant | Held | Lost:
        """Return the result for a key that this session has already locked: PostgreSQL would lock it a second time."""
        found = self._look(connection, wanted.name)
        if found is not None and found.grant_id == wanted.grant_id:
            return wanted.granted(found.token)
        return self._refused(connection, wanted)

    def _refused(self, connection: PsycopgConnection, wanted: Acquisition) -> Held | Lost:
        """Return the holder, as far as the row shows: it may not be written yet, or the key may be of another name."""
        found = self._look_for(connection, wanted)
        if isinstance(found, Lost):
            return found
        if found is None:
            return Held(wanted.name, None, 0)
        return found.held() or Held(wanted.name, None, found.token)

    def _unlock(
        self, connection: PsycopgConnection, own: AdvisorySession, ending: GrantEnding, session_id: str
    ) -> bool:
        key = key_of(ending.name)
        if own.keys.get(key) != ending.name:
            return False
        has_ended = bool(connection.rows(self._advisory.unlock, (*ending.parameters, ending.why, key)))
        if has_ended:
            del own.keys[key]
        elif not self._has_another_grant(connection, ending, session_id):
            self._unlock_key(connection, own, key)
        return has_ended

    def _has_another_grant(self, connection: PsycopgConnection, ending: GrantEnding, session_id: str) -> bool:
        """Whether this session now holds the name under another grant, so that its lock must be kept."""
        found = self._look(connection, ending.name)
        return found is not None and found.session_id == session_id and found.grant_id != ending.grant_id

    def _let_go(self, connection: PsycopgConnection, own: AdvisorySession, name: str) -> None:
        """Unlock a name whose grant was revoked or whose row was deleted."""
        key = key_of(name)
        if own.keys.get(key) == name:
            self._unlock_key(connection, own, key)

    def _unlock_key(self, connection: PsycopgConnection, own: AdvisorySession, key: int) -> None:
        connection.rows(UNLOCK, (key,))
        own.keys.pop(key, None)

    def _locked(self, connection: LeaseConnection) -> frozenset[tuple[int, int]]:
        return frozenset((high, low) for high, low in connection.rows(LOCKED))


def _seen(found: LeaseLook, locked: Collection[tuple[int, int]]) -> LeaseLook:
    """Correct a row: if its lock is not held, the advisory session that it names is gone."""
    is_advisory = found.session_id is not None and found.session_id.startswith(PREFIX)
    return replace(found, expires_at=None) if is_advisory and halves(key_of(found.name)) not in locked else found
