"""Tokens rise, whatever happens to the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.core.fencing import AHEAD_US
from fencepost.errors import ConfigurationError, LeaseLost, LockHeld, StoreUnavailable, TickDone
from fencepost.leases.store import LeaseStore, ResetsTokens
from fencepost.testing.lease_contract.stand import Connect, Stand
from fencepost.testing.under_test import StoreUnderTest
from fencepost.testing.waiting import until


class Tokens(Stand):
    """Tokens rise, whatever happens to the server."""

    def test_token_rises_over_hundreds_of_grants(self, connect: Connect, name: str) -> None:
        *_, last = self._rising_tokens(connect, name, self.grants_in_turn)
        assert last < 2**53

    def test_token_rises_over_deletion_of_the_record(self, server: StoreUnderTest, connect: Connect, name: str) -> None:
        for turn, _ in enumerate(self._rising_tokens(connect, name, 30)):
            if turn % 3 == 2:
                server.forget(name)

    def _rising_tokens(self, connect: Connect, name: str, turns: int) -> Iterator[int]:
        """Let two take the name in turns, and yield the token of each once it has let go."""
        one, other = connect(), connect()
        last = 0
        for turn in range(turns):
            with (one, other)[turn % 2].lock(name, ttl=10 * self.ttl_s) as lease:
                assert lease.token > last
                last = lease.token
            yield last

    def test_token_rises_over_a_crash_of_the_server(self, server: StoreUnderTest, connect: Connect, name: str) -> None:
        locks = connect()
        with locks.lock(name, ttl=10 * self.ttl_s) as lease:
            before = lease.token
        server.restart()
        fresh = connect()
        with fresh.lock(name, ttl=10 * self.ttl_s, wait=30) as lease:
            assert lease.token > before
            before = lease.token
        with locks.lock(name, ttl=10 * self.ttl_s, wait=30) as lease:  # the old connection mends itself
            assert lease.token > before

    def test_holder_survives_a_crash_of_the_server_or_is_told(
        self, server: StoreUnderTest, connect: Connect, name: str
    ) -> None:
        locks = connect()
        lease = locks.lock(name, ttl=10 * self.ttl_s).acquire()
        server.restart()

        def answered() -> str | None:
            try:
                lease.check()
            except LeaseLost:
                return "lost"
            except StoreUnavailable:
                return None
            return "held"

        verdict = until(answered, 10 * self.ttl_s, "the store answers again")
        successor = connect().try_lock(name, ttl=10 * self.ttl_s)
        assert (verdict == "held") == (successor is None)
        assert lease.lost == (verdict == "lost")
        if successor is not None:
            assert successor.token > lease.token

    def test_token_that_a_wrong_clock_put_ahead_can_be_brought_back(
        self, store: LeaseStore, connect: Connect, name: str
    ) -> None:
        if not isinstance(store, ResetsTokens):
            return
        locks = connect()
        with locks.lock(name, ttl=10 * self.ttl_s, tick="2026-01-01T00:00Z") as honest:
            pass
        with pytest.raises(ConfigurationError, match="not more than a day ahead"):
            locks.reset(name, reason="test")
        lifted = locks.lock(name, ttl=10 * self.ttl_s, floor=honest.token + 2 * AHEAD_US)
        with lifted as ahead, pytest.raises(LockHeld):
            locks.reset(name, reason="test")
        assert locks.reset(name, reason="test").token < honest.token + AHEAD_US
        with locks.lock(name, ttl=10 * self.ttl_s) as lease:
            assert honest.token < lease.token < honest.token + AHEAD_US < ahead.token
        with pytest.raises(TickDone), locks.lock(name, ttl=10 * self.ttl_s, tick="2026-01-01T00:00Z"):
            pytest.fail("the tick was forgotten")

    def test_floor_lifts_the_token(self, store: LeaseStore, name: str) -> None:
        session = self.open(store)
        first = self.take(store, session, name)
        assert store.release(first)
        lifted = self.take(store, session, name, floor=first.token + 10**9)
        assert lifted.token == first.token + 10**9
        assert store.release(lifted)
        assert self.take(store, session, name).token == lifted.token + 1
        store.close(session)
