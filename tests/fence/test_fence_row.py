"""The fence in another database than the ledger: who may raise it, who may write behind it, how long one waits."""

from __future__ import annotations

from pathlib import Path
from traceback import TracebackException
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import event, text

from fencepost import Run
from fencepost.core.fencing import AHEAD_US
from fencepost.engine.run import attempt_of
from fencepost.engine.which_fence import is_the_ledgers
from fencepost.errors import EffectsMissing, LeaseLost, TransactionConflict
from fencepost.fence.fence_row import FenceRow
from fencepost.fence.sources import source_of
from fencepost.fence.target import target_of
from fencepost.testing import Stopwatch, until
from tests.fence.grounds import RUNTIME, Ground, a_second_later, by_driver, write
from tests.fence.other_grounds import ground, server_ground, shared_ground, shared_server_ground
from tests.fence.test_transactions import KINDS, other_database, server_of, urls

__all__ = ["ground", "server_ground", "shared_ground", "shared_server_ground"]


def put_fence(ground: Ground, key: str, token: int, grant_id: str = "somebody") -> None:
    column = "`key`" if ground.kind == "mysql" else "key"
    ground.change(
        f"INSERT INTO {ground.fence_table} ({column}, token, grant_id, raised_at) VALUES (:k, :t, :g, 0)",
        k=key,
        t=token,
        g=grant_id,
    )


def assert_refused(ground: Ground, run: Run, why: str) -> None:
    with pytest.raises(LeaseLost, match=why), run.fence(ground.engine):
        pytest.fail("it began")
    with ground.engine.connect() as connection:
        assert not connection.in_transaction(), "the connection is back in its pool, free"
    assert ground.effects() == []


class TestWhoMayRaiseIt:
    def test_the_first_one_does(self, ground: Ground) -> None:
        run = ground.run()
        with run.fence(ground.engine) as tx:
            write(tx)
        assert ground.fences() == [(run.fencing.key, run.token, f"{run.node}/{run.id}/1", run.node)]

    def test_a_successor_raises_it_and_the_former_one_is_out(self, ground: Ground) -> None:
        run = ground.run()
        heir = ground.successor(run)
        with run.fence(ground.engine) as tx:
            write(tx)
        with heir.fence(ground.engine) as tx:
            write(tx, 2)
        with pytest.raises(LeaseLost, match="nothing was written"), run.fence(ground.engine) as tx:
            write(tx, 4)
        a_second_later(run)
        with pytest.raises(LeaseLost, match="nothing was written"), run.fence(ground.engine):
            pytest.fail("it began")
        with heir.fence(ground.engine) as tx:
            write(tx, 3)
        assert ground.effects() == [1, 2, 3]

    def test_one_that_comes_late_does_not(self, ground: Ground) -> None:
        run = ground.run()
        put_fence(ground, run.fencing.key, run.token + 1)
        assert_refused(ground, run, "a newer holder has written with token")

    def test_an_equal_token_of_another_grant_is_refused(self, ground: Ground) -> None:
        run = ground.run()
        put_fence(ground, run.fencing.key, run.token, "another node/1/1")
        assert_refused(ground, run, "another grant has written with the same token")

    def test_the_same_attempt_in_another_process_is_not(self, ground: Ground) -> None:
        run = ground.run()
        again = ground.run_of(attempt_of(run).claim)
        for number, each in enumerate((run, again, run)):
            with each.fence(ground.engine) as tx:
                write(tx, number)
        assert ground.effects() == [0, 1, 2]

    def test_a_token_a_day_ahead_of_the_database_is_not_believed(self, ground: Ground) -> None:
        run = ground.successor(ground.run(), by=AHEAD_US + 60_000_000)
        assert_refused(ground, run, "more than a day ahead")
        assert ground.fences() == []

    def test_below_the_floor_nobody_does_who_has_no_row(self, ground: Ground) -> None:
        run = ground.run()
        put_fence(ground, "", run.token + 1, "")
        assert_refused(ground, run, "below the floor")

    def test_at_the_floor_itself_one_may_still_be_there(self, ground: Ground) -> None:
        run = ground.run()
        put_fence(ground, "", run.token, "")
        with run.fence(ground.engine) as tx:
            write(tx)
        assert ground.effects() == [1]

    def test_a_row_that_was_pruned_while_its_holder_lives_is_raised_again(self, ground: Ground) -> None:
        run = ground.run()
        with run.fence(ground.engine):
            pass
        ground.change(f"DELETE FROM {ground.fence_table}")
        a_second_later(run)
        with run.fence(ground.engine) as tx:
            write(tx)
        assert ground.effects() == [1]

    def test_an_odd_key_is_kept_exactly(self, ground: Ground) -> None:
        run = ground.run_of(ground.run()._claim._replace(exclusive_key="a\nb " * 100))
        with run.fence(ground.engine) as tx:
            write(tx)
        heir = ground.successor(run)
        with heir.fence(ground.engine) as tx:
            write(tx, 2)
        assert len(ground.fences()) == 1
        a_second_later(run)
        assert_stale(ground, run)

    def test_runs_that_may_overlap_have_fences_of_their_own(self, ground: Ground) -> None:
        one, two = ground.run(overlap="allow"), ground.run(overlap="allow")
        with one.fence(ground.engine) as tx:
            write(tx)
        with two.fence(ground.engine) as tx:
            write(tx, 2)
        with one.fence(ground.engine) as tx:
            write(tx, 3)
        assert [row[0] for row in ground.fences()] == sorted(run.fencing.key for run in (one, two))

    def test_those_of_runs_that_ended_long_ago_go_by_themselves_and_still_refuse(
        self, ground: Ground, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("fencepost.fence.families.ONE_IN", 0)  # at every raise
        names = attempt_of(ground.run()).context.naming()
        long_running = ground.run(overlap="allow")
        ledger = ground.app.ledger
        older = f"UPDATE {ledger.tables.name('run')} SET token = 5 WHERE id = {long_running.id}"
        ledger.write(lambda cursor: ledger.change(cursor, text(older)))
        long_running = ground.run_of(attempt_of(long_running).claim._replace(token=5))
        with long_running.fence(ground.engine):
            pass
        for number, token in ((1, 3), (2, 4), (3, 6)):
            put_fence(ground, names.run_fence(10**11 + number), token)
        put_fence(ground, names.fence("job:settle"), 3)
        with ground.run(overlap="allow").fence(ground.engine) as tx:
            write(tx)
        left = {key: token for key, token, *_ in ground.fences()}
        assert names.run_fence(10**11 + 1) not in left
        assert names.run_fence(10**11 + 2) not in left
        assert left[names.run_fence(10**11 + 3)] == 6
        assert left[names.fence("job:settle")] == 3
        assert left[names.run_fences] == 5
        stale = ground.run_of(attempt_of(long_running).claim._replace(run_id=10**11 + 1, token=3))
        with pytest.raises(LeaseLost, match="below the floor"), stale.fence(ground.engine):
            pytest.fail("it began")
        a_second_later(long_running)
        with long_running.fence(ground.engine) as tx:
            write(tx, 2)
        assert ground.effects() == [1, 2]

    @pytest.mark.parametrize("key", ["run:nightly", "run:202611160200", "/run:202611160200"])
    def test_those_of_users_keys_that_look_alike_stay(
        self, ground: Ground, monkeypatch: pytest.MonkeyPatch, key: str
    ) -> None:
        monkeypatch.setattr("fencepost.fence.families.ONE_IN", 0)  # at every raise
        keyed = ground.run_of(ground.run()._claim._replace(exclusive_key=key, token=5))
        with keyed.fence(ground.engine):
            pass
        with ground.run(overlap="allow").fence(ground.engine):
            pass
        assert keyed.fencing.key in {row[0] for row in ground.fences()}

    def test_it_is_raised_once_for_all_transactions_of_an_attempt(self, ground: Ground) -> None:
        run = ground.run()
        writes: list[str] = []

        def note(conn: Any, cursor: Any, statement: str, *_: Any) -> None:
            if ground.fence_table in statement and statement.startswith(("INSERT", "UPDATE")):
                writes.append(statement)

        event.listen(ground.engine, "before_cursor_execute", note)
        try:
            for number in range(3):
                with run.fence(ground.engine) as tx:
                    write(tx, number)
        finally:
            event.remove(ground.engine, "before_cursor_execute", note)
        inserts = [each for each in writes if each.startswith("INSERT")]
        assert len(inserts) == 1
        assert all("1 = 0" in each for each in writes if each not in inserts), "no other write but SQLite's empty one"


def assert_stale(ground: Ground, run: Run) -> None:
    with pytest.raises(LeaseLost), run.fence(ground.engine):
        pytest.fail("it began")


class TestWhichFence:
    def test_a_database_without_the_tables_names_the_command(
        self, request: pytest.FixtureRequest, tmp_path: Path, kind: str
    ) -> None:
        ground = Ground(*urls(kind, "other", request, tmp_path), has_tables=False)
        try:
            with (
                pytest.raises(EffectsMissing, match="fencepost effects install") as told,
                ground.run().fence(ground.engine),
            ):
                pytest.fail("it began")
            assert len(list(TracebackException.from_exception(told.value).format(chain=True))) == len(
                list(TracebackException.from_exception(told.value).format(chain=False))
            ), "one traceback, and not those of the driver before it"
            with by_driver(ground.url) as connection:
                with pytest.raises(EffectsMissing), ground.run().fence(connection):
                    pytest.fail("it began")
                write(connection)
                connection.commit()
            assert ground.effects() == [1], "the connection is as good as before"
        finally:
            ground.close()

    @pytest.fixture(params=KINDS)
    def kind(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def test_a_ledger_of_another_kind_is_told_without_asking(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> None:
        url = f"{other_database(server_of('postgresql', request))}?prefix=fencepost_"
        ground = Ground(f"sqlite:///{tmp_path}/ledger.db", url)
        run = ground.run()
        with run.fence(ground.engine) as tx:
            write(tx)
        assert [row[1] for row in ground.fences()] == [run.token]
        ground.close()

    def test_another_ledger_on_the_same_server_is_told_from_ours(
        self, request: pytest.FixtureRequest, tmp_path: Path, kind: str
    ) -> None:
        ours, _ = urls(kind, "ledger", request, tmp_path)
        if kind == "sqlite":
            other = f"sqlite:///{tmp_path}/second.db"
        else:
            other = f"{other_database(server_of(kind, request))}?{ours.partition('?')[2]}"
        theirs = Ground(other, other)
        ground = Ground(ours, other)
        run = ground.run()
        source = source_of(ground.engine)
        source.open()
        assert not is_the_ledgers(source, ground.app.ledger)
        source.close()
        with run.fence(ground.engine) as tx:
            write(tx)
        assert [row[1] for row in ground.fences()] == [run.token]
        theirs.close()
        ground.close()

    def test_no_connection_is_no_other_database(self, ground: Ground) -> None:
        with pytest.raises(TypeError, match="takes a connection"):
            ground.run().fence(None)

    def test_what_cannot_be_fenced_is_told_with_what_can(self, ground: Ground) -> None:
        with (
            pytest.raises(TypeError, match="psycopg, PyMySQL and sqlite3"),
            ground.run().transaction("postgresql://db"),
        ):
            pytest.fail("it began")

    def test_async_connections_are_refused(self, ground: Ground) -> None:
        from sqlalchemy.ext.asyncio import AsyncSession

        with pytest.raises(TypeError, match="async"), ground.run().transaction(AsyncSession()):
            pytest.fail("it began")


class TestWaiting:
    """A predecessor in the middle of its transaction, or at its very end."""

    def test_a_writer_in_the_middle_delays_nobody(self, server_ground: Ground) -> None:
        ground, run = server_ground, server_ground.run()
        with pytest.raises(LeaseLost), run.fence(ground.engine) as tx:
            write(tx)
            with ground.successor(run).fence(ground.engine) as other:  # would wait for ever otherwise
                write(other, 2)
        assert ground.effects() == [2]

    def test_a_writer_paused_after_its_last_look_delays_its_successor_by_a_ttl_at_most(
        self, server_ground: Ground
    ) -> None:
        ground, run = server_ground, server_ground.run()
        run = short_lived(run)
        transaction = run.fence(ground.engine)
        tx = transaction.__enter__()
        write(tx)
        row = FenceRow(ground.fence_table, "its check", run.fencing, "the run")
        sharing = "FOR SHARE" if ground.kind == "postgresql" else "LOCK IN SHARE MODE"
        assert target_of(tx).execute(f"{row.query(ground.kind)} {sharing}", row.values).rows == [(1,)]
        with Stopwatch() as took, ground.successor(run).fence(ground.engine) as other:
            write(other, 2)
        assert took.whole_s > 0.5
        assert took.awake_s <= attempt_of(run).context.ttl_s + 2
        with pytest.raises(Exception, match=r"(?i)terminat|lost|gone|closed|timeout|invalid"):
            transaction.__exit__(None, None, None)
        assert ground.effects() == [2]

    def test_one_that_sits_there_for_ever_is_told_of(self, server_ground: Ground) -> None:
        """By somebody whose silence the server does not bound."""
        ground, run = server_ground, short_lived(server_ground.run(), ttl_s=0.1)
        with run.fence(ground.engine):
            pass
        heir = short_lived(ground.successor(run), ttl_s=0.1)
        key = "`key`" if ground.kind == "mysql" else "key"
        with ground.engine.connect() as sitting:
            sitting.execute(
                text(f"SELECT token FROM {ground.fence_table} WHERE {key} = :k FOR UPDATE"), {"k": run.fencing.key}
            )
            with pytest.raises(TransactionConflict, match="could not be raised"), heir.fence(ground.engine):
                pytest.fail("it began")

    @pytest.mark.parametrize("_", range(5))
    def test_two_who_raise_it_first_at_once_are_in_order(self, server_ground: Ground, _: int) -> None:
        ground = server_ground
        run = ground.run()
        heirs = [ground.successor(run, by=by) for by in range(4)]
        ended: list[str] = []

        def act(run: Run) -> None:
            try:
                with run.fence(ground.engine):
                    pass
                ended.append("raised")
            except LeaseLost:
                ended.append("lost")

        for heir in heirs:
            RUNTIME.spawn("heir", lambda heir=heir: act(heir))  # type: ignore[misc]
        until(lambda: len(ended) == 4, 20, what="all have ended")
        [mark] = [row[1] for row in ground.fences() if row[0] == run.fencing.key]
        assert mark == heirs[-1].token
        assert "raised" in ended


def short_lived(run: Run, ttl_s: float = 1.0) -> Run:
    from dataclasses import replace

    attempt = attempt_of(run)
    return Run(attempt.job, attempt.claim, replace(attempt.context, ttl_s=ttl_s))


def test_nothing_holds_a_password() -> None:
    """What is remembered of a place, and shown of a source."""
    source = source_of(sqlalchemy.create_engine("postgresql+psycopg://u:secret@h/d"))
    assert "secret" not in repr(source.place)
