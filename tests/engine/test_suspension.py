"""Untrusted is not lost: what is fenced is kept up while the ledger is away, and goes on if it is still its node's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost.core.runs import Claim, StopReason
from fencepost.core.timings import Timings
from fencepost.engine.engines import close_engine
from fencepost.engine.invoke import invoke, invoke_async
from fencepost.engine.runners.asyncio import AsyncioRunner
from fencepost.engine.runners.outcome import How
from fencepost.engine.runners.process import ProcessRunner
from fencepost.engine.runners.runner import Runner
from fencepost.engine.runners.thread import ThreadRunner
from fencepost.ledger.history import attempts
from fencepost.ledger.journal import entries
from fencepost.ledger.ledger import Ledger
from fencepost.testing import until
from testbed.keeper import is_alive
from testbed.proxy import Proxy
from tests.engine.crew import RUNTIME, Crew
from tests.engine.runner_stand import Stand, gone, said
from tests.engine.suspended_shop import EFFECTS, LEDGER, app

on_servers = pytest.mark.parametrize("kind", ["postgresql", "mysql"], indirect=True)
# What is suspended is the runner's affair, and how it learns of it the driver's: all places on one server, and one
# place, from which a worker's own connection has to mend, on the other.
in_places = pytest.mark.parametrize(
    ("kind", "place"),
    [("postgresql", "thread"), ("postgresql", "asyncio"), ("postgresql", "process"), ("mysql", "process")],
    indirect=["kind"],
)
everywhere = pytest.mark.parametrize("place", ["thread", "asyncio", "process"])
TTL = "4s"
FENCED = frozenset(name for name, job in app.jobs.items() if not job.policy.stops_in_doubt)
TIMEOUTS = {name: job.policy.timeout_s for name, job in app.jobs.items()}
LONG_S = 40.0


def make_runner(place: str, ledger: Ledger | None, url: str = "", slots: int = 2) -> Runner:
    context = replace(app.worker_context(), ledger=lambda: ledger)
    if place == "process":
        return ProcessRunner(
            "tests.engine.suspended_shop:app",
            slots=slots,
            timings=Timings.of(TTL),
            runtime=RUNTIME,
            timeouts=TIMEOUTS,
            fenced=FENCED,
            env={**os.environ, LEDGER: url},
        )
    if place == "thread":
        threads = ThreadRunner(
            lambda claim: invoke(app.jobs[claim.job], claim, context),
            timeouts=TIMEOUTS,
            runtime=RUNTIME,
            fenced=FENCED,
        )
        context = replace(context, standing=threads)
        return threads

    async def call(claim: Claim):
        return await invoke_async(app.jobs[claim.job], claim, context)

    tasks = AsyncioRunner(call, timeouts=TIMEOUTS, runtime=RUNTIME, fenced=FENCED)
    context = replace(context, standing=tasks)
    return tasks


class Scene(Crew):
    """Nodes that execute the jobs of the suspended shop in some place, and what these jobs wrote."""

    def __init__(self, url: str, place: str, folder: Path) -> None:
        super().__init__(url, list(app.jobs.values()))
        self.place = place
        self.folder = folder
        self.fenced = "fenced_async" if place == "asyncio" else "fenced"
        self.ledger.write(self._make_table)

    def _make_table(self, cursor) -> None:
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {EFFECTS} (run_id BIGINT, attempt INTEGER)")
        cursor.execute(f"DELETE FROM {EFFECTS}")

    def runners(self, ledger: Ledger, url: str, slots: int) -> dict[str, Runner]:
        runners = {"sync": make_runner("thread", ledger), "async": make_runner("asyncio", ledger)}
        return dict.fromkeys(runners, make_runner("process", None, url)) if self.place == "process" else runners

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
            node.stop(5.0)
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
    assert scene.outcomes(other_id) == ["lost", "succeeded"]
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
    if scene.place == "process":
        until(lambda: not is_alive(pid), LONG_S, "its worker is ended")
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


# -- runners by themselves ---------------------------------------------------------------------------------------------


@pytest.fixture
def stand(place: str, tmp_path: Path) -> Iterator[Stand]:
    made = Stand(make_runner(place, None))
    made.start(slots=2)
    made.begun = lambda job: _begun(made, job, tmp_path)
    yield made
    (tmp_path / "go").touch()
    (tmp_path / "end").touch()
    made.runner.close(0)


def _begun(stand: Stand, job: str, folder: Path) -> Claim:
    claim = stand.submit(job, folder=str(folder))
    name = "unfenced.1" if job.startswith("unfenced") else "began.1"
    said(folder / name)
    settle_in(folder / name)
    return claim


def job_of(place: str) -> str:
    return "checks_async" if place == "asyncio" else "checks"


@everywhere
def test_runner_keeps_what_is_fenced_and_stops_the_rest(stand: Stand, place: str, tmp_path: Path) -> None:
    kept = stand.begun(job_of(place))
    other = stand.begun("unfenced_async" if place == "asyncio" else "unfenced")
    assert stand.runner.suspend() == [kept]
    assert stand.outcome(other).how == How.LOST
    assert stand.runner.room() == 0
    (tmp_path / "go").touch()
    said(tmp_path / "begins.1")
    stand.trust()
    until(lambda: stand.runner.room() > 0, LONG_S, "there is trust again")
    RUNTIME.sleep(0.2)
    assert not (tmp_path / "wrote.1").exists(), "it is still suspended, for nobody has resumed it"
    assert stand.runner.suspend() == [kept]
    stand.trust()
    stand.runner.resume([(kept.run_id, kept.token)])
    assert stand.outcome(kept).how == How.SUCCEEDED


@everywhere
@pytest.mark.parametrize("why", [StopReason.LOST, StopReason.CANCELLED])
def test_suspended_run_can_be_stopped(stand: Stand, place: str, why: StopReason) -> None:
    kept = stand.begun(job_of(place))
    stand.runner.suspend()
    stand.runner.stop(kept.run_id, kept.token, why)
    assert stand.outcome(kept).how == str(why)
    stand.trust()
    assert stand.runner.suspend() == []


@everywhere
def test_loss_ends_what_is_suspended(stand: Stand, place: str) -> None:
    kept = stand.begun(job_of(place))
    stand.runner.suspend()
    stand.runner.lose()
    assert stand.outcome(kept).how == How.LOST


@everywhere
def test_trust_that_runs_out_unspoken_does_not_stop_what_is_fenced(place: str, tmp_path: Path) -> None:
    stand = Stand(make_runner(place, None))
    ends_at = RUNTIME.monotonic() + 6.0
    stand.start(slots=2, trust_s=6.0)
    kept = _begun(stand, job_of(place), tmp_path)
    until(lambda: RUNTIME.monotonic() > ends_at + 0.5, LONG_S, "trust ran out")
    (tmp_path / "go").touch()
    said(tmp_path / "begins.1")
    RUNTIME.sleep(1.0)  # a guardian would have acted by now, and a watcher
    stand.collect()
    assert stand.outcomes == {}
    assert stand.runner.suspend() == [kept]
    stand.trust()
    assert not (tmp_path / "wrote.1").exists()
    stand.runner.resume([(kept.run_id, kept.token)])
    assert stand.outcome(kept).how == How.SUCCEEDED
    stand.runner.close(0)


def test_trust_binds_a_worker_again_after_a_fenced_run(tmp_path: Path) -> None:
    stand = Stand(make_runner("process", None, slots=1))
    stand.start(slots=1, trust_s=8.0)
    ends_at = stand.trust(8.0)
    kept = _begun(stand, "checks", tmp_path)
    (tmp_path / "go").touch()
    assert stand.outcome(kept).how == How.SUCCEEDED
    stand.submit("unfenced", folder=str(tmp_path))
    pid = int(said(tmp_path / "unfenced.1"))
    assert pid == int(said(tmp_path / "began.1")), "it is the same worker"
    assert gone(pid) < ends_at
    stand.runner.close(0)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", "tests.engine.suspended_supervisor", str(tmp_path)])
    yield process
    process.kill()
    process.wait()


def test_worker_of_a_stopped_supervisor_waits_for_it(supervisor: subprocess.Popen[bytes], tmp_path: Path) -> None:
    pid = int(said(tmp_path / "began.1"))
    settle_in(tmp_path / "began.1")
    supervisor.send_signal(signal.SIGSTOP)
    ends_at = float(said(tmp_path / "until"))
    until(lambda: RUNTIME.monotonic() > ends_at + 1.0, LONG_S, "trust ran out")
    (tmp_path / "go").touch()
    said(tmp_path / "begins.1")
    assert is_alive(pid)
    assert not (tmp_path / "wrote.1").exists(), "nobody knows whether it may go on"
    supervisor.send_signal(signal.SIGCONT)
    assert said(tmp_path / "outcome") == How.SUCCEEDED


def test_worker_of_a_killed_supervisor_is_gone_at_once(supervisor: subprocess.Popen[bytes], tmp_path: Path) -> None:
    pid = int(said(tmp_path / "began.1"))
    settle_in(tmp_path / "began.1")
    killed_at = RUNTIME.monotonic()
    supervisor.kill()
    assert gone(pid) - killed_at < 3.0


def settle_in(began: Path) -> None:
    """Wait until a run has been executing for long enough to have its worker to itself."""
    until(lambda: RUNTIME.wall_us() / 1e6 - began.stat().st_mtime > 0.4, LONG_S, "it has been executing for a moment")
