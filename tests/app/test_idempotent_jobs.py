"""Jobs without a lock: runs overlap, and what they do lands once by its key. On each database."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import text

from fencepost import App, Run
from fencepost.core.noted import Noted
from fencepost.core.overlap import START
from fencepost.core.retry import Rerun
from fencepost.engine.run import current
from fencepost.errors import LeaseLost
from fencepost.fence.idempotency import idempotent
from fencepost.fence.sequence import Sequence
from fencepost.ledger.claiming import claim
from fencepost.ledger.journal import About
from fencepost.ledger.reaping import reap
from tests.app.test_transaction import NODE, Stand, stand

__all__ = ["stand"]


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url, ttl="5s")
    app.job(effects="idempotent", isolation="read committed")(settle)
    app.job(isolation="read committed")(guarded)
    yield app
    app.close()


def settle(run: Run) -> None: ...
def guarded(run: Run) -> None: ...


def runs(stand: Stand, count: int, job: str = "settle") -> list[Run]:
    """Claim so many runs of a job, all of which run now."""
    for _ in range(count):
        stand.app.enqueue(job)
    return [stand.run_of(each) for each in stand.claimed()]


def unkeyed(stand: Stand) -> list[tuple[str | None, int | None]]:
    found = stand.app.operations.journal(about=About())
    return [(entry.job, entry.run_id) for entry in found if entry.what == Noted.UNKEYED_WRITE]


class TestOverlap:
    def test_runs_overlap_and_what_both_do_lands_once(self, stand: Stand) -> None:
        one, two = runs(stand, 2)
        assert (one.exclusive_key, two.exclusive_key) == (None, None)
        for run in (one, two, one):
            with run.transaction() as tx:
                if run.once("settle:2026-01-01", tx):
                    stand.write(tx)
        assert stand.effects_now() == [1]
        assert unkeyed(stand) == []

    def test_at_the_very_same_moment_too(self, stand: Stand) -> None:
        both, start = runs(stand, 2), threading.Barrier(2)

        def work(run: Run) -> None:
            for number in range(10):
                start.wait()
                run.in_transaction(lambda tx: run.once(f"settle:{number}", tx) and stand.write(tx, number))  # noqa: B023

        threads = [threading.Thread(target=work, args=(run,)) for run in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert stand.effects_now() == list(range(10))

    def test_without_keys_it_lands_twice(self, stand: Stand) -> None:
        """So it is the key that does it in the tests above, and nothing else."""
        for run in runs(stand, 2):
            with run.transaction() as tx:
                stand.write(tx)
        assert stand.effects_now() == [1, 1]

    def test_an_attempt_that_was_lost_after_its_commit_is_not_repeated_by_the_next(self, stand: Stand) -> None:
        [first] = runs(stand, 1)
        with first.transaction() as tx:
            assert first.once("settle:1", tx)
            stand.write(tx)
        second = self.reaped_and_claimed_again(stand)
        with second.transaction() as tx:
            assert not second.once("settle:1", tx)
        with (
            pytest.raises(LeaseLost),
            first.transaction() as tx,
        ):  # the fence stays: it costs little, and orders writers
            stand.write(tx)
        assert stand.effects_now() == [1]

    def reaped_and_claimed_again(self, stand: Stand) -> Run:
        reap(stand.connection, node=NODE, limit=10, decide=lambda job, crashes: Rerun())
        [again] = claim(
            stand.connection,
            node="1" * 32,
            jobs=["settle"],
            queues=["default"],
            limit=10,
            decide=lambda job, *, key_is_taken, **_: START,
        ).claims
        assert again.attempt == 2
        return stand.run_of(again)


FEED = Sequence("feed")


@idempotent(key="charge:{number}")
def charge(tx: Any, number: int) -> int:
    return number


def _once(run: Run, tx: Any) -> None:
    run.once("x", tx)


def _idempotent(run: Run, tx: Any) -> None:
    charge(tx, 7)


def _sequence(run: Run, tx: Any) -> None:
    FEED.advance(tx, after=None, to=1)


class TestForgottenKey:
    def test_a_write_without_a_key_is_told_once_per_attempt(
        self, stand: Stand, caplog: pytest.LogCaptureFixture
    ) -> None:
        [run] = runs(stand, 1)
        with caplog.at_level(logging.WARNING, logger="fencepost"):
            for number in range(3):
                with run.transaction() as tx:
                    stand.write(tx, number)
        assert stand.effects_now() == [0, 1, 2]
        assert unkeyed(stand) == [("settle", run.id)]
        assert [record.message for record in caplog.records if "lands once by a key" in record.message] != []

    @pytest.mark.parametrize("use", [_once, _idempotent, _sequence])
    def test_a_write_with_one_is_not(self, stand: Stand, use: Callable[[Run, Any], None]) -> None:
        [run] = runs(stand, 1)
        of_this = current.set(run)  # as whoever invokes the job's function does
        with run.transaction() as tx:
            use(run, tx)
            stand.write(tx)
        current.reset(of_this)
        assert unkeyed(stand) == []

    def test_nor_are_rows_that_were_taken(self, stand: Stand) -> None:
        [run] = runs(stand, 1)
        with run.transaction() as tx:
            run.take(tx, f"SELECT n FROM {stand.effects} ORDER BY n", limit=3)
        assert unkeyed(stand) == []

    def test_nor_is_one_that_ends_the_run(self, stand: Stand) -> None:
        [run] = runs(stand, 1)
        with run.transaction(final=True) as tx:
            stand.write(tx)
        assert unkeyed(stand) == []

    def test_nor_is_one_that_was_rolled_back(self, stand: Stand) -> None:
        [run] = runs(stand, 1)
        with pytest.raises(ZeroDivisionError), run.transaction() as tx:
            stand.write(tx)
            raise ZeroDivisionError
        assert unkeyed(stand) == []

    def test_nor_is_any_of_a_job_that_does_not_rely_on_keys(self, stand: Stand) -> None:
        [run] = runs(stand, 1, "guarded")
        with run.transaction() as tx:
            stand.write(tx)
        assert unkeyed(stand) == []

    def test_one_in_a_database_of_the_jobs_own_is_told_as_well(self, stand: Stand) -> None:
        [run] = runs(stand, 1)
        with run.transaction(stand.engine) as tx:
            tx.execute(text(f"INSERT INTO {stand.effects} VALUES (1)"))
        assert unkeyed(stand) == [("settle", run.id)]
