"""Ledgers that share a database of effects, and versions that name their fences otherwise: who keeps out whom."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from fencepost import App, Run
from fencepost.core.fencing import FencingToken
from fencepost.engine.attempt import Attempt
from fencepost.engine.run import attempt_of
from fencepost.errors import LeaseLost
from fencepost.ledger import nodes
from fencepost.ledger.identity import identity
from fencepost.ledger.migrations import migrate
from fencepost.ledger.nodes import NewNode
from fencepost.ledger.restoring import as_copy
from tests.fence.grounds import RUNTIME, TTL, Ground, a_second_later, write
from tests.fence.other_grounds import ground, server_ground, shared_ground, shared_server_ground

__all__ = ["ground", "server_ground", "shared_ground", "shared_server_ground"]

DAY_US = 24 * 3600 * 1_000_000


class OfOlderVersion(Attempt):
    """A run in the hands of a node that does not know the ledger's identity in names."""

    __slots__ = ()

    def shown(self) -> tuple[FencingToken, None]:
        claim = self.claim
        key = claim.exclusive_key or f"run:{claim.run_id}"
        return FencingToken(key, claim.token, self.grant_id, self.context.node), None


def of_older_version(run: Run) -> Run:
    attempt = attempt_of(run)
    older = Run(attempt.job, attempt.claim, attempt.context)
    older._attempt = OfOlderVersion(attempt.job, attempt.claim, attempt.context)
    return older


@pytest.fixture
def other(ground: Ground, tmp_path: Path) -> Iterator[Ground]:
    """Another ledger, whose effects land in the same database."""
    made = Ground.__new__(Ground)
    url = f"sqlite:///{tmp_path}/other.db?prefix={ground.url.prefix}"
    made.__dict__.update(ground.__dict__, app=App(url, ttl=TTL), is_ledgers=False)
    migrate(made.app.ledger)
    yield made
    made.app.close()


@contextmanager
def older_node(ground: Ground) -> Iterator[str]:
    """Have a node of an older version take part."""
    ledger, name = ground.app.ledger, RUNTIME.new_id()
    nodes.join(ledger, NewNode(name, "old", "g", 1, 0, "0.1.0/0003", 1, ("default",), ()))
    ledger.known_naming = None
    try:
        yield name
    finally:
        forget_older_nodes(ground)


def forget_older_nodes(ground: Ground) -> None:
    ledger = ground.app.ledger

    def work(cursor: object) -> None:
        ledger.change(cursor, text(f"DELETE FROM {ledger.tables.name('node')}"))  # type: ignore[arg-type]
        ledger.change(cursor, text(f"UPDATE {ledger.tables.name('identity')} SET nameless_until = NULL"))  # type: ignore[arg-type]

    ledger.write(work)
    ledger.known_naming = None


def keys_of(ground: Ground) -> set[str]:
    return {row[0] for row in ground.fences()}


class TestTwoLedgers:
    @pytest.mark.parametrize("overlap", ["allow", "queue"])
    def test_runs_of_one_number_and_jobs_of_one_name_do_not_keep_each_other_out(
        self, ground: Ground, other: Ground, overlap: str
    ) -> None:
        ours = ground.run(overlap=overlap)
        theirs = other.run(overlap=overlap)
        attempt = attempt_of(theirs)
        claimed = attempt.claim._replace(run_id=ours.id, exclusive_key=ours.exclusive_key)
        theirs = Run(attempt.job, claimed, attempt.context)
        with ours.fence(ground.engine) as tx:
            write(tx)
        with theirs.fence(ground.engine) as tx:
            write(tx, 2)
        a_second_later(ours)
        with ours.fence(ground.engine) as tx:
            write(tx, 3)
        assert ground.effects() == [1, 2, 3]
        assert len(keys_of(ground)) == 2

    def test_a_key_of_a_users_own_holds_across_both(self, ground: Ground, other: Ground) -> None:
        firsts = []
        for run in (ground.run(), other.run()):
            with run.fence(ground.engine) as tx:
                firsts.append(run.once("settled:2026-01-02", tx))
        assert firsts == [True, False]

    def test_a_name_that_is_too_long_keeps_the_ledger_and_a_hash_of_the_rest(self, ground: Ground) -> None:
        run = ground.run_of(ground.run()._claim._replace(exclusive_key="k" * 191))
        with run.fence(ground.engine):
            pass
        (key,) = keys_of(ground)
        assert key.startswith(f"ledger:{identity(ground.app.ledger)[:12]}:kkk")
        assert len(key) <= 191

    def test_a_copy_of_a_ledger_with_older_nodes_does_not_take_the_names_of_the_original(self, ground: Ground) -> None:
        with older_node(ground):
            as_copy(ground.app.ledger, by="ann", reason="staging")
            with ground.run().fence(ground.engine):
                pass
        (key,) = keys_of(ground)
        assert key.startswith(f"ledger:{identity(ground.app.ledger)[:12]}/")


class TestTwoVersions:
    def test_a_stale_writer_of_the_older_one_is_refused_after_its_successor_of_this_one(self, ground: Ground) -> None:
        with older_node(ground):
            stale = of_older_version(ground.run())
            with stale.fence(ground.engine) as tx:
                write(tx)
            with ground.successor(stale).fence(ground.engine) as tx:
                write(tx, 2)
            a_second_later(stale)
            with pytest.raises(LeaseLost), stale.fence(ground.engine) as tx:
                write(tx, 3)
        assert ground.effects() == [1, 2]

    def test_a_stale_writer_of_this_one_is_refused_after_its_successor_of_the_older_one(self, ground: Ground) -> None:
        with older_node(ground):
            stale = ground.run()
            with stale.fence(ground.engine) as tx:
                write(tx)
            with of_older_version(ground.successor(stale)).fence(ground.engine) as tx:
                write(tx, 2)
            a_second_later(stale)
            with pytest.raises(LeaseLost), stale.fence(ground.engine) as tx:
                write(tx, 3)
        assert ground.effects() == [1, 2]

    @pytest.mark.parametrize("is_older", [True, False], ids=["stale one is older", "stale one is newer"])
    def test_also_one_that_sleeps_before_its_commit(self, server_ground: Ground, is_older: bool) -> None:
        ground = server_ground
        with older_node(ground):
            run = ground.run()
            heir = ground.successor(run)
            stale, heir = (of_older_version(run), heir) if is_older else (run, of_older_version(heir))
            with pytest.raises(LeaseLost), stale.fence(ground.engine) as tx:
                write(tx)
                with heir.fence(ground.engine) as other:
                    write(other, 2)
        assert ground.effects() == [2]

    def test_one_that_was_not_there_when_a_run_began_is_noticed_by_its_next_transaction(self, ground: Ground) -> None:
        run = ground.run()
        with run.fence(ground.engine) as tx:
            write(tx)
        with older_node(ground):
            with run.fence(ground.engine) as tx:
                write(tx, 2)
            assert keys_of(ground) == {run.fencing.key, attempt_of(run).shown()[0].key}
            with of_older_version(ground.successor(run)).fence(ground.engine) as tx:
                write(tx, 3)
            a_second_later(run)
            with pytest.raises(LeaseLost), run.fence(ground.engine) as tx:
                write(tx, 4)

    @pytest.mark.parametrize(("ended_us_ago", "count"), [(DAY_US // 2, 2), (DAY_US * 2, 1)], ids=["lately", "long ago"])
    def test_both_names_are_used_for_a_day_after_the_last_older_node_ended(
        self, ground: Ground, ended_us_ago: int, count: int
    ) -> None:
        ledger = ground.app.ledger
        with older_node(ground):
            ended = f"UPDATE {ledger.tables.name('node')} SET left_at = {ledger.now_us() - ended_us_ago}"
            ledger.write(lambda cursor: ledger.change(cursor, text(ended)))
            with ground.run().fence(ground.engine):
                pass
        assert len(keys_of(ground)) == count
