"""``fencepost locks`` shows what the store knows, changes nothing by looking, and takes a lock away only when sure."""

import json
import os
import pty
import signal
from pathlib import Path

import pytest

from fencepost.core.fencing import AHEAD_US
from fencepost.locks import connect
from testbed.wait import until
from tests.cli.command import FENCEPOST, LONG_S, executing, fencepost, read_lock
from tests.cli.inside import call


def locks(store: str, *words: str) -> str:
    done = call("locks", *words, "--store", store)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_list_and_show_name_the_holder(store: str, tmp_path: Path) -> None:
    done = fencepost(
        "exec", "--store", store, "--lock", "[b]odd[/b] ünïque", "--tick", "2026-01-01T00:00Z", "--", "true"
    )
    assert done.returncode == 0
    with executing(store, tmp_path / "p") as running:
        token = int(running.says("token"))
        rows = json.loads(locks(store, "list", "--json"))
        assert [row["name"] for row in rows] == ["[b]odd[/b] ünïque", "nightly"]
        assert (rows[0]["held"], rows[0]["last_tick"]) == (False, "2026-01-01T00:00:00Z")
        assert (rows[1]["held"], rows[1]["token"]) == (True, token)
        assert 0 < rows[1]["free_in_s"] <= 30
        table = fencepost("locks", "list", "--store", store).stdout
        assert "[b]odd[/b] ünïque" in table
        assert rows[1]["holder"] in table
        assert str(token) in locks(store, "show", "nightly")
        assert read_lock(store, "nightly")["holder"] == rows[1]["holder"]


def test_history_says_who_from_when_until_when_and_why(store: str, tmp_path: Path) -> None:
    fencepost("exec", "--store", store, "--lock", "other", "--", "true")
    with executing(store, tmp_path / "p", "--ttl", "2s") as running:
        token = int(running.says("token"))
        locks(store, "release", "nightly", "--yes")
        assert running.ends() == 74
    (row,) = json.loads(locks(store, "history", "nightly", "--json"))
    assert (row["name"], row["token"], row["why"]) == ("nightly", token, "revoked")
    assert f":{running.process.pid}:" in row["holder"]
    assert row["from"] < row["until"]
    assert [row["name"] for row in json.loads(locks(store, "history", "--json"))] == ["nightly", "other"]
    assert len(json.loads(locks(store, "history", "--limit", "1", "--json"))) == 1
    assert "revoked" in locks(store, "history")


def test_reset_brings_back_a_token_that_a_wrong_clock_put_ahead(sqlite_url: str) -> None:
    with connect(sqlite_url) as opened, opened.lock("nightly") as honest:
        pass
    why = ("--reason", "the clock of db-2 was wrong")
    refused = call("locks", "reset", "nightly", *why, "--store", sqlite_url)
    assert (refused.returncode, "nothing was reset" in refused.stderr) == (2, True)
    with connect(sqlite_url) as opened, opened.lock("nightly", floor=honest.token + 2 * AHEAD_US) as ahead:
        held = call("locks", "reset", "nightly", *why, "--store", sqlite_url)
        assert (held.returncode, "fencepost locks release nightly" in held.stderr) == (2, True)
    assert "later holders can write again" in locks(sqlite_url, "reset", "nightly", *why)
    row = json.loads(locks(sqlite_url, "history", "nightly", "--json"))[0]
    assert (row["why"].partition(": ")[2], row["token"] < ahead.token) == ("the clock of db-2 was wrong", True)
    assert call("locks", "reset", "unheard-of", *why, "--store", sqlite_url).returncode == 1
    assert call("locks", "reset", "nightly", "--store", sqlite_url).returncode == 2


def test_a_store_without_history_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from fencepost.cli.main import main
    from fencepost.leases.locks import Locks

    monkeypatch.setattr(Locks, "history", lambda *_, **__: None)
    assert main(["locks", "history", "--store", "memory://", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == []
    assert "keeps no history" in said.err


def test_looking_makes_no_lock(store: str) -> None:
    connect(store).close()  # a store that nothing was taken in
    for words in (["show", "ghost"], ["release", "ghost", "--yes"]):
        done = call("locks", *words, "--store", store)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
        assert "ghost" in done.stderr
    assert json.loads(locks(store, "history", "ghost", "--json")) == []
    assert json.loads(locks(store, "list", "--json")) == []
    assert "no lock" in locks(store, "list")


class TestRelease:
    def test_says_from_whom_and_what_it_does_not_stop(self, sqlite_url: str, tmp_path: Path) -> None:
        with executing(sqlite_url, tmp_path / "p", "--ttl", "2s") as running:
            running.says("pid")
            said = locks(sqlite_url, "release", "nightly", "--yes")
            assert f":{running.process.pid}:" in said
            assert "fence" in said
            assert running.ends() == 74

    def test_without_a_terminal_needs_yes(self, sqlite_url: str, tmp_path: Path) -> None:
        with executing(sqlite_url, tmp_path / "p") as running:
            running.says("pid")
            done = fencepost("locks", "release", "nightly", "--store", sqlite_url)
            assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
            assert "--yes" in done.stderr
            assert read_lock(sqlite_url, "nightly")["held"] is True

    @pytest.mark.parametrize(("answer", "code", "is_held"), [(b"y\n", 0, False), (b"n\n", 130, True)])
    def test_on_a_terminal_asks(self, sqlite_url: str, tmp_path: Path, answer: bytes, code: int, is_held: bool) -> None:
        with executing(sqlite_url, tmp_path / "p") as running:
            running.says("pid")
            pid, terminal = pty.fork()
            if pid == 0:
                os.execv(FENCEPOST, [FENCEPOST, "locks", "release", "nightly", "--store", sqlite_url])
            until(lambda: b"?" in os.read(terminal, 4096), LONG_S)
            os.write(terminal, answer)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
            os.close(terminal)
            assert read_lock(sqlite_url, "nightly")["held"] is is_held

    def test_of_a_free_lock_does_nothing(self, sqlite_url: str) -> None:
        fencepost("exec", "--store", sqlite_url, "--lock", "nightly", "--", "true")
        assert "is not held" in locks(sqlite_url, "release", "nightly", "--yes")
        assert json.loads(locks(sqlite_url, "release", "nightly", "--json"))["released"] is False


def test_version_and_help() -> None:
    assert fencepost("--version").stdout.startswith("fencepost 0")
    assert "exec" in fencepost("--help").stdout
    for words in (["exec"], ["locks"], ["locks", "list"], ["locks", "release"]):
        done = call(*words, "--help")
        assert done.returncode == 0
        assert "--store" in done.stdout or words == ["locks"]


def test_a_reader_that_leaves_early_is_no_error(sqlite_url: str) -> None:
    import subprocess

    connect(sqlite_url).close()
    command = f"{FENCEPOST} locks list --json --store {sqlite_url} | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""


def test_interrupt_is_130(sqlite_url: str, tmp_path: Path) -> None:
    with executing(sqlite_url, tmp_path / "p") as first:
        first.says("pid")
        with executing(sqlite_url, tmp_path / "q", "--wait", "1m") as second:
            until(lambda: _has_handlers(second.process.pid), LONG_S)
            second.kill(signal.SIGINT)
            assert second.ends() == 130


def _has_handlers(pid: int) -> bool:
    mask = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(mask.split()[1], 16) & (1 << (signal.SIGUSR2 - 1)))


@pytest.mark.parametrize("words", [["list"], ["show", "x"], ["history"], ["release", "x", "-y"]])
def test_looking_makes_no_store(words: list[str], tmp_path: Path) -> None:
    done = call("locks", *words, "--store", f"sqlite:///{tmp_path}/typo.db")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no store at {tmp_path}/typo.leases.db (the leases of sqlite:///{tmp_path}/typo.db)" in done.stderr
    assert "is the URL right?" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_file_of_leases_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "app.db").touch()
    (tmp_path / "app.leases.db").touch()
    done = call("locks", "list", "--store", f"sqlite:///{tmp_path}/app.leases.db")
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith(f"Write the URL of the database beside it: sqlite:///{tmp_path}/app.db")
    assert {each.name for each in tmp_path.iterdir()} == {"app.db", "app.leases.db"}


def test_a_database_without_leases_has_no_locks_yet(tmp_path: Path) -> None:
    (tmp_path / "app.db").touch()
    store = f"sqlite:///{tmp_path}/app.db"
    assert locks(store, "list") == "no lock has been taken here yet\n"
    assert locks(store, "history") == "no grant has ended here yet\n"
    assert call("locks", "show", "x", "--store", store).returncode == 1
    assert [each.name for each in tmp_path.iterdir()] == ["app.db"]
