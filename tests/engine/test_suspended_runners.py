"""Runners keep what is fenced while there is no trust, until they are told to go on or to stop."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.core.runs import Claim, StopReason
from fencepost.engine.runners.outcome import How
from fencepost.testing import until
from testbed.keeper import is_alive
from tests.engine.crew import RUNTIME
from tests.engine.runner_stand import Stand, gone, said
from tests.engine.suspended_stand import LONG_S, everywhere, job_of, make_runner, settle_in


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
    stand.runner.start(stand.news.set)
    until(lambda: stand.trust(6.0) and stand.runner.room() >= 2, LONG_S, "two workers are ready")
    ends_at = stand.trust(6.0)
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
