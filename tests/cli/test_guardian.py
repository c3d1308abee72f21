"""A program under a lock never outlives the right to run: not when its supervisor is killed, stopped or cut off."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from fencepost.testing import Stopwatch
from fencepost.threaded import guarded
from testbed.keeper import is_alive
from testbed.postgres import Postgres
from testbed.proxy import Proxy
from testbed.wait import until
from tests.cli.command import LONG_S, are_gone, children_of, executing, fencepost, parent_of, state_of
from tests.cli.inside import call

TTL_S = 3.0
TTL = ("--ttl", "3s")
GRANDCHILDREN = "sleep 60 & say grandchild_pid $!; sleep 60"
DEAF = "trap '' TERM; say deaf yes; while :; do sleep 1; done"


def test_of_two_callers_the_second_is_told_who_holds_the_lock(store: str, tmp_path: Path) -> None:
    with executing(store, tmp_path / "first") as first:
        token = first.says("token")
        second = fencepost("exec", "--store", store, "--lock", "nightly", *TTL, "--", "touch", f"{tmp_path}/ran")
        assert second.returncode == 75
        assert f":{first.process.pid}:" in second.stderr
        assert f"token {token}, since 20" in second.stderr
        assert not (tmp_path / "ran").exists()


def test_program_of_a_killed_supervisor_is_gone_within_2_s_and_the_next_gets_a_higher_token(
    store: str, tmp_path: Path
) -> None:
    with executing(store, tmp_path / "first", *TTL) as first:
        pid, token = first.pid, int(first.says("token"))
        with Stopwatch() as since, executing(store, tmp_path / "third", *TTL, "--wait", "1m") as third:
            first.kill(signal.SIGKILL)
            are_gone(pid)
            assert since.awake_s < 2
            assert int(third.says("token")) > token
            assert since.awake_s < TTL_S + 2


def test_program_of_a_stopped_supervisor_is_gone_before_the_ttl_and_the_woken_one_says_so(
    store: str, tmp_path: Path
) -> None:
    with executing(store, tmp_path / "p", *TTL) as running:
        pid = running.pid
        with Stopwatch() as took:
            running.kill(signal.SIGSTOP)
            are_gone(pid)
        assert took.awake_s < TTL_S
        running.kill(signal.SIGCONT)
        assert running.ends() == 74
        assert "lost lock 'nightly'" in running.stderr()


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_the_whole_group_ends(sqlite_url: str, tmp_path: Path, fault: signal.Signals) -> None:
    with executing(sqlite_url, tmp_path / "p", *TTL, body=GRANDCHILDREN) as running:
        pids = running.pid, int(running.says("grandchild_pid"))
        with Stopwatch() as took:
            running.kill(fault)
            are_gone(*pids)
        assert took.awake_s < TTL_S


@pytest.mark.parametrize(("fault", "within_s"), [(signal.SIGKILL, 2.0), (signal.SIGSTOP, TTL_S)])
def test_a_program_deaf_to_sigterm_is_killed_in_time(
    sqlite_url: str, tmp_path: Path, fault: signal.Signals, within_s: float
) -> None:
    with executing(sqlite_url, tmp_path / "p", *TTL, body=DEAF) as running:
        running.says("deaf")
        pid = running.pid
        with Stopwatch() as took:
            running.kill(fault)
            are_gone(pid)
        assert took.awake_s < within_s


def test_a_stopped_program_ends_too(sqlite_url: str, tmp_path: Path) -> None:
    with executing(sqlite_url, tmp_path / "p", *TTL, body="trap 'say heard TERM; exit' TERM; kill -STOP $$") as running:
        pid = running.pid
        until(lambda: state_of(pid) == "T", LONG_S, what="the program has stopped itself, with its trap set")
        running.kill(signal.SIGKILL)
        are_gone(pid)
        assert running.says("heard") == "TERM"


@pytest.mark.parametrize("body", ["exec sleep 60", GRANDCHILDREN])
def test_nobody_runs_without_a_guardian(sqlite_url: str, tmp_path: Path, body: str) -> None:
    with executing(sqlite_url, tmp_path / "p", *TTL, body=body) as running:
        pids = [running.pid]
        if body is GRANDCHILDREN:
            pids.append(int(running.says("grandchild_pid")))
        guardian = running.guardian
        with Stopwatch() as took:
            os.kill(guardian, signal.SIGKILL)
            are_gone(*pids)
        assert took.awake_s < 2
        assert running.ends() == 74
        assert "guardian" in running.stderr()


def test_a_program_whose_guardian_and_supervisor_are_killed_together_is_gone(sqlite_url: str, tmp_path: Path) -> None:
    with executing(sqlite_url, tmp_path / "p", *TTL) as running:
        pid, guardian = running.pid, running.guardian
        running.kill(signal.SIGSTOP)  # so that it cannot step in
        os.kill(guardian, signal.SIGKILL)
        are_gone(pid)


def test_the_supervisor_steps_in_for_a_stopped_guardian(postgres: Postgres, tmp_path: Path) -> None:
    with Proxy(postgres.host, postgres.port) as proxy:
        store = proxy.through(postgres.url) + "?prefix=stopped_"
        with executing(store, tmp_path / "p", *TTL) as running:
            pid, guardian = running.pid, running.guardian
            os.kill(guardian, signal.SIGSTOP)
            proxy.swallow()
            with Stopwatch() as took:
                are_gone(pid)
            assert took.awake_s < TTL_S
            assert running.ends() == 74
            are_gone(guardian)


def test_a_black_hole_ends_the_program_before_the_ttl(postgres: Postgres, tmp_path: Path) -> None:
    with Proxy(postgres.host, postgres.port) as proxy:
        store = proxy.through(postgres.url) + "?prefix=hole_"
        with executing(store, tmp_path / "p", *TTL) as running:
            pid = running.pid
            proxy.swallow()
            with Stopwatch() as since:
                are_gone(pid)
                assert since.awake_s < TTL_S
                assert running.ends() == 74
            assert since.awake_s < TTL_S + 3 + 1  # it tries to close its session, which ends with the call's timeout
            assert "lost lock 'nightly'" in running.stderr()


def test_a_revoked_lock_ends_the_program_within_a_heartbeat(store: str, tmp_path: Path) -> None:
    with executing(store, tmp_path / "p", "--ttl", "6s") as running:
        pid = running.pid
        taken = call("locks", "release", "nightly", "--store", store, "--yes")
        assert taken.returncode == 0, taken.stderr
        with Stopwatch() as took:
            are_gone(pid)
        assert took.awake_s < 2 + 1  # renewed every 2 s, and a moment to be ended
        assert running.ends() == 74
        assert "revoked" in running.stderr()


def test_a_revoked_deaf_program_is_killed_after_its_grace(sqlite_url: str, tmp_path: Path) -> None:
    with executing(sqlite_url, tmp_path / "p", *TTL, body=DEAF) as running:
        running.says("deaf")
        pid = running.pid
        call("locks", "release", "nightly", "--store", sqlite_url, "--yes")
        with Stopwatch() as took:
            are_gone(pid)
        assert took.awake_s < 1 + 0.5 + 1  # a heartbeat, the grace, a moment
        assert running.ends() == 74


def test_a_renewed_program_runs_on_beyond_its_ttl(store: str, tmp_path: Path) -> None:
    with executing(store, tmp_path / "p", "--ttl", "6s", body="sleep 7; say done yes") as running:
        assert running.ends() == 0, running.stderr()
        assert running.says("done") == "yes"


def test_what_terminals_and_service_managers_send_to_all_does_not_end_the_guardian(
    sqlite_url: str, tmp_path: Path
) -> None:
    with executing(sqlite_url, tmp_path / "p", *TTL) as running:
        pid, guardian = running.pid, running.guardian
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
            os.kill(guardian, number)
        running.kill(signal.SIGTERM)
        assert running.ends() == 128 + signal.SIGTERM
        are_gone(pid, guardian)


def test_guardian_is_small_and_the_programs_parent(sqlite_url: str, tmp_path: Path) -> None:
    with executing(sqlite_url, tmp_path / "p", *TTL) as running:
        guardian = running.guardian
        assert parent_of(guardian) == running.process.pid
        status = Path(f"/proc/{guardian}/status").read_text()
        words = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert words["Threads"] == "1"
        assert int(words["VmRSS"].split()[0]) < 16_000


def test_guardian_lets_go_of_the_streams_so_that_output_ends_with_the_program(sqlite_url: str, tmp_path: Path) -> None:
    with executing(sqlite_url, tmp_path / "p", *TTL) as running:
        streams = [Path(f"/proc/{running.guardian}/fd/{number}") for number in (0, 1, 2)]
        until(lambda: {os.readlink(stream) for stream in streams} == {os.devnull}, LONG_S)


def test_background_children_outlive_a_program_that_ended_by_itself(sqlite_url: str, tmp_path: Path) -> None:
    with executing(sqlite_url, tmp_path / "p", *TTL, body="sleep 60 & say child $!; exit 0") as running:
        assert running.ends() == 0
        child = int(running.says("child"))
        assert is_alive(child)
        os.kill(child, signal.SIGKILL)


def test_a_child_that_left_the_group_does_not_hide_the_supervisors_death(sqlite_url: str, tmp_path: Path) -> None:
    body = "setsid sleep 60 & say daemon $!; sleep 60"
    with executing(sqlite_url, tmp_path / "p", *TTL, body=body) as running:
        pid, daemon = running.pid, int(running.says("daemon"))
        with Stopwatch() as took:
            running.kill(signal.SIGKILL)
            are_gone(pid)
        assert took.awake_s < 2
        os.kill(daemon, signal.SIGKILL)


@pytest.mark.parametrize("_", range(3))
def test_a_supervisor_killed_while_it_starts_leaves_nothing_behind(sqlite_url: str, tmp_path: Path, _: int) -> None:
    with executing(sqlite_url, tmp_path / "p", *TTL) as running:
        guardian = until(lambda: children_of(running.process.pid), LONG_S, what="there is a guardian")[0]
        running.kill(signal.SIGKILL)
        are_gone(guardian)
        assert not any(is_alive(int(file.read_text())) for file in running.folder.glob("pid"))


def test_a_guardian_that_does_not_end_in_time_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "_GONE_WITHIN_S", 0.01)
    monkeypatch.setattr(guarded, "_lingering", [])
    slow = subprocess.Popen(["sleep", "60"])
    guarded._leave(slow)
    assert guarded._lingering == [slow], "it is kept, or nobody would ever take note of its end"
    slow.kill()
    until(lambda: slow.poll() is not None, what="it has ended")
    ended = subprocess.Popen(["true"])
    ended.wait()
    guarded._leave(ended)
    assert guarded._lingering == []
