"""One holder at a time, and exact names."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.errors import LockHeld
from fencepost.leases.store import LeaseStore
from fencepost.testing.lease_contract.stand import Connect, Contend, Stand


class Exclusion(Stand):
    """One holder at a time, and exact names."""

    def test_racing_contenders_lose_no_update(self, contend: Contend, name: str, tmp_path: Path) -> None:
        counter = tmp_path / "counter"
        counter.write_text("")
        racers = [contend() for _ in range(self.racers)]
        for racer in racers:
            racer.send("race", name=name, counter=str(counter), rounds=self.rounds_per_racer, ttl=10 * self.ttl_s)
        answers = [racer.hear(deadline_s=100) for racer in racers]
        written = [int(token) for token in counter.read_text().split()]
        assert len(written) == self.racers * self.rounds_per_racer, "an update was lost: two were inside at once"
        assert written == sorted(set(written)), "tokens did not rise in the order of the holders"
        assert sorted(token for answer in answers for token in answer["tokens"]) == written

    def test_held_lock_is_refused_and_says_by_whom(self, connect: Connect, name: str) -> None:
        one, other = connect(), connect()
        with one.lock(name, ttl=10 * self.ttl_s) as lease:
            assert other.try_lock(name, ttl=self.ttl_s) is None
            with pytest.raises(LockHeld) as refusal:
                other.lock(name, ttl=self.ttl_s).acquire()
            assert refusal.value.holder == one.holder
            record = other.read(name)
            assert record is not None
            assert (record.holder, record.token, record.grant_id) == (one.holder, lease.token, lease.grant_id)
        freed = other.read(name)
        assert freed is not None
        assert not freed.is_held
        with other.lock(name, ttl=self.ttl_s) as next_lease:
            assert next_lease.token > lease.token

    def test_names_are_kept_apart_exactly(self, store: LeaseStore, name: str) -> None:
        session = self.open(store)
        odd = ["a/b", "a.b", "a%2Fb", "a b", "A/B", "é", "e\u0301", "{x}", "it's; --", "#?&=*\\", "x" * 200, "名前🔒"]
        names = [f"{suffix}{name}"[:200] for suffix in odd]
        grants = {each: self.take(store, session, each) for each in names}
        assert len(grants) == len(odd)
        assert store.missing(list(grants.values())) == frozenset()
        listed = {record.name for record in store.records() if record.is_held}
        assert listed >= set(names)
        assert store.read("never taken") is None
        store.close(session)
