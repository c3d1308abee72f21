"""``fencepost logs``: what runs of a real node wrote, while they run, and after the node was killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fencepost import App
from testbed.wait import until
from tests.access.scene import set_run
from tests.cli.command import FENCEPOST, LONG_S
from tests.cli.inside import call
from tests.cli.test_running import ROOT, Node, node

APP = "tests.cli.logging_shop:app"


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


def shown(ledger: str, run: int, *words: str) -> str:
    return call("logs", str(run), *words, ledger=ledger).stdout


def has(ledger: str, run: int, words: str) -> str:
    until(lambda: words in shown(ledger, run), LONG_S, what=f"the log of run {run} has {words!r}")
    return shown(ledger, run)


def test_logs_of_a_node_while_it_runs_and_after_it_was_killed(ledger: str, tmp_path: Path) -> None:
    with node(ledger, tmp_path, app=APP) as running:
        _follow(running, tmp_path)
        _look_at_one_run(running)
        _look_at_programs_and_attempts(running)
        _look_at_a_flood(running)
        run = running.trigger("tell", "-p", f"folder={tmp_path}/never")
        has(ledger, run, "hello from run")
        running.process.kill()
        running.process.wait()
        assert "hello from run" in shown(ledger, run)
        assert "the end" not in shown(ledger, run)


def _follow(running: Node, folder: Path) -> None:
    """Lines come while the run goes on, and the command ends when everything is there."""
    run = running.trigger("tell", "-p", f"folder={folder}")
    words = [FENCEPOST, "logs", str(run), "--follow", "--ledger", running.ledger]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as following:
        assert following.stdout is not None
        first = {following.stdout.readline(), following.stdout.readline()}
        assert first == {f"hello from run {run}\n", "password=*** is not for everyone\n"}
        (folder / "go").touch()
        assert following.stdout.readline() == "the end\n"
        assert following.stdout.read() == ""
        assert following.wait(LONG_S) == 0


def _look_at_one_run(running: Node) -> None:
    ledger, told = running.ledger, running.trigger("tell")
    lines = has(ledger, told, "the end").splitlines()
    assert sorted(lines) == [f"hello from run {told}", "password=*** is not for everyone", "the end"]
    assert f"\x1b[32mhello\x1b[0m from run {told}\n" in shown(ledger, told, "--raw")
    running.says("password=hunter2 is not for everyone")  # the node's own output is as it was
    assert shown(ledger, told, "--tail", "1").splitlines() == lines[-1:]
    records = call("logs", str(told), "--json", ledger=ledger).json
    assert sum(each["lines"] for each in records) == 3
    assert {(each["run_id"], each["attempt"], each["missing"]) for each in records} == {(told, 1, 0)}


def _look_at_programs_and_attempts(running: Node) -> None:
    ledger = running.ledger
    program = has(ledger, running.trigger("program"), "out of a program")
    assert sorted(program.splitlines()) == ["its error", "out of a program"]
    twice = running.trigger("stumble")
    assert has(ledger, twice, "--- attempt 2\nthis").startswith("this is attempt 1\n")
    assert shown(ledger, twice, "--attempt", "2").endswith("this is attempt 2\n")


def _look_at_a_flood(running: Node) -> None:
    ledger, flood = running.ledger, running.trigger("flood")
    text = has(ledger, flood, "line 99999\n")
    gaps = [line for line in text.splitlines() if line.startswith("---")]
    missing = [int(gap.split()[1].replace(",", "")) for gap in gaps]
    assert gaps == [f"--- {each:,} lines are not kept" for each in missing]
    assert 1 <= len(gaps) <= 10  # one, and one more for each second of the end in which lines were dropped
    assert len(text.splitlines()) - len(gaps) + sum(missing) == 100_000
    assert shown(ledger, flood, "--tail", "2") == "line 99998\nline 99999\n"
    assert f"log: fencepost logs {flood}" in call("show", str(flood), ledger=ledger).stdout


def test_a_run_without_a_log_and_one_that_does_not_exist(ledger: str) -> None:
    app = App(ledger)

    @app.job
    def nothing() -> None: ...

    run = str(nothing.enqueue().run_id)
    app.close()
    without = call("logs", run, ledger=ledger)
    assert (without.returncode, without.stdout) == (0, "")
    assert f"run {run} has no log" in without.stderr
    assert "or it ran on threads" in without.stderr
    assert call("logs", "999", ledger=ledger).returncode == 1
    assert "--tail counts lines" in call("logs", run, "--tail", "1", "--json", ledger=ledger).stderr


def test_follow_ends_though_the_clock_of_the_ledger_was_set_back(ledger: str) -> None:
    app = App(ledger)

    @app.job
    def nothing() -> None: ...

    run_id = nothing.enqueue().run_id
    set_run(app, run_id, state="succeeded", started_at=1, ended_at=app.ledger.now_us() + 3_600_000_000)
    app.close()
    assert call("logs", str(run_id), "--follow", ledger=ledger).returncode == 0
