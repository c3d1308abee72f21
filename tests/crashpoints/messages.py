"""The same between a supervisor and its worker process: either is killed before and after each message.

The supervisor is a real process runner under a node that is stepped by hand; the worker is a real process that executes
runs and writes their effects. Who is killed is killed by SIGKILL, at itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from fencepost.core.runs import Claim
from fencepost.core.timings import Timings
from fencepost.engine.runners.process import ProcessRunner
from fencepost.testing import until
from fencepost.threaded import ThreadedRuntime
from fencepost.threaded.workers import WorkerChild
from testbed.keeper import is_alive
from tests.crashpoints.by_hand import TTL_S, HandNode
from tests.crashpoints.child import Exits
from tests.crashpoints.grounds import Ground
from tests.crashpoints.playing import Play, Played, Tally, judged
from tests.crashpoints.points import Way
from tests.crashpoints.world import World, world

WITHIN_S = 120.0  # a worker that starts takes 0.35 s, and twenty times as long beside much other work
KILL_WITHIN_S = 20.0  # after the play: only a point that is not reached takes so long
SCENE = "TESTS_CRASHPOINTS_SCENE"
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from tests.crashpoints.worker_process import main; main()"
)


class Scene(NamedTuple):
    """What a worker process has to know. `notes` is a folder: where it says what it did, and that one has died."""

    ground: dict[str, str]
    notes: str
    point: int | None  # which of its points kills it


class Supervised(ProcessRunner):
    """A process runner with one worker, which is killed at a point."""

    def __init__(self, ground: Ground, notes: Path, point: int | None = None) -> None:
        command = [sys.executable, "-c", _START, json.dumps([os.path.abspath(folder) for folder in sys.path])]
        super().__init__(
            "tests.crashpoints.worker_process:app",
            slots=1,
            timings=Timings.of(TTL_S, term_grace="2s"),
            runtime=ThreadedRuntime(),
            command=command,
            env=os.environ | {SCENE: json.dumps(Scene(asdict(ground), str(notes), point))},
        )
        self.start(lambda: None)


# -- what is played


def two_runs(made: World, node: HandNode) -> None:
    """One run after the other, each to its end."""
    for _ in range(2):
        made.ask("plain")
        _go_on(made, node, made.is_settled)


def a_cancelled_run(made: World, node: HandNode) -> None:
    """A run that is under way when somebody wants it to stop."""
    made.ask("waits")
    _go_on(made, node, lambda: _executing(node) is not None or made.is_settled())
    made.change("UPDATE {run} SET cancel_requested_at = 1, cancel_by = 'somebody' WHERE state IN ('running', 'queued')")
    _go_on(made, node, made.is_settled)


PLAYS: dict[str, Callable[[World, HandNode], None]] = {"two runs": two_runs, "a cancelled run": a_cancelled_run}


def _executing(node: HandNode) -> Claim | None:
    runner = node.runner
    found = [handle.executing() for handle in runner._pool.handles]
    return next((each[0].claim for each in found if each is not None), None)


def _go_on(made: World, node: HandNode, is_done: Callable[[], bool]) -> None:
    def turned() -> bool:
        node.step(node.beat)
        node.step(node.join)
        node.state.hint()
        node.step(node.exchange.step)
        ThreadedRuntime().sleep(0.005)
        return is_done()

    until(turned, WITHIN_S, "the node is done")


# -- who is killed


def worker_points(ground: Ground, name: str) -> tuple[str, ...]:
    """Play without a kill; return what the worker took and answered, before and after each."""
    with _notes() as notes:
        _supervise(ground, name, notes, None)
        return tuple(line.partition(" ")[2] for line in (notes / "points").read_text().splitlines())


def worker_killed(ground: Ground, name: str, number: int, label: str) -> Played:
    """Play, and let the worker kill itself at a point."""
    with _notes() as notes:
        played = _supervise(ground, name, notes, Play(number, Way.EXIT, label))
        return played if (notes / "killed").exists() else played._replace(outcome=None)


def supervisor_killed(ground: Ground, name: str, number: int, exits: Exits) -> Played:
    """Play in a process that kills itself at a point; outcome None if it never came there."""
    play = Play(number, Way.EXIT, "a message of the supervisor")
    ground.empty()
    with _notes() as notes:
        if not exits.supervise(ground, name, number, str(notes)):
            return Played(play, None, [])
        with world(ground) as made:
            played = judged(made, play, has_exited=True)
        return played._replace(violations=played.violations + list(_left_over(notes)))


def _supervise(ground: Ground, name: str, notes: Path, play: Play | None) -> Played:
    ground.empty()
    with world(ground) as made:
        node = made.stranger("victim", Supervised(ground, notes, None if play is None else play.number))
        node.join()
        try:
            PLAYS[name](made, node)
            if play is not None:
                _wait_for_the_kill(notes)
        finally:
            node.runner.close(0)
        return judged(made, play or Play(0, Way.EXIT, "nothing"), has_exited=False)


def _wait_for_the_kill(notes: Path) -> None:
    """Let the worker come to its last point: the play is over as soon as its answer was read, perhaps before that."""
    with suppress(AssertionError):  # it never comes there
        until((notes / "killed").exists, KILL_WITHIN_S, "the worker has killed itself")


def supervise_until(ground: Ground, name: str, notes: str, number: int) -> None:
    """In a process of its own: play, and kill this process at a message."""
    with counted(number), world(ground) as made:
        node = made.stranger("victim", Supervised(ground, Path(notes)))
        node.join()
        PLAYS[name](made, node)
        node.runner.close(0)


@contextmanager
def counted(number: int) -> Iterator[list[str]]:
    """Count what is sent before and after it is, and lines when they were read; at this one, kill this process."""
    labels: list[str] = []

    def passes(label: str) -> None:
        labels.append(label)
        if len(labels) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    send, receive = WorkerChild.send, WorkerChild.receive

    def sending(self: Any, message: bytes) -> bool:
        passes("before sending")
        sent = send(self, message)
        passes("after sending")
        return sent

    def receiving(self: Any) -> list[bytes]:
        lines = receive(self)
        for _ in lines:
            passes("after receiving")
        return lines

    with mock.patch.object(WorkerChild, "send", sending), mock.patch.object(WorkerChild, "receive", receiving):
        yield labels


@contextmanager
def _notes() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _left_over(notes: Path) -> Iterator[str]:
    """A worker ends with its supervisor."""
    file = notes / "points"
    pids = {int(line.split()[0]) for line in file.read_text().splitlines()} if file.exists() else set()
    try:
        until(lambda: not any(is_alive(pid) for pid in pids), WITHIN_S, "the workers are gone")
    except AssertionError:
        yield f"messages: workers {[pid for pid in pids if is_alive(pid)]} outlived their supervisor"


def worker_tally(ground: Ground, name: str, *, nth: int = 1) -> Tally:
    """Kill the worker at each of its points, or every nth."""
    labels = worker_points(ground, name)
    tally = Tally(points=len(labels))
    for number, label in list(enumerate(labels, 1))[::nth]:
        tally.add(worker_killed(ground, name, number, label))
    return tally


def supervisor_tally(ground: Ground, name: str, exits: Exits, *, nth: int = 1) -> Tally:
    """Kill the supervisor at each message, until it gets through; or at every nth."""
    tally, number = Tally(), 1
    while (played := supervisor_killed(ground, name, number, exits)).outcome is not None:
        tally.add(played)
        number += nth
    tally.points = number - nth
    return tally
