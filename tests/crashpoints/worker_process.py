"""A worker process that kills itself before or after one of its messages; and the application that it loads."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fencepost.engine.context import RunContext
from fencepost.engine.jobs import Jobs
from fencepost.engine.worker import main as work
from fencepost.threaded import ThreadedRuntime
from fencepost.threaded.worker_line import WorkerLine
from tests.crashpoints.grounds import Ground, opened
from tests.crashpoints.messages import SCENE, Scene
from tests.crashpoints.world import World

T = TypeVar("T")


class Application:
    """What the engine asks of an application: the jobs of a world, in another process."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.jobs: Jobs = World(ground).jobs

    def worker_context(self) -> RunContext:
        runtime = ThreadedRuntime()
        ledger = opened(self._ground, runtime)
        return RunContext(node="worker", runtime=runtime, ledger=lambda: ledger)


def _scene() -> Scene:
    return Scene(*json.loads(os.environ[SCENE]))


def __getattr__(name: str) -> Any:
    if name == "app":
        return Application(Ground(**_scene().ground))
    raise AttributeError(name)


class Mortal:
    """Notes each point, and ends this process at one of them, if no other has done so before."""

    def __init__(self, scene: Scene) -> None:
        self._folder = Path(scene.notes)
        self._point = scene.point
        self._passed = 0
        self._is_first = _made(self._folder / "first")

    def passes(self, label: str) -> None:
        self._passed += 1
        if not self._is_first:
            return
        with (self._folder / "points").open("a") as notes:
            notes.write(f"{os.getpid()} {label}\n")
        if self._passed == self._point:
            _made(self._folder / "killed")
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, what: str, call: Callable[..., T]) -> Callable[..., T]:
        """Make a point before and after each call."""

        def called(*arguments: Any) -> T:
            self.passes(f"before {what}")
            result = call(*arguments)
            self.passes(f"after {what}")
            return result

        return called


def _made(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def main() -> None:
    mortal = Mortal(_scene())
    WorkerLine.receive = mortal.around("taking", WorkerLine.receive)  # type: ignore[method-assign]
    WorkerLine.answer = mortal.around("answering", WorkerLine.answer)  # type: ignore[method-assign]
    work()
