"""``fencepost exec`` is a good wrapper: codes, signals, streams and the terminal pass through, ticks are done once."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.postgres import Postgres
from testbed.proxy import Proxy
from testbed.wait import until
from tests.cli.command import FENCEPOST, LONG_S, executing, fencepost, read_lock, script, shell
from tests.cli.inside import call

DUE = "2026-01-01T00:00Z"


def run(store: str, *words: str, lock: str = "nightly", **options) -> subprocess.CompletedProcess[str]:
    return fencepost("exec", "--store", store, "--lock", lock, *words, **options)


@pytest.mark.parametrize("code", [0, 1, 255])
def test_exit_code_passes_through(sqlite_url: str, code: int) -> None:
    assert run(sqlite_url, "--", "sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_death_by_signal_is_128_and_its_number(sqlite_url: str, number: signal.Signals) -> None:
    assert run(sqlite_url, "--", "sh", "-c", f"kill -{int(number)} $$").returncode == 128 + number


HEEDING = """
import os, signal, sys
from pathlib import Path
folder, number = Path(sys.argv[1]), signal.Signals["SIG" + sys.argv[2]]
signal.pthread_sigmask(signal.SIG_BLOCK, [number])  # it is kept until we wait for it, so none is missed
child = os.fork()
me = "parent" if child else "child"
(folder / (me + "_ready")).touch()
signal.sigwait([number])
if child:
    os.waitpid(child, 0)
(folder / (me + "_heard")).touch()
os._exit(5)
"""


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"])
def test_signals_are_forwarded_to_the_group(sqlite_url: str, tmp_path: Path, name: str) -> None:
    program = f"exec {sys.executable} -c '{HEEDING.replace(chr(39), chr(34))}' {tmp_path} {name}"
    with executing(sqlite_url, tmp_path / "p", body=program) as running:
        until(lambda: (tmp_path / "parent_ready").exists() and (tmp_path / "child_ready").exists(), LONG_S)
        running.kill(signal.Signals[f"SIG{name}"])
        assert running.ends() == 5, running.stderr()
    assert (tmp_path / "parent_heard").exists()
    assert (tmp_path / "child_heard").exists()


def test_a_signal_while_waiting_for_the_lock_ends_the_command(sqlite_url: str, tmp_path: Path) -> None:
    with executing(sqlite_url, tmp_path / "first") as first:
        first.says("pid")
        with executing(sqlite_url, tmp_path / "second", "-v", "--wait", "1m") as second:
            until(
                lambda: Path(f"/proc/{second.process.pid}/status").read_text().count("SigCgt:\t0000000000000000") == 0
            )
            until(lambda: _catches(second.process.pid, signal.SIGTERM), LONG_S)
            second.kill(signal.SIGTERM)
            assert second.ends() == 128 + signal.SIGTERM
            assert "Traceback" not in second.stderr()


def test_a_signal_ignored_by_the_caller_stays_ignored(sqlite_url: str) -> None:
    command = f"trap '' HUP; exec {FENCEPOST} exec --store {sqlite_url} --lock x -- sh -c 'kill -HUP $$; echo lives'"
    done = shell(command)
    assert (done.returncode, done.stdout) == (0, "lives\n")


def test_the_program_does_not_inherit_what_python_ignores(sqlite_url: str) -> None:
    done = run(sqlite_url, "--", "sh", "-c", "kill -PIPE $$; echo lives")
    assert (done.returncode, done.stdout) == (128 + signal.SIGPIPE, "")


def test_environment_names_lock_token_grant_and_tick(sqlite_url: str) -> None:
    env = {"FENCEPOST_TICK": "a stale one", "OTHER": "kept"}
    done = run(sqlite_url, "--tick", DUE, "--", "env", env=env)
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert found["FENCEPOST_LOCK"] == "nightly"
    assert int(found["FENCEPOST_TOKEN"]) == read_lock(sqlite_url, "nightly")["token"]
    assert len(found["FENCEPOST_GRANT"]) == 32
    assert found["FENCEPOST_TICK"] == "2026-01-01T00:00:00Z"
    assert found["OTHER"] == "kept"
    assert "FENCEPOST_TICK" not in run(sqlite_url, "--", "env", env=env).stdout


def test_store_is_taken_from_the_environment(sqlite_url: str) -> None:
    assert fencepost("exec", "--lock", "x", "--", "true", env={"FENCEPOST_STORE": sqlite_url}).returncode == 0


class TestTicks:
    def test_a_done_tick_does_not_run_again(self, store: str, tmp_path: Path) -> None:
        assert run(store, "--tick", DUE, "--", "true").returncode == 0
        again = run(store, "--tick", DUE, "--", "touch", f"{tmp_path}/ran")
        assert again.returncode == 0
        assert "already done" in again.stderr
        assert not (tmp_path / "ran").exists()
        assert run(store, "--tick", "2026-01-01T00:01Z", "--", "sh", "-c", "exit 9").returncode == 9

    def test_a_failed_tick_is_not_done(self, sqlite_url: str) -> None:
        assert run(sqlite_url, "--tick", DUE, "--", "false").returncode == 1
        assert run(sqlite_url, "--tick", DUE, "--", "sh", "-c", "exit 9").returncode == 9

    def test_at_most_once_counts_a_failed_tick_as_done(self, sqlite_url: str) -> None:
        assert run(sqlite_url, "--tick", DUE, "--at-most-once", "--", "false").returncode == 1
        assert "already done" in run(sqlite_url, "--tick", DUE, "--at-most-once", "--", "false").stderr

    def test_a_lost_tick_is_not_done(self, sqlite_url: str, tmp_path: Path) -> None:
        with executing(sqlite_url, tmp_path / "p", "--ttl", "2s", "--tick", DUE) as running:
            running.says("pid")
            call("locks", "release", "nightly", "--store", sqlite_url, "--yes")
            assert running.ends() == 74
        assert run(sqlite_url, "--tick", DUE, "--", "sh", "-c", "exit 9").returncode == 9

    def test_a_program_that_outlived_its_lock_unnoticed_is_told(self, sqlite_url: str) -> None:
        release = f"{FENCEPOST} locks release nightly --store {sqlite_url} --yes"
        done = run(sqlite_url, "--tick", DUE, "--", "sh", "-c", release)
        assert done.returncode == 74, done.stderr
        assert run(sqlite_url, "--tick", DUE, "--", "sh", "-c", "exit 9").returncode == 9

    def test_a_misspelt_program_uses_up_no_tick(self, sqlite_url: str) -> None:
        assert run(sqlite_url, "--tick", DUE, "--at-most-once", "--", "no-such-program").returncode == 127
        assert run(sqlite_url, "--tick", DUE, "--at-most-once", "--", "sh", "-c", "exit 9").returncode == 9

    def test_the_news_that_a_tick_is_done_outlives_an_outage(self, postgres: Postgres, tmp_path: Path) -> None:
        prefix = "?prefix=outage_"
        with Proxy(postgres.host, postgres.port) as proxy:
            store = proxy.through(postgres.url) + prefix
            body = "until [ -e $D/go ]; do sleep 0.05; done"
            with executing(store, tmp_path / "p", "--ttl", "30s", "--tick", DUE, body=body) as running:
                running.says("pid")
                proxy.swallow()
                (tmp_path / "p" / "go").touch()
                assert any("release unanswered" in line for line in running.process.stderr)
                proxy.flow()
                assert running.ends() == 0, running.stderr()
        assert "already done" in run(postgres.url + prefix, "--tick", DUE, "--", "true").stderr

    @pytest.mark.parametrize(("zone", "due"), [("UTC", "T03:00:00Z"), ("Asia/Seoul", "T18:00:00Z")])
    def test_auto_is_the_latest_due_time_of_the_cron(self, sqlite_url: str, zone: str, due: str) -> None:
        words = ("--tick", "auto:0 3 * * *", "--tz", zone)
        assert run(sqlite_url, *words, "--", "sh", "-c", "echo $FENCEPOST_TICK").stdout.strip().endswith(due)
        assert "already done" in run(sqlite_url, *words, "--", "true").stderr


def test_at_least_keeps_the_lock_closed_after_a_quick_program(store: str) -> None:
    assert run(store, "--at-least", "1m", "--", "true").returncode == 0
    second = run(store, "--", "true")
    assert second.returncode == 75
    assert "nightly" in second.stderr


def test_lock_is_free_at_once_after_the_program(sqlite_url: str) -> None:
    for _ in range(3):
        assert run(sqlite_url, "--", "true").returncode == 0
    assert read_lock(sqlite_url, "nightly")["held"] is False


@pytest.mark.parametrize(
    ("program", "code"), [("no-such-program", 127), ("./no/such", 127), ("/etc/passwd", 126), ("/", 126)]
)
def test_a_program_that_cannot_run_is_126_or_127(sqlite_url: str, program: str, code: int) -> None:
    done = run(sqlite_url, "--", program)
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == 1
    assert program in done.stderr


def test_a_script_without_its_interpreter_is_not_found_and_gives_the_lock_back(sqlite_url: str, tmp_path: Path) -> None:
    orphan = tmp_path / "script"
    orphan.write_text("#!/no/such/interpreter\n")
    orphan.chmod(0o755)
    assert run(sqlite_url, "--tick", DUE, "--", str(orphan)).returncode == 127
    assert run(sqlite_url, "--tick", DUE, "--", "sh", "-c", "exit 9").returncode == 9


class TestStreams:
    def test_bytes_pass_untouched(self, sqlite_url: str) -> None:
        payload = bytes(range(256)) * 2000
        command = [FENCEPOST, "exec", "--store", sqlite_url, "--lock", "x", "--", "cat"]
        done = subprocess.run(command, input=payload, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, payload, b"")

    @pytest.mark.parametrize("closed", [(0,), (0, 1), (0, 1, 2), (1,)])
    def test_a_closed_stream_stays_closed(self, sqlite_url: str, tmp_path: Path, closed: tuple[int, ...]) -> None:
        look = f"import os; open('{tmp_path}/open', 'w').write(' '.join(sorted(os.listdir('/proc/self/fd'))))"
        redirects = " ".join(f"{number}<&-" for number in closed)
        program = f'{sys.executable} -c "{look}"'
        command = f"exec {FENCEPOST} exec --store {sqlite_url} --lock x -- {program} {redirects}"
        assert shell(command).returncode == 0
        found = set((tmp_path / "open").read_text().split())
        expected = {str(number) for number in range(3) if number not in closed}
        # Python itself opens the file and the folder, on the lowest free numbers.
        ours = {str(number) for number in sorted(set(range(8)) - {int(n) for n in expected})[:2]}
        assert found == expected | ours

    def test_the_program_inherits_no_pipe_of_ours(self, store: str) -> None:
        done = run(store, "--", "ls", "/proc/self/fd")
        assert done.stdout.split() == ["0", "1", "2", "3"]  # 3 is the folder that ls reads


class TestTerminal:
    def test_program_has_the_terminal_and_control_c_reaches_it_alone(self, sqlite_url: str, tmp_path: Path) -> None:
        heed = "trap 'say heard INT; exit 7' INT; say ready yes; while :; do sleep 0.05; done"
        body = f'read line; say line "$line"; {heed}'
        with _on_a_terminal(sqlite_url, tmp_path, body) as (pid, terminal):
            os.write(terminal, b"typed\n")
            assert _file(tmp_path / "line") == "typed"
            _file(tmp_path / "ready")
            os.write(terminal, b"\x03")
            assert _file(tmp_path / "heard") == "INT"
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7

    def test_terminal_is_taken_back_afterwards(self, sqlite_url: str, tmp_path: Path) -> None:
        """A shell that runs two commands in one group reads from the terminal after the first."""
        pid, terminal = pty.fork()
        if pid == 0:
            command = (
                f'{FENCEPOST} exec --store {sqlite_url} --lock x -- true; read line; echo "$line" > {tmp_path}/line'
            )
            os.execvp("sh", ["sh", "-c", command])
        try:
            os.write(terminal, b"typed\n")
            assert _file(tmp_path / "line") == "typed"
            os.waitpid(pid, 0)
        finally:
            os.close(terminal)


@contextmanager
def _on_a_terminal(store: str, folder: Path, body: str) -> Iterator[tuple[int, int]]:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(FENCEPOST, [FENCEPOST, "exec", "--store", store, "--lock", "x", "--", *script(folder, body)])
    try:
        yield pid, terminal
    finally:
        os.close(terminal)


def _file(path: Path) -> str:
    until(path.exists, LONG_S, what=f"{path.name} is written")
    until(lambda: path.read_text().strip(), LONG_S, what=f"{path.name} has content")
    return path.read_text().strip()


class TestSpeech:
    def test_json_is_one_object_per_line(self, sqlite_url: str) -> None:
        done = run(sqlite_url, "-v", "--log-format", "json", "--", "true")
        events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
        assert events == ["acquired", "released"]

    def test_held_in_json_names_the_holder(self, sqlite_url: str, tmp_path: Path) -> None:
        with executing(sqlite_url, tmp_path / "p") as running:
            token = int(running.says("token"))
            done = run(sqlite_url, "--log-format", "json", "--", "true")
        (said,) = [json.loads(line) for line in done.stderr.splitlines()]
        assert (said["lock"], said["token"]) == ("nightly", token)
        assert said["holder"]

    def test_silent_when_all_is_well(self, sqlite_url: str) -> None:
        assert run(sqlite_url, "--", "true").stderr == ""

    def test_quiet_says_nothing_of_a_held_lock(self, sqlite_url: str, tmp_path: Path) -> None:
        with executing(sqlite_url, tmp_path / "p") as running:
            running.says("pid")
            done = run(sqlite_url, "-q", "--", "true")
        assert (done.returncode, done.stderr) == (75, "")


def test_starts_without_typer_and_rich() -> None:
    look = "import sys, fencepost.cli.main, fencepost.cli.exec; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout.split()
    assert not {"typer", "click", "rich"} & set(loaded)


def _catches(pid: int, number: signal.Signals) -> bool:
    mask = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(mask.split()[1], 16) & (1 << (number - 1)))
