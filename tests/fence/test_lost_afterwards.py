"""What was committed is committed, whatever becomes of the connection afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Engine, event
from sqlalchemy.orm import sessionmaker

from testbed.proxy import Proxy
from tests.fence.grounds import Ground, write
from tests.fence.test_transactions import urls


@pytest.fixture(params=["postgresql", "mysql"])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(*urls(request.param, "other", request, tmp_path))
    yield ground
    ground.close()


@pytest.fixture
def cut_when_given_back(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine with one place in its pool, whose connections are reset when the pool has rolled them back."""
    at = ground.url.sqlalchemy()
    with Proxy(at.host or "", at.port or 0) as proxy:
        through = at.set(host=proxy.host, port=proxy.port)
        engine = sqlalchemy.create_engine(through, pool_size=1, max_overflow=0, pool_timeout=1, pool_pre_ping=True)
        given_back: list[Any] = []
        roll_back = engine.dialect.do_rollback

        def roll_back_and_cut(connection: Any) -> None:
            roll_back(connection)
            if given_back:
                given_back.clear()
                proxy.cut()

        event.listen(engine, "reset", lambda *arguments: given_back.append(arguments))
        monkeypatch.setattr(engine.dialect, "do_rollback", roll_back_and_cut)
        yield engine
        engine.dispose()


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
@pytest.mark.parametrize("way", ["engine", "sessionmaker"])
def test_a_connection_lost_after_the_commit_is_no_failure_and_leaves_its_place_in_the_pool(
    ground: Ground, cut_when_given_back: Engine, isolation: str, way: str
) -> None:
    run = ground.run(isolation=isolation)
    source = cut_when_given_back if way == "engine" else sessionmaker(cut_when_given_back)
    for number in (1, 2, 3):
        with run.fence(source) as tx:
            write(tx, number)
    assert ground.effects() == [1, 2, 3]
