"""`run.in_transaction`: what failed through nobody's fault is done again, in a new transaction."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.errors import LeaseLost, TransactionConflict
from fencepost.fence.target import target_of
from fencepost.testing import until
from tests.fence.grounds import EFFECTS, RUNTIME, WAYS, Ground, django_connections, write
from tests.fence.other_grounds import ground, server_ground, shared_ground, shared_server_ground

__all__ = ["ground", "server_ground", "shared_ground", "shared_server_ground"]


class TestInTransaction:
    def test_it_returns_what_the_function_returns(self, ground: Ground) -> None:
        def work(tx: Any) -> str:
            write(tx)
            return "done"

        assert ground.run().in_transaction(work, ground.engine) == "done"
        assert ground.effects() == [1]

    def test_any_other_error_is_not_tried_again(self, ground: Ground) -> None:
        calls: list[int] = []

        def work(tx: Any) -> None:
            calls.append(1)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            ground.run().in_transaction(work, ground.engine)
        assert len(calls) == 1

    @pytest.mark.parametrize("way", ["engine", "session", "driver", "django"])
    @pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
    def test_a_real_serialization_failure_is_tried_again(self, server_ground: Ground, way: str, isolation: str) -> None:
        """Somebody else changes what was read. MariaDB says deadlock, or lets the later one wait: so one per server."""
        ground = server_ground
        if ground.kind == "mysql":
            pytest.skip("a lost update is no error there")
        ground.change(f"INSERT INTO {EFFECTS} VALUES (1, 0)")
        calls: list[int] = []

        def work(tx: Any) -> None:
            target = target_of(tx)
            [(before,)] = target.execute(f"SELECT x FROM {EFFECTS} WHERE n = 1").rows
            calls.append(before)
            if len(calls) == 1:
                ground.change(f"UPDATE {EFFECTS} SET x = x + 10")
            target.execute(f"UPDATE {EFFECTS} SET x = %s WHERE n = 1", (before + 1,))

        with WAYS[way](ground.url) as source:
            ground.run(isolation=isolation).in_transaction(work, source)
        assert calls == [0, 10]
        assert ground.rows(f"SELECT x FROM {EFFECTS}") == [(11,)]

    @pytest.mark.parametrize("way", ["engine", "session", "driver", "django"])
    def test_a_real_deadlock_is_tried_again(self, server_ground: Ground, way: str) -> None:
        ground = server_ground
        ground.change(f"INSERT INTO {EFFECTS} VALUES (1, 0), (2, 0)")
        calls: list[str] = []
        met = {name: RUNTIME.event() for name in ("one", "two")}
        ended: list[Any] = []
        runs = {name: ground.run() for name in met}
        django_connections()  # it cannot be set up by two threads at once

        def act(name: str, first: int, second: int) -> None:
            def work(tx: Any) -> None:
                calls.append(name)
                target = target_of(tx)
                target.execute(f"UPDATE {EFFECTS} SET x = x + 1 WHERE n = %s", (first,))
                met[name].set()
                assert met["two" if name == "one" else "one"].wait(30)
                target.execute(f"UPDATE {EFFECTS} SET x = x + 1 WHERE n = %s", (second,))

            try:
                with WAYS[way](ground.url) as source:
                    runs[name].in_transaction(work, source)
                ended.append(name)
            except BaseException as error:  # noqa: BLE001
                ended.append(error)

        RUNTIME.spawn("one", lambda: act("one", 1, 2))
        RUNTIME.spawn("two", lambda: act("two", 2, 1))
        until(lambda: len(ended) == 2, 30, what="both have ended")
        assert sorted(map(str, ended)) == ["one", "two"]
        assert len(calls) >= 3, "one of them was the victim, once or, if it was the quicker one to come back, twice"
        assert ground.rows(f"SELECT x FROM {EFFECTS} ORDER BY n") == [(2,), (2,)]

    def test_a_conflict_at_the_fence_is_tried_again_and_then_told(self, server_ground: Ground) -> None:
        """Under repeatable read PostgreSQL ends a transaction whose fence row was changed at all."""
        ground = server_ground
        if ground.kind != "postgresql":
            pytest.skip("elsewhere it goes on")
        run = ground.run(isolation="repeatable read")
        calls: list[int] = []

        def work(tx: Any) -> None:
            calls.append(1)
            write(tx, len(calls))
            if len(calls) < 3:
                ground.change(f"UPDATE {ground.fence_table} SET raised_at = raised_at + 1")

        run.in_transaction(work, ground.engine)
        assert ground.effects() == [3]
        calls.clear()
        with pytest.raises(TransactionConflict, match="try again"):
            run.in_transaction(work, ground.engine, tries=2)
        assert len(calls) == 2
        assert ground.effects() == [3]

    def test_a_run_that_was_lost_is_not_tried_again(self, server_ground: Ground) -> None:
        ground, run, calls = server_ground, server_ground.run(isolation="repeatable read"), list[int]()

        def work(tx: Any) -> None:
            calls.append(1)
            write(tx)
            ground.take_over(run)

        with pytest.raises(LeaseLost):
            run.in_transaction(work, ground.engine)
        assert (len(calls), ground.effects()) == (1, [])

    def test_no_tries_at_all_make_no_sense(self, ground: Ground) -> None:
        with pytest.raises(ValueError, match="at least one"):
            ground.run().in_transaction(lambda tx: None, ground.engine, tries=0)
