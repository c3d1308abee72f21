"""`lease.fence(connection)`: transactions of plain locks, with locks that are really held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencepost import locks
from fencepost.core.events import What
from fencepost.errors import ConfigurationError, EffectsMissing, LeaseLost
from tests.fence.grounds import WAYS, Ground, write
from tests.fence.other_grounds import ground, server_ground, shared_ground, shared_server_ground

__all__ = ["ground", "server_ground", "shared_ground", "shared_server_ground"]


class TestLocks:
    """`lease.fence(connection)`, with locks that are really held."""

    @pytest.mark.parametrize("way", ["engine", "session", "driver", "django"])
    def test_a_lock_fences_a_database(self, ground: Ground, way: str, tmp_path: Path) -> None:
        events: list[Any] = []
        prefix = ground.url.prefix
        with (
            locks.connect(f"sqlite:///{tmp_path}/locks.db", observers=[events.append]) as store,
            WAYS[way](ground.url) as source,
        ):
            with store.lock("settlement") as first:
                with first.fence(source, prefix=prefix) as tx:
                    write(tx)
                with first.fence(source, prefix=prefix, isolation="serializable") as tx:
                    write(tx, 2)
            assert ground.fences() == [("settlement", first.token, first.grant_id, first.holder)]
            with store.lock("settlement") as second:
                with second.fence(source, prefix=prefix) as tx:
                    write(tx, 3)
                zombie = first
                zombie._is_released = False  # a process that was paused before it knew
                with pytest.raises(LeaseLost, match="nothing was written"), zombie.fence(source, prefix=prefix) as tx:
                    write(tx, 4)
        assert ground.effects() == [1, 2, 3]
        [refused] = [each for each in events if each.what is What.REFUSED_WRITE]
        assert (refused.lock, refused.token, refused.grant_id) == ("settlement", first.token, first.grant_id)

    def test_after_its_release_a_lock_fences_nothing_more(self, ground: Ground, tmp_path: Path) -> None:
        with locks.connect(f"sqlite:///{tmp_path}/locks.db") as store:
            with store.lock("settlement") as lease:
                pass
            with pytest.raises(LeaseLost, match="released"), lease.fence(ground.engine, prefix=ground.url.prefix):
                pytest.fail("it began")

    def test_a_lock_that_is_lost_inside_the_block_does_not_commit(self, ground: Ground, tmp_path: Path) -> None:
        with locks.connect(f"sqlite:///{tmp_path}/locks.db") as store, pytest.raises(LeaseLost, match="taken away"):  # noqa: SIM117
            with store.lock("settlement") as lease, lease.fence(ground.engine, prefix=ground.url.prefix) as tx:
                write(tx)
                lease.end("taken away")
        assert ground.effects() == []

    def test_without_the_tables_the_command_is_named(self, ground: Ground, tmp_path: Path) -> None:
        engine = ground.engine
        with locks.connect(f"sqlite:///{tmp_path}/locks.db") as store, store.lock("settlement") as lease:  # noqa: SIM117
            with (
                pytest.raises(EffectsMissing, match="fencepost effects install"),
                lease.fence(engine, prefix="nowhere_"),
            ):
                pytest.fail("it began")

    def test_an_unknown_isolation_is_refused(self, ground: Ground, tmp_path: Path) -> None:
        with locks.connect(f"sqlite:///{tmp_path}/locks.db") as store, store.lock("settlement") as lease:
            with pytest.raises(ConfigurationError, match=r"isolation 'chaos' is unknown; .*read committed"):
                lease.fence(ground.engine, isolation="chaos")
            with lease.fence(ground.engine, prefix=ground.url.prefix, isolation="READ_COMMITTED") as tx:
                assert tx.in_transaction()
