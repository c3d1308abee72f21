"""Nodes that are killed, and started again after a moment; and which processes there are to be killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import fencepost
from fencepost.proof.chaos.processes import tree_of, workers_of
from fencepost.testing import until
from fencepost.threaded.signals import send
from tests.bulk_chaos import application
from tests.bulk_chaos.places import Place
from tests.cluster.nodes import ROOT, NodeProcess

APP = "tests.bulk_chaos.application:app"
WORKER, SUPERVISOR = "worker", "supervisor"


class Kill(NamedTuple):
    """Who was killed when: `pids` are the processes that went, or were to go, with it; `node` is a supervisor's own."""

    kind: str
    at_s: float
    pids: tuple[int, ...]
    node: int = 0


class Cluster:
    """So many nodes, which come back after they were killed."""

    def __init__(self, nodes: list[NodeProcess]) -> None:
        self.nodes = nodes
        self._back_at_s: dict[NodeProcess, float] = {}

    def alive(self) -> list[NodeProcess]:
        """Return the nodes that have not been killed."""
        return [node for node in self.nodes if node not in self._back_at_s]

    def workers(self) -> list[int]:
        """Return the worker processes of all nodes."""
        return [pid for node in self.alive() for pid in workers_of(node.pid)]

    def kill_worker(self, pid: int) -> Kill | None:
        """Kill a worker; None if it was gone already."""
        at_s = time.time()
        return Kill(WORKER, at_s, (pid,)) if send(pid, signal.SIGKILL) else None

    def kill_supervisor(self, node: NodeProcess, *, back_after_s: float) -> Kill:
        """Kill a supervisor; its guardians see to its workers."""
        pids = (node.pid, *workers_of(node.pid))  # on threads, it works itself
        at_s = time.time()
        node.kill()
        self._back_at_s[node] = time.monotonic() + back_after_s
        return Kill(SUPERVISOR, at_s, pids, node.pid)

    def bring_back(self) -> None:
        """Start the nodes again whose time has come."""
        for node, at_s in list(self._back_at_s.items()):
            if time.monotonic() >= at_s:
                node.start()
                del self._back_at_s[node]

    def refuse_ended(self) -> None:
        """Refuse a node that has ended though nobody killed it."""
        for node in self.alive():
            assert node.process is not None
            if node.process.poll() is not None:
                raise AssertionError(f"a node ended by itself:\n{node.log[-3000:]}")


@contextmanager
def started(
    place: Place, *, folder: Path, chunk: int, options: Sequence[str], nodes: int, more: Mapping[str, str]
) -> Iterator[Cluster]:
    """Start the nodes and wait until they take part; whatever happens, none is left."""
    env = {application.EFFECTS_URL: place.effects, application.FOLDER: str(folder), application.CHUNK: str(chunk)}
    env["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, Path(fencepost.__file__).parent.parent)))  # the code we are of
    made = [
        NodeProcess(place.ledger, *options, app=APP, log=folder / f"node-{number}.log", env={**env, **more})
        for number in range(nodes)
    ]
    try:
        for node in made:
            node.start()
        for node in made:
            until(node.is_up, 60, "the node takes part")
        yield Cluster(made)
    finally:
        _end(made)


def _end(nodes: list[NodeProcess]) -> None:
    """Kill what is left; the guardians end the workers, and we wait for that."""
    left = [pid for node in nodes if node.process is not None for pid in tree_of(node.pid)]
    for node in nodes:
        with suppress(ProcessLookupError, AssertionError):
            node.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left), 20, "all processes of the nodes have ended")
