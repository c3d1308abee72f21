"""The hot path where things go wrong in between: a pooler, replies that are lost, a server that goes away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fencepost.core.runs import Requested
from fencepost.errors import LedgerUnavailable
from fencepost.ledger import migrations
from fencepost.ledger.claiming import mine
from fencepost.ledger.dialects.postgres_listening import LedgerListener
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.waking import listener
from testbed.pgbouncer import PgBouncer
from testbed.postgres import Postgres
from tests.ledger.scene import Scene, ending, failed, handed_back
from tests.servers import RUNTIME


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


@pytest.fixture(scope="module")
def pooled(postgres: Postgres) -> Iterator[Scene]:
    """One server connection for each transaction, whichever is at hand."""
    with PgBouncer(postgres, settings={"default_pool_size": "3"}) as bouncer:
        ledger = open_ledger(f"{bouncer.url}?prefix=p{RUNTIME.new_id()[:8]}_", RUNTIME)
        migrations.migrate(ledger)
        scene = Scene(ledger)
        yield scene
        scene.close()
        ledger.close()


class TestBehindAPooler:
    def test_runs_are_claimed_and_ended_many_times_over(self, pooled: Scene) -> None:
        for _ in range(8):  # often enough for a driver to prepare its statements
            keys = (None, "a", None, "b", "a")
            ids = pooled.add(*(Requested("job", "manual", exclusive_key=key) for key in keys))
            claims = pooled.claim().claims
            assert len(claims) == 4
            assert pooled.finish(*map(ending, claims)).refused == []
            pooled.finish(failed(pooled.claim_one()))
            assert pooled.states(ids) == ["succeeded"] * 4 + ["dead"]

    def test_listener_does_without_a_connection(self, pooled: Scene) -> None:
        here = listener(pooled.ledger)
        assert isinstance(here, LedgerListener)
        assert here.wait(0.1) is False
        assert here._channel is None
        here.wake()
        assert here.wait(30.0) is True
        here.close()


@contextmanager
def lost_reply(scene: Scene, word: str) -> Iterator[None]:
    """Let the next statement that begins with `word` be executed, and its answer be lost with the connection."""
    cursor = scene.connection._cursor
    scene.connection._cursor = _Losing(cursor, word, scene)
    yield
    scene.connection.rest()


class _Losing:
    def __init__(self, cursor: Any, word: str, scene: Scene) -> None:
        self._cursor = cursor
        self._word = word
        self._scene = scene

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, sql: str, *arguments: Any, **options: Any) -> Any:
        answer = self._cursor.execute(sql, *arguments, **options)
        if sql.strip().startswith(self._word):
            raise OSError("the connection was cut")
        return answer


class TestLostReplies:
    def _word(self, scene: Scene, *, keyed: bool = False) -> str:
        """What commits: on PostgreSQL a batch without keys is one statement."""
        return "WITH" if scene.ledger.dialect.name == "postgresql" and not keyed else "COMMIT"

    def test_claim_without_an_answer_is_found_by_name_and_handed_back(self, scene: Scene) -> None:
        ids = scene.add(*[Requested("job", "manual")] * 3)
        scene.claim(jobs=("nobody",))
        with lost_reply(scene, self._word(scene)), pytest.raises(LedgerUnavailable):
            scene.claim()
        unknown = mine(scene.connection, node="node")
        assert [each.run_id for each in unknown] == ids
        assert scene.finish(*map(handed_back, unknown)).refused == []
        again = scene.claim().claims
        assert [each.attempt for each in again] == [1, 1, 1]
        assert all(new.token > old.token for new, old in zip(again, unknown, strict=True))

    @pytest.mark.parametrize("key", [None, "k"])
    def test_finish_without_an_answer_is_repeated_and_known(self, scene: Scene, key: str | None) -> None:
        run_id = scene.add_one(exclusive_key=key)
        claimed = scene.claim_one()
        word = self._word(scene, keyed=key is not None)
        with lost_reply(scene, word), pytest.raises(LedgerUnavailable):
            scene.finish(ending(claimed))
        assert scene.finish(ending(claimed)).refused == []
        assert (scene.state(run_id), len(scene.attempts(run_id)), scene.journal()) == ("succeeded", 1, [])

    def test_finish_that_never_arrived_is_repeated_and_done(self, scene: Scene) -> None:
        run_id = scene.add_one(exclusive_key="k")
        claimed = scene.claim_one()
        with lost_reply(scene, "BEGIN"), pytest.raises(LedgerUnavailable):
            scene.finish(ending(claimed))
        assert scene.state(run_id) == "running"
        assert scene.finish(ending(claimed)).refused == []
        assert scene.state(run_id) == "succeeded"
