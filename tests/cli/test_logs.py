"""``fencepost logs``: what runs of a real node wrote, while they run, and after everything has died."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from testbed.wait import until
from tests.cli.command import FENCEPOST, LONG_S
from tests.cli.inside import call
from tests.cli.test_running import ROOT, node

APP = "tests.cli.logging_shop:app"


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


def shown(ledger: str, run: int, *words: str) -> str:
    return call("logs", str(run), *words, ledger=ledger).stdout


def has(ledger: str, run: int, words: str) -> str:
    until(lambda: words in shown(ledger, run), LONG_S, what=f"the log of run {run} has {words!r}")
    return shown(ledger, run)


def test_logs_of_runs_of_every_kind(ledger: str, tmp_path: Path) -> None:
    with node(ledger, tmp_path, app=APP) as running:
        told = running.trigger("tell")
        assert sorted(has(ledger, told, "the end").splitlines()) == [
            f"hello from run {told}",
            "password=*** is not for everyone",
            "the end",
        ]
        assert f"\x1b[32mhello\x1b[0m from run {told}\n" in shown(ledger, told, "--raw")
        running.says("password=hunter2 is not for everyone")  # the node's own output is as it was
        assert shown(ledger, told, "--tail", "1") == "the end\n"
        [record] = call("logs", str(told), "--json", ledger=ledger).json
        assert (record["run_id"], record["attempt"], record["lines"], record["missing"]) == (told, 1, 3, 0)
        program = has(ledger, running.trigger("program"), "out of a program")
        assert sorted(program.splitlines()) == ["its error", "out of a program"]
        twice = running.trigger("stumble")
        assert has(ledger, twice, "attempt 2\nthis").startswith("this is attempt 1\n")
        assert shown(ledger, twice, "--attempt", "2") == "this is attempt 2\n"
        flood = running.trigger("flood")
        text = has(ledger, flood, "line 99999\n")
        [gap] = [line for line in text.splitlines() if line.startswith("---")]
        missing = int(gap.split()[1].replace(",", ""))
        assert gap == f"--- {missing:,} lines are not kept"
        assert len(text.splitlines()) - 1 + missing == 100_000
        assert shown(ledger, flood, "--tail", "2") == "line 99998\nline 99999\n"
        assert f"log: fencepost logs {flood}" in call("show", str(flood), ledger=ledger).stdout


def test_what_a_run_has_written_is_there_though_its_node_is_killed(ledger: str, tmp_path: Path) -> None:
    with node(ledger, tmp_path, app=APP) as running:
        run = running.trigger("tell", "-p", f"folder={tmp_path}")
        has(ledger, run, "hello from run")
        running.process.kill()
        running.process.wait()
        assert "hello from run" in shown(ledger, run)
        assert "the end" not in shown(ledger, run)


def test_who_follows_sees_lines_as_they_come_and_is_done_when_the_run_is(ledger: str, tmp_path: Path) -> None:
    with node(ledger, tmp_path, app=APP) as running:
        run = running.trigger("tell", "-p", f"folder={tmp_path}")
        words = [FENCEPOST, "logs", str(run), "--follow", "--ledger", ledger]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as following:
            assert following.stdout is not None
            first = {following.stdout.readline(), following.stdout.readline()}
            assert f"hello from run {run}\n" in first
            (tmp_path / "go").touch()
            assert following.stdout.readline() == "the end\n"
            assert following.stdout.read() == ""
            assert following.wait(LONG_S) == 0


def test_a_run_without_a_log_and_one_that_does_not_exist(ledger: str, tmp_path: Path) -> None:
    settings = {"FENCEPOST_LOGS": "off"}
    with pytest.MonkeyPatch.context() as environment:
        for name, value in settings.items():
            environment.setenv(name, value)
        with node(ledger, tmp_path, app=APP) as running:
            waited = call("trigger", "tell", "--wait", "--json", ledger=ledger).json
            running.says("password=hunter2")
    nothing = call("logs", str(waited["id"]), ledger=ledger)
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "has no log" in nothing.stderr
    assert call("logs", "999", ledger=ledger).returncode == 1
    assert call("logs", str(waited["id"]), "--follow", ledger=ledger).returncode == 0
