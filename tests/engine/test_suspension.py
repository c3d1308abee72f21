"""Untrusted is not lost: what is fenced is kept up while the ledger is away, and goes on if it is still its node's.

Runners by themselves are in test_suspended_runners.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.engine.engines import close_engine
from fencepost.engine.runners.runner import Runner
from fencepost.ledger.history import attempts
from fencepost.ledger.journal import entries
from fencepost.ledger.ledger import Ledger
from fencepost.testing import until
from testbed.keeper import is_alive
from testbed.proxy import Proxy
from tests.engine.crew import Crew
from tests.engine.runner_stand import said
from tests.engine.suspended_shop import EFFECTS, app
from tests.engine.suspended_stand import LONG_S, TTL, job_of, make_runner, settle_in

on_servers = pytest.mark.parametrize("kind", ["postgresql", "mysql"], indirect=True)
# What is suspended is the runner's affair, and how it learns of it the driver's: all places on one server, and one
# place, from which a worker's own connection has to mend, on the other.
in_places = pytest.mark.parametrize(
    ("kind", "place"),
    [("postgresql", "thread"), ("postgresql", "asyncio"), ("postgresql", "process"), ("mysql", "process")],
    indirect=["kind"],
)


class Scene(Crew):
    """Nodes that execute the jobs of the suspended shop in some place, and what these jobs wrote."""

    def __init__(self, url: str, place: str, folder: Path) -> None:
        super().__init__(url, list(app.jobs.values()))
        self.place = place
        self.folder = folder
        self.workers = 1  # of each node
        self.fenced = "fenced_async" if place == "asyncio" else "fenced"
        self.ledger.write(self._make_table)

    def _make_table(self, cursor) -> None:
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {EFFECTS} (run_id BIGINT, attempt INTEGER)")
        cursor.execute(f"DELETE FROM {EFFECTS}")

    def runners(self, ledger: Ledger, url: str, slots: int) -> dict[str, Runner]:
        if self.place == "process":
            return dict.fromkeys(("sync", "async"), make_runner("process", None, url, self.workers))
        return {"sync": make_runner("thread", ledger), "async": make_runner("asyncio", ledger)}

    def begin(self, name: str) -> int:
        [run_id] = self.enqueue(name, params=json.dumps({"folder": str(self.folder)}))
        return run_id

    def says(self, name: str) -> str:
        return said(self.folder / name)

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def go(self) -> None:
        (self.folder / "go").touch()

    def effects(self) -> list[tuple[int, int]]:
        def read(cursor):
            cursor.execute(f"SELECT run_id, attempt FROM {EFFECTS}")
            return [tuple(row) for row in cursor.fetchall()]

        return self.ledger.read(read)

    def close(self) -> None:
        for node in self.nodes:
            node.stop(1.0)
        for ledger in self._ledgers:
            close_engine(ledger)
        super().close()

    def outcomes(self, run_id: int) -> list[str]:
        return [each.outcome for each in attempts(self.ledger, run_id)]


@pytest.fixture
def proxy(kind: str, request: pytest.FixtureRequest) -> Iterator[Proxy]:
    server = request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb")
    with Proxy(server.host, server.port) as made:
        yield made


@pytest.fixture
def scene(ledger_url: str, place: str, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(ledger_url, place, tmp_path)
    yield made
    made.go()
    (tmp_path / "end").touch()
    made.close()


def node_behind(scene: Scene, proxy: Proxy) -> None:
    scene.node(url=proxy.through(f"{scene.url}&call_timeout=1s"), ttl=TTL)


def take_away(proxy: Proxy) -> None:
    proxy.refuse()
    proxy.cut()


def node_is_lost(scene: Scene) -> None:
    until(lambda: "node lost" in scene.whats(), LONG_S, "the node lost its session")


@in_places
@pytest.mark.parametrize("asks", ["before trust ran out", "after trust ran out"])
def test_what_is_fenced_goes_on_when_the_ledger_is_back(scene: Scene, proxy: Proxy, asks: str) -> None:
    scene.workers = 2
    run_id, other_id = scene.begin(scene.fenced), scene.begin("unfenced")
    node_behind(scene, proxy)
    scene.says("began.1")
    scene.says("unfenced.1")
    settle_in(scene.folder / "began.1")
    take_away(proxy)
    if asks == "before trust ran out":
        scene.go()
        scene.says("begins.1")
    node_is_lost(scene)
    scene.go()
    scene.says("begins.1")
    assert not scene.has("wrote.1")
    proxy.flow()
    scene.until_state("succeeded", 2, LONG_S)
    assert scene.outcomes(run_id) == ["succeeded"]
    assert scene.effects() == [(run_id, 1)]
    *before, last = scene.outcomes(other_id)
    assert (set(before), last) == ({"lost"}, "succeeded")
    told = {event.what: event for event in scene.events if event.run_id == run_id}
    if asks == "before trust ran out" and "run resumed" not in told:
        assert told.keys() == {"run suspended"}, "its try to begin met the ledger first, and the row said yes"
        return
    assert told.keys() == {"run suspended", "run resumed"}
    [row] = [row for row in scene.runs() if row.id == run_id]
    assert row.node == scene.nodes[0].node_id == told["run resumed"].node
    [entry] = entries(scene.ledger, what="run resumed")
    assert (entry.run_id, entry.node, entry.token) == (run_id, row.node, row.token)


@in_places
def test_what_another_node_took_meanwhile_writes_nothing(scene: Scene, proxy: Proxy) -> None:
    run_id = scene.begin(scene.fenced)
    node_behind(scene, proxy)
    pid = int(scene.says("began.1"))
    settle_in(scene.folder / "began.1")
    scene.node(ttl=TTL)
    take_away(proxy)
    node_is_lost(scene)
    assert "run suspended" in scene.whats()
    scene.go()
    scene.says("begins.1")
    scene.until_state("succeeded", 1, LONG_S)
    assert not scene.has("raised.1"), "it waits, for it cannot know"
    proxy.flow()
    if scene.place == "process":  # its supervisor stops or ends it, unless its own call meets the ledger before
        until(lambda: not is_alive(pid) or scene.has("raised.1"), LONG_S, "its worker is ended, stopped or refused")
        assert not scene.has("raised.1") or scene.says("raised.1") in ("Stopped", "LeaseLost")
    else:
        assert scene.says("raised.1") == "LeaseLost"
    assert not scene.has("wrote.1")
    assert scene.effects() == [(run_id, 2)]
    assert scene.outcomes(run_id) == ["lost", "succeeded"]
    assert "run resumed" not in scene.whats()


@in_places
def test_check_waits_until_it_is_known(scene: Scene, proxy: Proxy) -> None:
    run_id = scene.begin(job_of(scene.place))
    node_behind(scene, proxy)
    scene.says("began.1")
    settle_in(scene.folder / "began.1")
    take_away(proxy)
    node_is_lost(scene)
    scene.go()
    scene.says("begins.1")
    assert not scene.has("wrote.1")
    proxy.flow()
    scene.until_state("succeeded", 1, LONG_S)
    assert scene.outcomes(run_id) == ["succeeded"]


@pytest.mark.parametrize(("kind", "place"), [("postgresql", "thread"), ("mysql", "process")], indirect=["kind"])
def test_the_timeout_of_a_suspended_run_holds(scene: Scene, proxy: Proxy) -> None:
    run_id = scene.begin("hasty")
    node_behind(scene, proxy)
    scene.says("began.1")
    settle_in(scene.folder / "began.1")
    take_away(proxy)
    scene.go()
    node_is_lost(scene)
    until(lambda: "run dead" in scene.whats(), LONG_S, "it was ended, and the ledger cannot be told")
    proxy.flow()
    scene.until_state("dead", 1, LONG_S)
    assert scene.outcomes(run_id) == ["timed_out"]
    assert scene.effects() == []


@on_servers
@pytest.mark.parametrize("place", ["thread"])
def test_session_that_the_store_says_is_gone_is_lost_at_once(scene: Scene) -> None:
    run_id = scene.begin("fenced")
    node = scene.node(ttl=TTL)
    scene.says("began.1")
    scene._connect(scene.ledger.url.lease_url()).revoke(f"fencepost/node/{node.node_id}")
    node_is_lost(scene)
    scene.go()
    assert scene.says("raised.1") == "LeaseLost"
    scene.until_state("succeeded", 1, LONG_S)
    assert scene.effects() == [(run_id, 2)]
    assert "run suspended" not in scene.whats()
