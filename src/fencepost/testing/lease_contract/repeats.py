"""Grant ids: repeated requests, and requests that arrive late."""

from __future__ import annotations

import pytest

from fencepost.core.grants import Grant, Held, Lost, Session
from fencepost.errors import StoreUnavailable
from fencepost.leases.store import LeaseStore
from fencepost.testing.lease_contract.stand import RUNTIME, Connect, Stand
from fencepost.testing.under_test import StoreUnderTest
from fencepost.testing.waiting import Stopwatch, until


class Repeats(Stand):
    """Grant ids: repeated requests, and requests that arrive late."""

    def test_repeated_acquire_returns_the_same_grant(self, server: StoreUnderTest, name: str) -> None:
        with server.fault() as fault:
            store = fault.store
            store.start()
            session = store.open("somebody", ttl_s=60, call_timeout_s=5)
            grant_id = RUNTIME.new_id()
            self.take(store, session, f"{name}/warm")
            fault.lose_replies()
            with pytest.raises(StoreUnavailable):
                store.acquire(session, name, grant_id=grant_id)
            fault.heal()
            got = until(lambda: self.answer(store, session, name, grant_id), 20, "the store answers again")
            if isinstance(got, Held | Lost):  # the session belonged to the connection, and ended with it
                session = store.open("somebody", ttl_s=60, call_timeout_s=5)
                got = until(lambda: self.granted(store, session, name, grant_id), 20, "the old session is gone")
            assert isinstance(got, Grant)
            assert store.acquire(session, name, grant_id=grant_id) == got
            record = store.read(name)
            assert record is not None
            assert (record.token, record.grant_id) == (got.token, grant_id)
            store.shutdown()

    def test_unanswered_acquire_blocks_nobody_for_ever(
        self, server: StoreUnderTest, connect: Connect, name: str
    ) -> None:
        with server.fault() as fault:
            unlucky = connect(fault.store)
            with unlucky.lock(f"{name}/warm", ttl=10):
                pass
            fault.lose_replies()
            with pytest.raises(StoreUnavailable):
                unlucky.lock(name, ttl=10).acquire()
            fault.heal()
            with connect().lock(name, ttl=10, wait=30) as lease:
                lease.check()
            unlucky.close()

    def test_lost_grant_can_neither_be_renewed_nor_released(self, store: LeaseStore, name: str) -> None:
        sleeper = self.open(store, "sleeper")
        old = self.take(store, sleeper, name)
        successor_session: list[Session] = []

        def taken() -> Grant | None:
            if not successor_session:
                successor_session.append(store.open("successor", ttl_s=60, call_timeout_s=5))
            return self.granted(store, successor_session[0], name, new_id)

        new_id = RUNTIME.new_id()
        # if the store keeps the session alive while its connection is open, close it as the holder's death would
        if not self.expires_unrenewed(store, sleeper, old):
            store.close(sleeper)
        with Stopwatch() as took:
            new = until(taken, 30, "the successor gets the lock")
        assert took.awake_s <= self.ttl_s + self.slack_s
        assert new.token > old.token
        renewal = store.renew(sleeper, [old])
        assert isinstance(renewal, Lost) or old.grant_id in renewal.gone
        assert store.release(old) is False
        assert store.missing([old, new]) == {old.grant_id}
        record = store.read(name)
        assert record is not None
        assert (record.grant_id, record.token) == (new.grant_id, new.token)
        assert not isinstance(store.renew(new.session, [new]), Lost)
        store.close(new.session)

    def expires_unrenewed(self, store: LeaseStore, session: Session, grant: Grant) -> bool:
        """Whether the session ends when it is not renewed, although this process lives."""
        return True

    def test_nothing_can_hang_on_a_dead_session(self, store: LeaseStore, name: str) -> None:
        session = self.open(store)
        self.take(store, session, f"{name}/before")
        store.close(session)
        assert isinstance(store.acquire(session, name, grant_id=RUNTIME.new_id()), Lost)
        assert isinstance(store.renew(session, []), Lost)
        other = self.open(store)
        self.take(store, other, name)
        self.take(store, other, f"{name}/before")
        store.close(other)
