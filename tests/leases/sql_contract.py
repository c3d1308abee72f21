"""Tests that every SQL lease store passes. Derive from them, with fixtures `store`, `name`, `url` and `run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.core.grants import AlreadyDone, Held, Lost, Renewed
from fencepost.core.names import NODE_LEASE
from fencepost.core.tick import Tick
from fencepost.errors import StoreRefused
from fencepost.leases.schemes import store_from_url
from fencepost.leases.stores.sql.statements import WATCHED
from fencepost.leases.stores.sql.store import SqlLeaseStore
from testbed import wait
from tests.leases.sql_store import RUNTIME, Counted, expired, opened, started, taken

HOUR_US = 3_600_000_000

Run = Callable[..., list[Any]]


class RoundTrips:
    def test_known_free_lock_costs_one_call_to_take_and_one_to_release(self, store: SqlLeaseStore, name: str) -> None:
        session, counted = opened(store), Counted(store)
        assert store.release(taken(store, session, name))

        def again() -> None:
            assert store.release(taken(store, session, name))

        assert [statement.split()[0] for statement in counted.during(again)] == ["number", "end_grant"]

    def test_thousand_grants_are_renewed_by_one_statement(self, store: SqlLeaseStore, name: str) -> None:
        session = opened(store)
        grants = [taken(store, session, f"{name}/{each}") for each in range(1000)]
        counted = Counted(store)
        assert len(counted.during(lambda: store.renew(session, grants))) == 1
        assert store.renew(session, grants) == Renewed()
        store.close(session)

    def test_renewal_names_what_is_gone_even_if_another_lock_came(
        self, run: Run, store: SqlLeaseStore, name: str
    ) -> None:
        session = opened(store)
        one, two = (taken(store, session, f"{name}/{each}") for each in range(2))
        run("DELETE FROM fencepost_lease WHERE name = %s", one.name)
        taken(store, session, f"{name}/new, and not yet known to the renewal")
        assert store.renew(session, [one, two]) == Renewed(frozenset({one.grant_id}))


class Shapes:
    def test_tables_of_another_shape_are_refused_at_the_start(self, run: Run, url: str) -> None:
        with started(f"{url}?prefix=shape_"):
            pass
        run("ALTER TABLE shape_session DROP COLUMN ttl_us")
        with pytest.raises(StoreRefused, match="another version"):
            store_from_url(f"{url}?prefix=shape_", RUNTIME).start()


class Deaths:
    def test_expired_session_is_never_renewed(self, store: SqlLeaseStore, name: str) -> None:
        grant = expired(store, name)
        assert isinstance(store.renew(grant.session, [grant]), Lost)
        assert store.missing([grant]) == {grant.grant_id}

    def test_takeover_buries_the_session_with_all_its_leases(self, run: Run, store: SqlLeaseStore, name: str) -> None:
        mortal = opened(store, "mortal", ttl_s=0.3)
        old = [taken(store, mortal, f"{name}/{each}") for each in range(3)]
        wait.until(lambda: len(store.missing(old)) == 3, 30)
        new = taken(store, opened(store, "heir"), old[0].name)
        assert new.token > old[0].token
        assert run("SELECT 1 FROM fencepost_session WHERE id = %s", mortal.id) == []
        for grant in old:
            [past] = store.history(grant.name, limit=5)
            assert (past.holder, past.token, past.why) == ("mortal", grant.token, "expired")

    def test_session_that_was_renewed_in_time_lives_though_the_databases_clock_has_left_it_behind(
        self, run: Run, store: SqlLeaseStore, name: str
    ) -> None:
        session = opened(store)
        grant = taken(store, session, name)
        _leap(run, session.id)
        assert taken(store, session, f"{name}/more").token
        assert store.missing([grant]) == frozenset()
        assert isinstance(store.acquire(opened(store, "beside"), name, grant_id="x"), Held)
        assert isinstance(store.renew(session, [grant]), Renewed)

    def test_session_of_a_node_is_ended_only_by_who_has_watched_it_for_its_ttl(
        self, run: Run, url: str, store: SqlLeaseStore, name: str
    ) -> None:
        grant = taken(store, opened(store, "node", ttl_s=0.5), f"{WATCHED}{name}")
        also = taken(store, grant.session, name)
        _leap(run, grant.session.id)
        with started(url) as other:
            heir = opened(other, "heir")
            for each in (grant, also):
                held = other.acquire(heir, each.name, grant_id="x")
                assert isinstance(held, Held), held
                assert held.free_in_s is not None
                assert 0 < held.free_in_s <= 0.5
            assert other.watch([grant]).missing == frozenset()
            assert isinstance(store.renew(grant.session, [grant]), Renewed)
            _leap(run, grant.session.id)
            wait.until(lambda: other.watch([grant]).missing == {grant.grant_id}, 30)
            assert taken(other, heir, also.name).token > also.token
        assert isinstance(store.renew(grant.session, [grant]), Lost)

    def test_dead_node_is_found_in_time_though_the_clock_went_back_after_its_last_renewal(
        self, run: Run, url: str, store: SqlLeaseStore, name: str
    ) -> None:
        grant = taken(store, opened(store, "node", ttl_s=0.5), f"{WATCHED}{name}")
        _leap(run, grant.session.id, by_us=HOUR_US)
        with started(url) as other:
            heir = opened(other, "heir")
            wait.until(lambda: other.watch([grant]).missing == {grant.grant_id}, 30)
            assert taken(other, heir, grant.name).token > grant.token


def _leap(run: Run, session_id: str, *, by_us: int = -HOUR_US) -> None:
    """Leave a session as a step of the database's clock leaves it: long expired, or with long to go."""
    run("UPDATE fencepost_session SET expires_at = expires_at + %s WHERE id = %s", by_us, session_id)


class Records:
    def test_record_deleted_by_hand_comes_back_with_a_higher_token(
        self, run: Run, store: SqlLeaseStore, name: str
    ) -> None:
        session = opened(store)
        old = taken(store, session, name)
        run("DELETE FROM fencepost_lease WHERE name = %s", name)
        new = taken(store, session, name)
        assert new.token > old.token
        assert store.missing([old, new]) == {old.grant_id}

    def test_session_deleted_by_hand_frees_its_leases(self, run: Run, store: SqlLeaseStore, name: str) -> None:
        grant = taken(store, opened(store), name)
        run("DELETE FROM fencepost_session WHERE id = %s", grant.session.id)
        assert taken(store, opened(store), name).token > grant.token
        assert isinstance(store.renew(grant.session, [grant]), Lost)

    def test_every_end_is_in_the_history(self, store: SqlLeaseStore, name: str) -> None:
        session = opened(store, "me")
        assert store.release(taken(store, session, name))
        revoked = taken(store, session, name)
        record = store.read(name)
        assert record is not None
        assert store.revoke(record)
        assert not store.revoke(record)
        closed = taken(store, session, name)
        store.close(session)
        expired(store, name)
        last = taken(store, opened(store), name)
        assert [past.why for past in store.history(name, limit=9)] == [
            "expired",
            "session closed",
            "revoked",
            "released",
        ]
        assert [past.token for past in store.history(name, limit=3)][1:] == [closed.token, revoked.token]
        assert all(past.acquired_at_us <= past.ended_at_us for past in store.history(None, limit=100))
        assert last.token > closed.token

    def test_old_history_is_pruned_and_the_rest_stays(self, run: Run, url: str, name: str) -> None:
        with started(f"{url}?prefix=pruned_&history=30d") as store:
            session = opened(store)
            for _ in range(3):
                store.release(taken(store, session, name))
            run(
                "UPDATE pruned_lease_history SET ended_at = ended_at - 2678400000000 WHERE id = "
                "(SELECT * FROM (SELECT min(id) FROM pruned_lease_history) oldest)",
            )
            store._tidying.tidy()
            assert len(store.history(name, limit=9)) == 2

    def test_sessions_of_nodes_that_are_gone_are_forgotten_and_no_other_name(
        self, run: Run, url: str, name: str
    ) -> None:
        with started(f"{url}?prefix=forgotten_&history=30d") as store:
            session = opened(store)
            names = [f"{NODE_LEASE}gone", f"{NODE_LEASE}recent", f"{NODE_LEASE}living", f"x{NODE_LEASE}", name]
            grants = {each: taken(store, session, each) for each in names}
            for each in (0, 1, 3, 4):
                store.release(grants[names[each]])
            run("UPDATE forgotten_lease SET acquired_at = acquired_at - 2678400000000 WHERE name <> %s", names[1])
            store._tidying.tidy()
            assert {record.name for record in store.records()} == set(names[1:])

    def test_long_dead_sessions_are_buried_once_they_were_watched(
        self, run: Run, store: SqlLeaseStore, name: str
    ) -> None:
        grant = taken(store, opened(store, ttl_s=0.3), name)
        run("UPDATE fencepost_session SET expires_at = 0 WHERE id = %s", grant.session.id)
        store._tidying.tidy()
        assert store.history(name, limit=9) == []

        def is_buried() -> bool:
            store._tidying.tidy()
            return [past.why for past in store.history(name, limit=9)] == ["expired"]

        wait.until(is_buried, 30)

    def test_kept_closed_name_names_nobody(self, store: SqlLeaseStore, name: str) -> None:
        session = opened(store)
        grant = taken(store, session, name)
        assert store.release(grant, keep_for_s=60)
        held = store.acquire(session, name, grant_id=RUNTIME.new_id())
        assert isinstance(held, Held)
        assert (held.holder, held.grant_id, held.token) == (None, None, grant.token)
        assert held.free_in_s is not None
        assert 55 < held.free_in_s <= 60

    def test_last_tick_only_rises(self, store: SqlLeaseStore, name: str) -> None:
        session = opened(store)
        late, early = Tick(2_000_000), Tick(1_000_000)
        first = taken(store, session, name, tick=late)
        assert isinstance(store.acquire(session, name, grant_id="x", tick=late), Held)
        assert store.release(first, done=True)
        assert isinstance(store.acquire(session, name, grant_id="x", tick=early), AlreadyDone)
        assert store.acquire(session, name, grant_id="x", tick=late) == AlreadyDone(name, late, 2_000_000)
        record = store.read(name)
        assert record is not None
        assert record.last_tick_us == 2_000_000
