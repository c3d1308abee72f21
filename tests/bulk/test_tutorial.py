"""The tutorial, command by command, as a newcomer would type it; with fewer orders, for time."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.testing import until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial-bulk.md").read_text()
COMMANDS = re.findall(r"^\$ (.+)$", PAGE, re.MULTILINE)
[MENDED] = re.findall(r"```python\n(    def process.+?)```", PAGE, re.DOTALL)
ORDERS = 5_000


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shutil.copy(ROOT / "examples" / "bulk" / "shop.py", tmp_path)
    (tmp_path / "fencepost.toml").write_text("slots = 1\n")  # one worker a node: they take longest to start
    made = Shell(tmp_path)
    yield made
    made.close()


class Shell:
    """A folder in which commands are typed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._started: list[str] = []
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._env = {**os.environ, "PATH": path, "COLUMNS": "200"} | {"FENCEPOST_URL": "sqlite:///fencepost.db"}

    def type(self, command: str) -> str:
        words = command.replace("300000", str(ORDERS))
        if words.startswith("export "):
            name, _, value = words.removeprefix("export ").partition("=")
            self._env[name] = value
            return ""
        if words.endswith("&"):
            return self._start(words.rstrip("& "))
        done = subprocess.run(
            words, shell=True, cwd=self.folder, env=self._env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _start(self, words: str) -> str:
        self._started.append(words)
        said = self.folder / f"node-{len(self._started)}.log"
        with said.open("wb") as log:
            whole = {"cwd": self.folder, "env": self._env, "stdout": log, "stderr": log}
            self._nodes.append(subprocess.Popen(f"exec {words}", shell=True, **whole))
        until(lambda: "takes part" in said.read_text(), 60, "the node takes part")
        return ""

    def mend(self) -> None:
        """Do what section 5 says before the letter is replayed: other code, and nodes that run it."""
        shop = self.folder / "shop.py"
        mended, places = re.subn(
            r"    def process.+?(?=    def write)", f"{MENDED}\n", shop.read_text(), flags=re.DOTALL
        )
        assert places == 1
        shop.write_text(mended)
        words = self._started[0]
        self.close()
        self._nodes, self._started = [], []
        self._start(words)  # one will do

    def ask(self, query: str) -> int:
        with sqlite3.connect(self.folder / "shop.db") as shop:
            return int(shop.execute(query).fetchone()[0])

    def close(self) -> None:
        for node in self._nodes:
            node.terminate()
        for node in self._nodes:
            node.wait(60)


def test_the_commands_of_the_tutorial_do_what_it_says(shell: Shell) -> None:
    assert sum(command.startswith("fencepost run ") for command in COMMANDS) == 2
    said = {}
    for command in COMMANDS:
        if "letters replay" in command:
            shell.mend()
        said[command] = shell.type(command)
        if "trigger" in command:
            until(lambda: shell.ask("SELECT count(*) FROM booking") > 0, 60, "the first bookings")
    kept = shell.ask("SELECT count(*) FROM orders WHERE cents > 0")
    assert shell.ask("SELECT count(*) FROM orders WHERE cents IS NULL") == 5
    assert shell.ask("SELECT count(*) FROM booking") == kept + 1
    assert shell.ask("SELECT count(*) FROM booking WHERE cents = 0") == 1  # the letter
    assert shell.ask("SELECT count(*) FROM fencepost_dead_letter WHERE state = 'replayed'") == 1
    assert f"{ORDERS} orders, 5 of them without an amount" in said[COMMANDS[0]]
    assert f'"read": {ORDERS}, "written": {kept}' in said["fencepost show 5 --follow"]
    until(lambda: shell.ask("SELECT count(*) FROM fencepost_dead_letter WHERE state = 'new'") == 0, 60, "all dropped")
