"""``fencepost demo`` counts rightly and leaves nothing behind, also when it is interrupted."""

import io
import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from fencepost.demo.screen import PlainScreen
from fencepost.demo.show import CtrlC, Show
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
