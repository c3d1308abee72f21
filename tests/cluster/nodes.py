"""Nodes as real processes: started, killed, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from fencepost.testing import until
from tests.cli.inside import call

ROOT = Path(__file__).parent.parent.parent
FENCEPOST = str(Path(sys.executable).parent / "fencepost")
Found = TypeVar("Found")
APP = "tests.cluster.jobs_app:app"


class NodeProcess:
    """One `fencepost run`."""

    def __init__(
        self, url: str, *options: str, app: str = APP, log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self._command = [FENCEPOST, "run", app, *options]
        self._env = {**os.environ, "FENCEPOST_URL": url, "PYTHONPATH": str(ROOT), **(env or {})}
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> NodeProcess:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, env=self._env, cwd=ROOT, stdout=log, stderr=log)
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> str:
        return self._log.read_text()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self, deadline_s: float = 40.0) -> int:
        self.signal(signal.SIGTERM)
        return self.wait(deadline_s)

    def wait(self, deadline_s: float = 40.0) -> int:
        assert self.process is not None
        return self.process.wait(deadline_s)

    def is_up(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log
        return "takes part" in self.log


@contextmanager
def nodes(count: int, url: str, *options: str, folder: Path, **more: Any) -> Iterator[list[NodeProcess]]:
    """Start so many nodes and wait until they take part; whatever happens, none is left."""
    made = [NodeProcess(url, *options, log=folder / f"node-{number}.log", **more) for number in range(count)]
    try:
        for node in made:
            node.start()
        for node in made:
            until(node.is_up, 60, "the node takes part")
        yield made
    finally:
        for node in made:
            with suppress(ProcessLookupError, AssertionError):
                node.signal(signal.SIGCONT)
                node.kill()


def command(url: str, *words: str) -> Any:
    """Ask a command for JSON; within this process, since those who wait for something ask often."""
    return call(*words, "--json", ledger=url).json


def rarely(ask: Callable[[], Found]) -> Callable[[], Found]:
    """Ask three times a second: what takes seconds need not be asked for more often, and a command is dear."""

    def asked() -> Found:
        threading.Event().wait(0.3)
        return ask()

    return asked
