"""Starts and kills the demo's nodes, which are real processes of ``fencepost run``.

Each runs under a guardian (`Runtime.guarded`): if the demo itself is killed, its nodes end with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fencepost.core.runtime import GuardedProcess, Runtime

TTL_S = 3.0  # people wait for the takeover, which takes as long; with less, a busy machine loses leases
WORKERS = 2  # of each of the three nodes: the other nodes have room for the runs of the one that is killed
_KILL = 9  # SIGKILL
_TO_LOG = 'log="$1"; shift; exec "$@" >>"$log" 2>&1'
APPLICATION = "fencepost.demo.application:app"


@dataclass(frozen=True, slots=True)
class DemoNode:
    """One node: its name, its log and its process."""

    name: str
    log: Path
    process: GuardedProcess

    @property
    def pid(self) -> int:
        """The process id of the node itself, which holds the lease."""
        return self.process.pid

    def is_alive(self) -> bool:
        return self.process.wait(0) is None

    def last_words(self) -> str:
        """Return the last line of its log."""
        with suppress(OSError):
            lines = self.log.read_text(errors="replace").strip().splitlines()
            return lines[-1] if lines else "(the log is empty)"
        return "(there is no log)"


class DemoStage:
    """The nodes of one demo, in one folder."""

    def __init__(self, folder: Path, runtime: Runtime, *, ends_at: float) -> None:
        self._folder = folder
        self._runtime = runtime
        self._ends_at = ends_at  # when guardians end remaining nodes
        self.ledger = folder / "ledger.db"
        self.actors: dict[str, DemoNode] = {}
        (folder / "fencepost.toml").write_text("")

    @property
    def url(self) -> str:
        """The URL of the ledger."""
        return f"sqlite:///{self.ledger}?accept_risk=one-machine"  # all its nodes are on this machine

    def start(self, name: str) -> DemoNode:
        log = self._folder / f"{name}.log"
        node = [sys.executable, "-m", "fencepost", "run", APPLICATION, "--workers", str(WORKERS), "--grace", "3s"]
        process = self._runtime.guarded(
            ["/bin/sh", "-c", _TO_LOG, "sh", str(log), *node],
            env=self._environment(name),
            term_at=self._ends_at,
            kill_at=self._ends_at + 5.0,
        )
        actor = DemoNode(name, log, process)
        self.actors[name] = actor
        return actor

    def kill(self, name: str) -> None:
        """Kill a node with SIGKILL, so that it cannot clean up."""
        self.actors[name].process.signal(_KILL)

    def fallen(self) -> list[DemoNode]:
        """Return the nodes that have ended."""
        return [actor for actor in self.actors.values() if not actor.is_alive()]

    def end(self, within_s: float) -> None:
        """Ask every node to leave, and kill those that do not."""
        now = self._runtime.monotonic()
        for actor in self.actors.values():  # a deadline that has passed: SIGTERM now, SIGKILL later
            actor.process.extend(term_at=now, kill_at=now + within_s)
        for actor in self.actors.values():
            actor.process.wait(max(now + within_s - self._runtime.monotonic(), 0) + 5.0)

    def _environment(self, name: str) -> Mapping[str, str]:
        """Return the environment of a node: that of this process, without its Fencepost settings."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FENCEPOST_")}
        settings = {
            "FENCEPOST_URL": self.url,
            "FENCEPOST_NAME": name,
            "FENCEPOST_TTL": f"{TTL_S}s",
            "FENCEPOST_CONFIG": str(self._folder / "fencepost.toml"),
        }
        return kept | settings
