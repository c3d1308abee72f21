"""``fencepost run`` as a process: it runs what is due, drains when it is told to end, and leaves nothing behind."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from fencepost.ledger.urls import lease_url
from testbed.keeper import is_alive
from testbed.wait import until
from tests.cli.command import FENCEPOST, LONG_S, are_gone, children_of, fencepost
from tests.cli.inside import call

ROOT = Path(__file__).parents[2]


class Node:
    """A ``fencepost run`` in the background, with one worker: each more takes as long to start as half a node."""

    def __init__(self, process: subprocess.Popen[str], ledger: str, log: Path) -> None:
        self.process = process
        self.ledger = ledger
        self._log = log

    def log(self) -> str:
        return self._log.read_text()

    def says(self, words: str) -> None:
        until(lambda: words in self.log() or self.process.poll() is not None, LONG_S, what=f"it says {words!r}")
        assert words in self.log(), self.log()

    def trigger(self, job: str, *words: str) -> int:
        asked = call("trigger", job, *words, "--json", ledger=self.ledger).json
        return int(asked["run"] if "run" in asked else asked["id"])

    def state(self, run: int) -> str:
        return str(call("show", str(run), "--json", ledger=self.ledger).json["state"])


@contextmanager
def node(
    ledger: str, folder: Path, *words: str, app: str = "tests.cli.shop:app", says: str = "takes part"
) -> Iterator[Node]:
    log = folder / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [FENCEPOST, "run", app, "--workers", "1", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
            cwd=ROOT,
            env={**os.environ, "FENCEPOST_URL": ledger, "FENCEPOST_TTL": "10s"},
        )
    running = Node(process, ledger, log)
    try:
        running.says(says)
        yield running
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def ledger(tmp_path: Path, migrated_file: Path) -> str:
    """A ledger whose tables are there: most nodes find them. The others make them, which takes as long again."""
    shutil.copyfile(migrated_file, tmp_path / "ledger.db")
    return f"sqlite:///{tmp_path}/ledger.db"


def test_a_run_that_was_asked_for_and_waited_for_brings_its_result(ledger: str, tmp_path: Path) -> None:
    with node(ledger, tmp_path) as running:
        waited = call("trigger", "add", "-p", "a=3", "--wait", "--json", ledger=ledger).json
        assert f"Z add run {waited['id']}: adding 3 and 2 attempt=1 token={waited['token']} node=" in running.log()
        assert (waited["state"], waited["result"], len(waited["ended_attempts"])) == ("succeeded", 5, 1)
        failed = call("trigger", "boom", "--wait", ledger=ledger)
        assert failed.returncode == 3
        assert "RuntimeError" in failed.stdout
        assert "in boom\n    raise RuntimeError(word)\nRuntimeError: boom\n" in running.log()


def _four_of(running: Node) -> list[int]:
    """Return guardians and workers of a node once all of them are there: the second comes after the first."""
    guardians = children_of(running.process.pid)
    found = [pid for guardian in guardians for pid in (guardian, *children_of(guardian))]
    return found if len(found) == 4 else []


def test_node_that_is_drained_finishes_what_runs_and_ends_with_exit_code_0(ledger: str, tmp_path: Path) -> None:
    with node(ledger, tmp_path, "--grace", "0s", "--workers", "2") as running:
        run = running.trigger("nap", "-p", "seconds=1.5", "-p", f"folder={tmp_path}")
        until((tmp_path / "napping").exists, LONG_S, what="it naps")
        [name] = [each["name"] for each in call("nodes", "--json", ledger=ledger).json]
        said = call("nodes", "drain", name, "--reason", "the machine is replaced", "--by", "ann", ledger=ledger).stdout
        assert "it leaves when its 1 run has ended" in said
        waits = running.trigger("add", "-p", "a=3")
        assert "draining" in call("nodes", ledger=ledger).stdout
        assert running.process.wait(LONG_S) == 0
        assert "drained: its runs are done" in running.log()
        assert [running.state(each) for each in (run, waits)] == ["succeeded", "queued"]
        [gone] = call("nodes", "--all", "--json", ledger=ledger).json
        assert (gone["state"], gone["drain_by"]) == ("left", "ann")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_first_signal_lets_what_runs_come_to_its_end(ledger: str, tmp_path: Path, number: int) -> None:
    with node(ledger, tmp_path, "--workers", "2") as running:
        run = running.trigger("nap", "-p", "seconds=1.5", "-p", f"folder={tmp_path}")
        until((tmp_path / "napping").exists, LONG_S, what="it naps")
        workers = until(partial(_four_of, running), LONG_S, what="two workers, each with its guardian")
        running.process.send_signal(number)
        assert running.process.wait(LONG_S) == 0
        assert (tmp_path / "done").exists()
        assert running.state(run) == "succeeded"
        are_gone(*workers)
        assert [each["state"] for each in call("nodes", "--all", "--json", ledger=ledger).json] == ["left"]
        locks = ("locks", "list", "--store", lease_url(ledger), "--json")
        assert (call(*locks).json, len(call(*locks, "--all").json)) == ([], 1)
        assert running.log().rstrip().endswith("left")


def test_what_does_not_end_within_the_grace_is_stopped_and_may_be_done_by_another(ledger: str, tmp_path: Path) -> None:
    with node(ledger, tmp_path, "--grace", "500ms") as running:
        run = running.trigger("nap", "-p", "seconds=60", "-p", f"folder={tmp_path}")
        until((tmp_path / "napping").exists, LONG_S, what="it naps")
        napper = int((tmp_path / "napping").read_text())
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(LONG_S) == 0
        are_gone(napper)
        assert not (tmp_path / "done").exists()
        assert running.state(run) in ("queued", "waiting")


def test_the_second_signal_ends_at_once(ledger: str, tmp_path: Path) -> None:
    with node(ledger, tmp_path, "--grace", "1h") as running:
        running.trigger("nap", "-p", "seconds=60", "-p", f"folder={tmp_path}")
        until((tmp_path / "napping").exists, LONG_S, what="it naps")
        napper = int((tmp_path / "napping").read_text())
        running.process.send_signal(signal.SIGTERM)
        running.says("leaving")
        states = ("nodes", "--json")
        until(lambda: call(*states, ledger=ledger).json[0]["state"] == "draining", LONG_S, what="it is seen to drain")

        def ended() -> bool:
            running.process.send_signal(signal.SIGTERM)
            return running.process.poll() is not None

        until(ended, LONG_S, what="it has ended")
        assert running.process.returncode == 128 + signal.SIGTERM
        [said] = running.log().partition("leaving: ")[2].splitlines()[1:]
        assert "ended at once, by a second signal" in said
        are_gone(napper)


@pytest.mark.parametrize(
    ("name", "number"),
    [("ledger.db", signal.SIGTERM), ("ledger.leases.db", signal.SIGINT)],
    ids=["ledger-SIGTERM", "leases-SIGINT"],
)
def test_who_waits_for_a_busy_file_at_its_start_leaves_when_asked(tmp_path: Path, name: str, number: int) -> None:
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    with node(ledger, tmp_path) as first:
        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(LONG_S) == 0
    with closing(sqlite3.connect(tmp_path / name, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with node(ledger, tmp_path, says="starts when it answers") as running:
            running.process.send_signal(number)
            assert running.process.wait(6.0) == 0  # it took ten before; a busy machine needs some to end Python
            assert running.log().rstrip().endswith("left: a signal ended it before it could start")
            assert "Traceback" not in running.log()


def test_cancelled_it_is_really_stopped(ledger: str, tmp_path: Path) -> None:
    with node(ledger, tmp_path) as running:
        run = running.trigger("nap", "-p", "seconds=60", "-p", f"folder={tmp_path}")
        until((tmp_path / "napping").exists, LONG_S, what="it naps")
        napper = int((tmp_path / "napping").read_text())
        assert call("cancel", str(run), "--json", ledger=ledger).json["outcome"] == "requested"
        are_gone(napper)
        until(lambda: running.state(run) == "cancelled", LONG_S, what="it is cancelled")
        assert not (tmp_path / "done").exists()


def test_what_took_its_worker_along_is_held_for_a_person_until_one_releases_it(ledger: str, tmp_path: Path) -> None:
    with node(ledger, tmp_path) as running:
        run = running.trigger("fall")
        until(lambda: call("runs", "--held", "--json", ledger=ledger).json, LONG_S, what="it is held")
        assert running.trigger("add", "-p", "a=3", "--wait")  # so that whoever might claim it again had the time
        shown = call("show", str(run), ledger=ledger)
        assert "held for a person" in shown.stdout
        assert f"fencepost release {run}" in shown.stdout
        call("release", str(run), ledger=ledger)
        until(lambda: running.state(run) == "succeeded", LONG_S, what="it went on")
        assert call("show", str(run), "--json", ledger=ledger).json["attempts"] == 2


def test_the_ledger_may_be_named_where_the_application_does_not(tmp_path: Path) -> None:
    (tmp_path / "fixed.py").write_text("from fencepost import App\napp = App('sqlite:///own.db')\n")
    done = fencepost("run", "fixed:app", "--ledger", "sqlite:///other.db", cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "names its ledger itself" in done.stderr
    with node("sqlite:///unused.db", tmp_path, "--ledger", f"sqlite:///{tmp_path}/named.db"):
        asked = call("trigger", "add", "-p", "a=3", "--wait", "--json", ledger=f"sqlite:///{tmp_path}/named.db")
        assert asked.json["result"] == 5


def test_the_supervisor_killed_takes_its_workers_along(ledger: str, tmp_path: Path) -> None:
    with node(ledger, tmp_path) as running:
        running.trigger("nap", "-p", "seconds=60", "-p", f"folder={tmp_path}")
        until((tmp_path / "napping").exists, LONG_S, what="it naps")
        napper = int((tmp_path / "napping").read_text())
        assert is_alive(napper)
        running.process.kill()
        are_gone(napper)
        assert "Traceback" not in running.log()


def test_jobs_may_run_on_threads(ledger: str, tmp_path: Path) -> None:
    with node(ledger, tmp_path, "--threads") as running:
        assert call("trigger", "add", "-p", "a=3", "--wait", "--json", ledger=ledger).json["result"] == 5
        assert children_of(running.process.pid) == []


def test_options_outweigh_settings_and_every_line_of_the_log_may_be_json(ledger: str, tmp_path: Path) -> None:
    words = ("--workers", "2", "--ttl", "7s", "--queues", "mail,default", "--generation", "3", "--log-format", "json")
    with node(ledger, tmp_path, *words, app="tests.cli.loud_shop:app") as running:
        [shown] = call("nodes", "--json", ledger=ledger).json
        assert (shown["slots"], shown["queues"], shown["generation"]) == (2, ["mail", "default"], 3)
        run = running.trigger("add", "-p", "a=3", "--wait")
        running.trigger("boom")
        running.says("run dead")
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(LONG_S) == 0
        lines = [json.loads(line) for line in running.log().splitlines()]
        assert all(line["at"].endswith("Z") and {"message", "event"} & line.keys() for line in lines)
        assert {(line["logger"], line["message"]) for line in lines if line["logger"] == "tests.cli.loud_shop"} == {
            ("tests.cli.loud_shop", "imported"),
            ("tests.cli.loud_shop", "adding 3 and 2"),
        }
        [logged] = [line for line in lines if line.get("message") == "adding 3 and 2"]
        assert (logged["job"], logged["run"], logged["attempt"]) == ("add", run, 1)
        assert (logged["account"], logged["extra_job"]) == (7, "mine")
        [joined] = [line for line in lines if line.get("event") == "node joined"]
        assert logged["node"] == joined["node"] == shown["name"]
        assert logged["token"] == call("show", str(run), "--json", ledger=ledger).json["token"]
        [dead] = [line for line in lines if line.get("event") == "run dead"]
        assert "raise RuntimeError" in dead["trace"]
        assert "an old thing" in next(line["message"] for line in lines if line["logger"] == "py.warnings")
        assert "ZeroDivisionError" in next(line["trace"] for line in lines if line["logger"] == "fencepost.process")


def test_followers_see_a_run_come_and_end(ledger: str, tmp_path: Path) -> None:
    with node(ledger, tmp_path) as running:
        following = subprocess.Popen(
            [FENCEPOST, "runs", "--follow", "--job", "add", "--json", "--ledger", ledger],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            run = running.trigger("add", "-p", "a=3")
            seen = []
            while not seen or seen[-1]["state"] != "succeeded":
                seen.append(json.loads(following.stdout.readline()))
            assert {each["id"] for each in seen} == {run}
        finally:
            following.send_signal(signal.SIGINT)
            try:
                assert following.wait(LONG_S) == 130
            finally:
                following.kill()
                following.communicate()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, in which commands that are called within this process find modules, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


AS_A_PROCESS = (["no_such_module:app"], ["raises:app"], ["fine:app", "--ttl", "5 parsecs"])


def test_what_cannot_start_says_why_in_a_sentence(here: Path) -> None:
    (here / "twice.py").write_text(
        "from fencepost import App\napp = App()\n@app.job\ndef a(): ...\n@app.job(name='a')\ndef b(): ...\n"
    )
    (here / "badcron.py").write_text(
        "from fencepost import App, cron\napp = App()\n@app.job(cron('61 * * * *'))\ndef a(): ...\n"
    )
    (here / "badzone.py").write_text(
        "from fencepost import App, cron\napp = App()\n@app.job(cron('1 * * * *', tz='Europe/Berln'))\ndef a(): ...\n"
    )
    (here / "raises.py").write_text("1 / 0\n")
    (here / "other.py").write_text("application = 1\n")
    (here / "fine.py").write_text("from fencepost import App\napp = App()\n@app.job\ndef a(): ...\n")
    for words, expected in (
        (["no_such_module:app"], "no module named 'no_such_module'"),
        (["fine.py:app"], "'fine:app'"),
        (["fine:ap"], "it has: app"),
        (["other:application"], "not an App"),
        (["raises:app"], "ZeroDivisionError"),
        (["twice:app"], "two jobs named 'a'"),
        (["badcron:app"], "'61' is not a valid minute"),
        (["badzone:app"], "did you mean 'Europe/Berlin'?"),
        (["fine:app", "--ttl", "5 parsecs"], "parsecs"),
        (["fine:app", "--ttl", "1ms"], "ttl"),
        (["fine:app", "--grace", "soon"], "--grace"),
        (["fine:app", "--queues", " , "], "queue"),
        (["fine:app", "--queues", ""], "queue"),
        (["fine:app", "--ttl", ""], "duration"),
        (["fine:app", "--log-format", "xml"], "xml"),
        (["fine:app", "--workers", "0"], "--workers"),
        ([], "behind fencepost run, with FENCEPOST_APP"),
    ):
        done = fencepost("run", *words) if words in AS_A_PROCESS else call("run", *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert expected in done.stderr
        assert "Traceback" not in done.stderr


def test_the_current_folder_is_searched_as_with_python_m(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from fencepost import App\napp = App()\n@app.job\ndef add(a: int):\n    return a + 1\n"
    )
    process = subprocess.Popen([FENCEPOST, "run", "shop:app", "--workers", "1"], cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        url = f"sqlite:///{tmp_path}/fencepost.db"
        until(lambda: call("jobs", "add", ledger=url).returncode == 0, LONG_S, what="the job is known")
        assert call("trigger", "add", "-p", "a=1", "--wait", "--json", ledger=url).json["result"] == 2
    finally:
        process.terminate()
        try:
            process.wait(LONG_S)
        finally:
            process.kill()
            process.communicate()
