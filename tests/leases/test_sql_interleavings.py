"""Statement orders of two and three sessions on real PostgreSQL and MariaDB.

Each actor is a store of its own whose connection stops before every statement, and whose clock stands still at a time
of our choosing: so a renewal that read the clock before the expiry meets a burial that read it after, in every order.
A schedule lets one actor run a few statements, then others, then the first again; who waits for a row lock is passed
over until it has it. The *owner* holds the lock on a session that expires at `EXPIRY`; the *heirs* want it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import psycopg
import pytest

from fencepost.core.grants import AlreadyDone, Grant, Held, LeaseRecord, Lost, Renewed, Session
from fencepost.core.tick import Tick
from fencepost.leases.schemes import store_from_url
from fencepost.leases.stores.sql.backend import LeaseConnection
from fencepost.leases.stores.sql.statements import NEVER
from fencepost.leases.stores.sql.store import SqlLeaseStore
from testbed.mariadb import MariaDB
from testbed.postgres import Postgres
from tests import interleaving
from tests.interleaving import Order, chosen, interrupted_once, play
from tests.leases.sql_store import RUNTIME

TTL_S = 10
EXPIRY, BEFORE, AFTER = 1010, 1009, 1011  # seconds of a day long past
NAME, OTHER = "lock", "other"
TICK = Tick(1_000)
STEPS = {"rows", "change", "number", "end_grant", "begin", "commit"}
PART = 16
FAR = RUNTIME.monotonic() + 100_000

Act = Callable[["Actor"], Any]


class Database(Protocol):
    """A server, as far as these tests need it."""

    url: str

    def run(self, sql: str, *parameters: Any) -> list[Any]: ...
    def set_clock(self, connection: Any, at_s: int) -> None: ...
    def connection_id(self, connection: Any) -> int: ...
    def waits_for_a_lock(self, connection_id: int) -> bool: ...
    def close(self) -> None: ...


class OnPostgres:
    """The clock is a function that hides the built-in one."""

    def __init__(self, server: Postgres) -> None:
        self.url = f"{server.url}?call_timeout=20s"
        self._admin = psycopg.connect(server.url, autocommit=True)
        self.run("CREATE SCHEMA IF NOT EXISTS standing")
        self.run(
            "CREATE OR REPLACE FUNCTION standing.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS "
            "$$ SELECT to_timestamp(current_setting('standing.now')::double precision) $$"
        )

    def run(self, sql: str, *parameters: Any) -> list[Any]:
        cursor = self._admin.execute(sql, parameters)
        return cursor.fetchall() if cursor.description else []

    def set_clock(self, connection: Any, at_s: int) -> None:
        connection.rows("SELECT set_config('search_path', 'standing, pg_catalog, public', false)")
        connection.rows("SELECT set_config('standing.now', %s, false)", (str(at_s),))

    def connection_id(self, connection: Any) -> int:
        [(number,)] = connection.rows("SELECT pg_backend_pid()")
        return int(number)

    def waits_for_a_lock(self, connection_id: int) -> bool:
        return bool(self.run("SELECT 1 FROM pg_locks WHERE pid = %s AND NOT granted", connection_id))

    def close(self) -> None:
        self._admin.close()


class OnMariaDB:
    """The clock is a variable of the session."""

    def __init__(self, server: MariaDB) -> None:
        self.url = f"{server.url}?call_timeout=20s"
        self._admin = server.client()
        self._admin.autocommit(True)

    def run(self, sql: str, *parameters: Any) -> list[Any]:
        with self._admin.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall())

    def set_clock(self, connection: Any, at_s: int) -> None:
        connection.change("SET timestamp = %s", (at_s,))

    def connection_id(self, connection: Any) -> int:
        [(number,)] = connection.rows("SELECT CONNECTION_ID()")
        return int(number)

    def waits_for_a_lock(self, connection_id: int) -> bool:
        [(_, _, status)] = self.run("SHOW ENGINE INNODB STATUS")  # the table innodb_trx is renewed only so often
        transactions = status.split("---TRANSACTION")[1:]  # before these stands the latest deadlock, with its waiters
        return any(f"thread id {connection_id}," in each and "LOCK WAIT" in each for each in transactions)

    def close(self) -> None:
        self._admin.close()


class Actor(interleaving.Actor):
    """Makes one call on a store of its own, statement by statement."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        store = store_from_url(database.url, RUNTIME)
        assert isinstance(store, SqlLeaseStore)
        self.store = store
        store.start()
        store._tidying._next_at = float("inf")
        for calls in (store._calls, store._heartbeats):
            calls.pool.drop_idle()
        self._raw: Any = store._backend.connect(5)
        self._raw.deadline = FAR
        number = database.connection_id(self._raw)
        for calls in (store._calls, store._heartbeats):
            calls.pool._make = lambda timeout_s: _Stopping(self._raw, self.stop)
        super().__init__(name, lambda: database.waits_for_a_lock(number))

    def begin_at(self, act: Act, at_s: int) -> None:
        """Set the clock, and go as far as the first statement."""
        self._database.set_clock(self._raw, at_s)
        self.begin(lambda: act(self))

    def finish(self) -> None:
        """Go to the end of the call. Nobody else may be in its way any more."""
        play([self], ())

    def close(self) -> None:
        self._raw.close()


class _Stopping:
    """A connection that stops before each statement. Closing it leaves the real one open, for the next schedule."""

    def __init__(self, connection: Any, stop: Callable[[], None]) -> None:
        object.__setattr__(self, "_connection", connection)
        object.__setattr__(self, "_stop", stop)

    def __getattr__(self, name: str) -> Any:
        if name in STEPS:
            self._stop()
        return (lambda: None) if name == "close" else getattr(self._connection, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._connection, name, FAR if name == "deadline" else value)


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    settings = {"fsync": "off"} if request.param == "postgres" else {"innodb-flush-log-at-trx-commit": "0"}
    with (Postgres if request.param == "postgres" else MariaDB)(settings=settings) as server:
        database = OnPostgres(server) if isinstance(server, Postgres) else OnMariaDB(server)
        yield database
        database.close()


@pytest.fixture(scope="module")
def actors(database: Database) -> Iterator[list[Actor]]:
    actors = [Actor(database, name) for name in ("first", "second", "third")]
    yield actors
    for actor in actors:
        actor.close()


# --- what there is before each schedule, and what the actors do

OWNER = Session("owner", "owner", TTL_S)
HEIRS = (Session("heir1", "heir1", TTL_S), Session("heir2", "heir2", TTL_S))
OWNED = Grant(NAME, OWNER, "owned", 500, TICK)


def reset(database: Database) -> None:
    """The owner holds `NAME` until `EXPIRY`; `OTHER` is free; the heirs are alive all the time."""
    for table in ("session", "lease", "lease_history"):
        database.run(f"DELETE FROM fencepost_{table}")
    for session in (OWNER, *HEIRS):
        expires_at = EXPIRY if session is OWNER else EXPIRY + 60
        database.run(
            "INSERT INTO fencepost_session (id, holder, ttl_us, opened_at, expires_at) VALUES (%s, %s, %s, 0, %s)",
            *(session.id, session.holder, TTL_S * 1_000_000, expires_at * 1_000_000),
        )
    for name, token, session_id, grant_id in ((NAME, 500, OWNER.id, OWNED.grant_id), (OTHER, 700, None, None)):
        database.run(
            "INSERT INTO fencepost_lease (name, token, session_id, grant_id, holder, acquired_at, kept_until) "
            "VALUES (%s, %s, %s, %s, 'owner', 1, 0)",
            *(name, token, session_id, grant_id),
        )


def renew(actor: Actor) -> Any:
    return actor.store.renew(OWNER, [OWNED])


def release(actor: Actor) -> Any:
    return actor.store.release(OWNED)


def close(actor: Actor) -> Any:
    return actor.store.close(OWNER)


def revoke(actor: Actor) -> Any:
    return actor.store.revoke(LeaseRecord(NAME, OWNED.token, grant_id=OWNED.grant_id))


def acquire(session: Session, name: str = NAME, tick: Tick | None = None) -> Act:
    return lambda actor: actor.store.acquire(session, name, grant_id=f"{session.id}/{name}", tick=tick)


def outcomes(
    database: Database, actors: Sequence[Actor], acts: Sequence[tuple[Act, int]], counts: Sequence[int]
) -> Iterator[tuple[Order, list[Any]]]:
    """Play the orders, and yield each with what the calls answered. `acts` come with their clocks."""
    for order in chosen(interrupted_once(counts), part=PART):
        reset(database)
        playing = actors[: len(acts)]
        for actor, (act, at_s) in zip(playing, acts, strict=True):
            actor.begin_at(act, at_s)
        play(playing, order)
        answered = [actor.outcome for actor in playing]
        assert not [each for each in answered if isinstance(each, Exception)], (order, answered)
        yield order, answered


def lock_row(actor: Actor) -> Any:
    """Hold the row of `OTHER`, as somebody's statement on it does for a moment: begin, lock, commit."""

    def lock(connection: LeaseConnection) -> None:
        connection.begin()
        connection.rows("SELECT 1 FROM fencepost_lease WHERE name = %s FOR UPDATE", (OTHER,))
        connection.commit()

    return actor.store._calls.run(interleaving.PATIENCE_S, lock)


def lease(database: Database, name: str = NAME) -> tuple[Any, ...]:
    [row] = database.run("SELECT session_id, grant_id, token, last_tick FROM fencepost_lease WHERE name = %s", name)
    return tuple(row)


def history(database: Database) -> list[tuple[int, str]]:
    return [tuple(row) for row in database.run("SELECT token, why FROM fencepost_lease_history ORDER BY id")]


def is_there(database: Database, session: Session) -> bool:
    return bool(database.run("SELECT 1 FROM fencepost_session WHERE id = %s", session.id))


# --- the orders

ACQUIRE_STEPS = 11  # take, look, begin, bury, is there, lock, record, free, announce, commit, take
CLOSE_STEPS = 7


class TestRenewalAndBurial:
    def test_exactly_one_of_them_wins(self, database: Database, actors: list[Actor]) -> None:
        acts = [(renew, BEFORE), (acquire(HEIRS[0]), AFTER)]
        for schedule, (renewed, inherited) in outcomes(database, actors, acts, (1, ACQUIRE_STEPS)):
            if isinstance(inherited, Grant):
                assert isinstance(renewed, Lost), schedule
                assert lease(database)[:3] == ("heir1", inherited.grant_id, inherited.token), schedule
                assert inherited.token > OWNED.token
                assert history(database) == [(OWNED.token, "expired")], schedule
            else:
                assert isinstance(inherited, Held), schedule
                assert renewed == Renewed(), schedule
                assert lease(database)[:3] == ("owner", OWNED.grant_id, OWNED.token), schedule
                assert history(database) == [], schedule
            assert is_there(database, OWNER) == isinstance(renewed, Renewed), schedule

    def test_of_two_heirs_at_most_one_inherits(self, database: Database, actors: list[Actor]) -> None:
        acts = [(acquire(HEIRS[0]), AFTER), (acquire(HEIRS[1]), AFTER)]
        for schedule, answered in outcomes(database, actors, acts, (ACQUIRE_STEPS, ACQUIRE_STEPS)):
            [winner] = [each for each in answered if isinstance(each, Grant)]
            [_] = [each for each in answered if isinstance(each, Held)]
            assert lease(database)[:3] == (winner.session.id, winner.grant_id, winner.token), schedule
            assert history(database) == [(OWNED.token, "expired")], schedule

    def test_renewal_between_two_heirs(self, database: Database, actors: list[Actor]) -> None:
        acts = [(renew, BEFORE), (acquire(HEIRS[0]), AFTER), (acquire(HEIRS[1]), AFTER)]
        for schedule, (renewed, *heirs) in outcomes(database, actors, acts, (1, 4, 4)):
            grants = [each for each in heirs if isinstance(each, Grant)]
            assert len(grants) + isinstance(renewed, Renewed) == 1, schedule
            holder = grants[0].grant_id if grants else OWNED.grant_id
            assert lease(database)[1] == holder, schedule


class TestEndsThatMeet:
    @pytest.mark.parametrize("at_s", [BEFORE, AFTER])
    def test_release_and_burial_end_the_grant_once(self, database: Database, actors: list[Actor], at_s: int) -> None:
        acts = [(release, at_s), (acquire(HEIRS[0], tick=TICK), AFTER)]
        for schedule, (was_released, inherited) in outcomes(database, actors, acts, (1, ACQUIRE_STEPS)):
            why = "released" if was_released else "expired"
            assert history(database) == [(OWNED.token, why)], schedule
            if was_released:  # and so its tick is done, and nobody may do it again
                assert inherited == AlreadyDone(NAME, TICK, TICK.at_us), schedule
                assert lease(database)[1:] == (None, OWNED.token, TICK.at_us), schedule
            else:
                assert isinstance(inherited, Grant), schedule
                assert lease(database)[1:] == (inherited.grant_id, inherited.token, NEVER), schedule

    def test_late_release_does_not_free_the_heir(self, database: Database, actors: list[Actor]) -> None:
        acts = [(release, BEFORE), (acquire(HEIRS[0]), AFTER), (acquire(HEIRS[1]), AFTER)]
        for schedule, (was_released, *heirs) in outcomes(database, actors, acts, (1, 4, 4)):
            [winner] = [each for each in heirs if isinstance(each, Grant)]
            assert lease(database)[1] == winner.grant_id, schedule
            assert history(database) == [(OWNED.token, "released" if was_released else "expired")], schedule

    def test_close_and_burial_end_the_grant_once(self, database: Database, actors: list[Actor]) -> None:
        acts = [(close, BEFORE), (acquire(HEIRS[0]), AFTER)]
        for schedule, (_, inherited) in outcomes(database, actors, acts, (CLOSE_STEPS, ACQUIRE_STEPS)):
            assert isinstance(inherited, Grant), schedule
            assert lease(database)[1] == inherited.grant_id, schedule
            [(token, why)] = history(database)
            assert (token, why) in {(OWNED.token, "session closed"), (OWNED.token, "expired")}, schedule

    def test_renewal_never_outlives_a_close(self, database: Database, actors: list[Actor]) -> None:
        acts = [(renew, BEFORE), (close, BEFORE)]
        for schedule, _ in outcomes(database, actors, acts, (1, CLOSE_STEPS)):
            assert not is_there(database, OWNER), schedule
            assert history(database) == [(OWNED.token, "session closed")], schedule

    def test_revocation_and_release_end_the_grant_once(self, database: Database, actors: list[Actor]) -> None:
        acts = [(revoke, BEFORE), (release, BEFORE), (acquire(HEIRS[0]), BEFORE)]
        for schedule, (was_revoked, was_released, inherited) in outcomes(database, actors, acts, (1, 1, 4)):
            assert was_revoked != was_released, schedule
            assert history(database) == [(OWNED.token, "revoked" if was_revoked else "released")], schedule
            assert lease(database)[1] == (inherited.grant_id if isinstance(inherited, Grant) else None), schedule


class TestTakingOnASessionThatEnds:
    @pytest.mark.parametrize("name", [OTHER, "new"])
    def test_what_a_closed_session_got_is_free_for_the_next(
        self, database: Database, actors: list[Actor], name: str
    ) -> None:
        """A statement may see the session, wait, and act when it is gone: then the grant hangs on nothing."""
        acts = [(acquire(OWNER, name), BEFORE), (close, BEFORE)]
        for schedule, (got, _) in outcomes(database, actors, acts, (3, CLOSE_STEPS)):
            assert isinstance(got, Grant | Lost), schedule
            _takes_over(database, actors[2], name, got, schedule)

    @pytest.mark.parametrize("name", [OTHER, "new"])
    def test_what_a_buried_session_got_is_free_for_the_next(
        self, database: Database, actors: list[Actor], name: str
    ) -> None:
        acts = [(acquire(OWNER, name), BEFORE), (acquire(HEIRS[0]), AFTER)]
        for schedule, (got, inherited) in outcomes(database, actors, acts, (3, ACQUIRE_STEPS)):
            assert isinstance(inherited, Grant), schedule
            assert not is_there(database, OWNER), schedule
            _takes_over(database, actors[2], name, got, schedule)

    @pytest.mark.parametrize("name", [OTHER, "new"])
    def test_free_name_goes_to_one(self, database: Database, actors: list[Actor], name: str) -> None:
        acts = [(acquire(session, name), BEFORE) for session in (OWNER, *HEIRS)]
        for schedule, answered in outcomes(database, actors, acts, (3, 3, 3)):
            [winner] = [each for each in answered if isinstance(each, Grant)]
            assert len([each for each in answered if isinstance(each, Held)]) == 2, (schedule, answered)
            assert lease(database, name)[:3] == (winner.session.id, winner.grant_id, winner.token), schedule

    def test_take_that_waited_while_its_session_was_closed_blocks_nobody(
        self, database: Database, actors: list[Actor]
    ) -> None:
        """It looked for its session before it waited for the row; when it has the row the session is gone."""
        blocker, taker, closer = actors
        reset(database)
        for actor, act in ((blocker, lock_row), (taker, acquire(OWNER, OTHER)), (closer, close)):
            actor.begin_at(act, BEFORE)
        blocker.step()
        blocker.step()
        taker.step()
        closer.finish()
        assert not taker.is_done
        play([blocker, taker], ())
        assert isinstance(taker.outcome, Grant | Lost)
        _takes_over(database, closer, OTHER, taker.outcome, "blocked")

    def test_heartbeat_waits_for_nobody_who_works_on_a_lease(self, database: Database, actors: list[Actor]) -> None:
        blocker, renewer, _ = actors
        reset(database)
        database.run("UPDATE fencepost_lease SET session_id = %s, grant_id = 'x' WHERE name = %s", OWNER.id, OTHER)
        blocker.begin_at(lock_row, BEFORE)
        renewer.begin_at(lambda actor: actor.store.renew(OWNER, [OWNED]), BEFORE)
        blocker.step()
        blocker.step()
        renewer.finish()
        assert renewer.outcome == Renewed()
        assert not blocker.is_done
        blocker.finish()


def _takes_over(database: Database, actor: Actor, name: str, got: Grant | Lost, schedule: object) -> None:
    """Whatever came of the call on the ended session, the next gets the name at once, with a higher token."""
    actor.begin_at(acquire(HEIRS[1], name), AFTER)
    actor.finish()
    assert isinstance(actor.outcome, Grant), (schedule, actor.outcome)
    assert actor.outcome.token > (got.token if isinstance(got, Grant) else 0), schedule
    assert lease(database, name)[0] == HEIRS[1].id, schedule
    ended = [token for token, _ in history(database)]
    assert len(ended) == len(set(ended)), schedule
