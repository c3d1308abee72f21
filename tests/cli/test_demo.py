"""``fencepost demo`` counts rightly and leaves nothing behind, also when it is interrupted."""

import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from fencepost import App, every
from fencepost.app.composing import publish
from fencepost.cli.demo import demo
from fencepost.core.tick import microseconds
from fencepost.demo.live import LiveShow
from fencepost.demo.pages import offer_pages
from fencepost.demo.recount import Tally
from fencepost.demo.screen import PlainScreen
from fencepost.demo.show import CtrlC, Show, in_words, pause_planned
from fencepost.demo.stage import DemoStage
from fencepost.demo.watching import ShownRun, View
from fencepost.errors import ConfigurationError, MissingExtra
from fencepost.threaded import ThreadedRuntime
from testbed.wait import until
from tests.cli.command import FENCEPOST, are_gone, children_of


def descendants(pid: int) -> list[int]:
    children = children_of(pid)
    return children + [each for child in children for each in descendants(child)]


def test_ctrl_c_ends_it_cleanly_with_the_count_so_far(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as stderr, (tmp_path / "json").open("w") as stdout:
        demo = subprocess.Popen(
            [FENCEPOST, "demo", "--seconds", "60", "--json"],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    try:
        until(lambda: "settle" in log.read_text() or demo.poll() is not None, 60, what="something was settled")
        left = descendants(demo.pid)
        demo.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            demo.wait(60)
        assert demo.returncode == 0, log.read_text()
    finally:
        demo.kill()
        demo.wait()
    are_gone(*left)
    count = json.loads((tmp_path / "json").read_text())
    assert count["right"] is True
    assert count["together"]["due"] > 0
    assert (count["together"]["duplicates"], count["together"]["lost_writes"]) == (0, 0)
    assert [job["job"] for job in count["jobs"]] == [
        "settle",
        "reconcile",
        "import_orders",
        "quote",
        "notify",
        "report",
    ]
    assert "stopped" in log.read_text()
    assert list(tmp_path.glob("fencepost-demo-*")) == []


def test_ctrl_c_that_is_lost_in_a_callback_is_noticed_at_the_next_look(tmp_path: Path) -> None:
    """As in one of importlib's, where Python reports the interrupt as ignored and goes on."""
    console, ctrl_c = Console(file=io.StringIO()), CtrlC()
    show = Show(tmp_path, ThreadedRuntime(), seconds=60, screen=PlainScreen(console), ctrl_c=ctrl_c)
    with suppress(KeyboardInterrupt):
        ctrl_c.press(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        show._watch(lambda _: False, within_s=30.0, what=None)
    ctrl_c.answered()
    assert show._watch(lambda _: True, within_s=30.0, what=None).runs == ()


def test_killed_it_takes_its_nodes_along(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as stdout:
        demo = subprocess.Popen(
            [FENCEPOST, "demo", "--seconds", "60"],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    try:
        until(lambda: "settle" in log.read_text() or demo.poll() is not None, 60, what="something was settled")
        left = descendants(demo.pid)
    finally:
        demo.kill()
        demo.wait()
    assert len(left) >= 6
    are_gone(*left)


def test_pages_are_served_from_the_beginning_and_ctrl_c_ends_all(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [FENCEPOST, "demo", "--web"],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, "TMPDIR": str(tmp_path)},
        )  # fmt: skip
    try:
        until(lambda: "once=" in log.read_text() or process.poll() is not None, 60, what="the link is printed")
        link = re.search(r"http://127\.0\.0\.1:\d+/enter\?once=\w+", log.read_text())[0]
        with urllib.request.urlopen(link, timeout=60) as answer:
            assert b"This link can be used once" in answer.read()
        until(lambda: len(descendants(process.pid)) >= 3, 60, what="its nodes are started")
        left = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    are_gone(*left)
    assert list(tmp_path.glob("fencepost-demo-*")) == []


def test_a_node_is_killed_and_replaced_until_the_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without processes: that nodes of the demo die and are replaced is seen in tests/test_programs.py."""
    show = LiveShow(tmp_path, ThreadedRuntime(), seconds=60, console=Console(file=io.StringIO()), ctrl_c=CtrlC())
    done: list[str] = []
    show.stage.actors["node-2"] = None
    monkeypatch.setattr(show, "_watch_until", lambda at: None)
    monkeypatch.setattr(show.stage, "kill", lambda name: done.append(f"kill {name}"))
    monkeypatch.setattr(show.stage, "start", lambda name: done.append(f"start {name}"))
    busy = ShownRun(1, "quote", "running", 1, "node-2", 1, None, 1, 1, None, None, None)
    monkeypatch.setattr(show._watcher, "look", lambda: View({"node-2": "living"}, (busy,), (), ()))
    end = ThreadedRuntime().monotonic() + 60
    show._one_death(end)
    show._one_death(end)
    show._one_death(0.0)
    assert done == ["kill node-2", "start node-4", "kill node-2", "start node-5"]


def test_nothing_is_planned_that_falls_due_after_its_end_began(tmp_path: Path) -> None:
    """A schedule whose due times until then are not planned yet is left to the nodes, and asked for again."""
    app = App(f"sqlite:///{tmp_path}/ledger.db")
    app.job(every("1h"), name="settle")(lambda: None)
    publish(app)
    schedules = app.operations.schedules
    [planned] = schedules.list()
    later = microseconds(planned.next_due_at)
    assert not pause_planned(schedules, later)
    assert schedules.list()[0].paused_at is None
    assert pause_planned(schedules, later - 1)
    assert schedules.list()[0].paused_at is not None
    assert schedules.list()[0].next_due_at is None
    assert pause_planned(schedules, later - 1)
    app.close()


def test_without_the_extra_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [each for each in sys.modules if each.startswith("fencepost.web")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(MissingExtra, match=r"pip install './fencepost\[web\]'"):
        demo(web=True, lasts="60s")
    console, runtime = Console(file=io.StringIO()), ThreadedRuntime()
    offer_pages(DemoStage(tmp_path, runtime, ends_at=0.0), runtime, console, serves=True)
    assert "fencepost demo --web" in console.file.getvalue()
    assert "pip install './fencepost[web]' from a clone" in console.file.getvalue()
    monkeypatch.undo()
    importlib.import_module("fencepost.web")


def test_options_of_the_pages_are_refused_without_them() -> None:
    with pytest.raises(ConfigurationError, match="belong to --web"):
        demo(lasts="60s")
    with pytest.raises(ConfigurationError, match="no --json"):
        demo(web=True, as_json=True)


@pytest.mark.parametrize(
    ("tally", "word"),
    [
        (Tally("all", due=3, ran=3), "every due time has one result"),
        (Tally("all", due=3, ran=2, open=1), "open 1, failed 0: no promise was broken"),
        (Tally("all", due=3, ran=2, open=1), "because this machine is too busy"),
        (Tally("all", due=3, ran=2, failed=1), "open 0, failed 1: no promise was broken"),
        (Tally("all", due=3, ran=3, duplicates=1), "A PROMISE WAS BROKEN"),
    ],
)
def test_the_last_line_says_what_was_wrong(tally: Tally, word: str) -> None:
    assert word in in_words(tally)
