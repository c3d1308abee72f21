"""The actors: nodes and contenders, as real processes, started as a user would start them.

Each is a program under a guardian: if chaos itself is killed, they end with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fencepost.core.runtime import GuardedProcess, Runtime
from fencepost.proof.chaos.processes import KILL, thaw
from fencepost.proof.chaos.proxy import Proxy
from fencepost.proof.chaos.variables import FOLDER, LEDGER, LOCKS_URL, NAME, TTL
from fencepost.threaded.signals import send

APPLICATION = "fencepost.proof.chaos.application:app"
CONTENDER = "fencepost.proof.chaos.contender"
WORKERS = 3  # of each node: when one is killed or stopped, others go on
_TO_LOG = 'log="$1"; shift; exec "$@" >>"$log" 2>&1'
_UP = "takes part"


@dataclass(slots=True)
class Actor:
    """One process that is started, killed and started again. `proxies` are its ways to servers, by what they are."""

    name: str
    is_node: bool
    argv: Sequence[str]
    env: Mapping[str, str]
    log: Path
    proxies: Mapping[str, Proxy]
    process: GuardedProcess | None = None
    frozen: list[int] = field(default_factory=list)
    starts: int = 0
    is_out: bool = False  # it must not be started now

    @property
    def pid(self) -> int:
        """The process id of the node itself, the one that keeps the lease."""
        return self.process.pid if self.process is not None else 0

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.process is not None and self.process.wait(0) is None

    @property
    def is_up(self) -> bool:
        """Whether it is up since its last start."""
        return self.is_alive and self.log.exists() and self.log.read_text(errors="replace").count(_UP) >= self.starts

    def last_words(self) -> str:
        """Return the last line of its log."""
        with suppress(OSError):
            lines = self.log.read_text(errors="replace").strip().splitlines()
            return lines[-1] if lines else "it said nothing"
        return "it left no log"


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """What every process receives."""

    folder: Path
    ttl_s: float
    ends_at: float  # when, at the latest, guardians end what is left

    @property
    def histories(self) -> Path:
        """The folder of the histories of all processes."""
        return self.folder / "history"

    def environment(self, more: Mapping[str, str]) -> Mapping[str, str]:
        """Return our environment, without settings that are meant for another application."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FENCEPOST_")}
        return {
            **kept,
            "FENCEPOST_TTL": f"{self.ttl_s}s",
            "FENCEPOST_CONFIG": str(self.folder / "fencepost.toml"),
            FOLDER: str(self.histories),
            **more,
        }


class Cast:
    """All processes."""

    def __init__(self, runtime: Runtime, around: ProcessSettings) -> None:
        self._runtime = runtime
        self._around = around
        self.actors: dict[str, Actor] = {}
        around.histories.mkdir()
        (around.folder / "fencepost.toml").write_text("")

    @property
    def nodes(self) -> list[Actor]:
        """The actors that run jobs."""
        return [actor for actor in self.actors.values() if actor.is_node]

    @property
    def contenders(self) -> list[Actor]:
        """The actors that take locks."""
        return [actor for actor in self.actors.values() if not actor.is_node]

    def add_node(
        self,
        name: str,
        *,
        ledger: str,
        leases: str | None,
        proxies: Mapping[str, Proxy],
        workers: int,
        python: str = sys.executable,
    ) -> None:
        """Prepare a node, of the version that `python` has; without workers it has threads."""
        how = ["--workers", str(workers)] if workers else ["--threads"]
        argv = [python, "-m", "fencepost", "run", APPLICATION, *how, "--grace", "3s"]
        where = {"FENCEPOST_URL": ledger, "FENCEPOST_NAME": name, "FENCEPOST_SLOTS": str(WORKERS + 1)}
        self._add(name, argv, where | ({"FENCEPOST_LEASES": leases} if leases else {}), proxies, is_node=True)

    def add_contender(
        self, name: str, *, ledger: str, locks: str, proxies: Mapping[str, Proxy], python: str = sys.executable
    ) -> None:
        """Prepare a contender, of the version that `python` has."""
        variables = {NAME: name, LEDGER: ledger, LOCKS_URL: locks, TTL: str(self._around.ttl_s)}
        self._add(name, [python, "-m", CONTENDER], variables, proxies, is_node=False)

    def start(self, actor: Actor) -> None:
        """Start it, for the first time or again."""
        actor.starts = self._times_up(actor) + 1
        actor.process = self._runtime.guarded(
            ["/bin/sh", "-c", _TO_LOG, "sh", str(actor.log), *actor.argv],
            env=actor.env,
            term_at=self._around.ends_at,
            kill_at=self._around.ends_at + 5.0,  # the grace of nodes is 3 s
            unattended=True,
        )

    def kill(self, actor: Actor) -> None:
        """Kill it with SIGKILL. The guardians of its children end those."""
        send(actor.pid, KILL)

    def send_away(self, actor: Actor, within_s: float) -> None:
        """Send SIGTERM, as a deploy does; kill it if it does not leave."""
        if actor.process is not None:
            now = self._runtime.monotonic()
            actor.process.extend(term_at=now, kill_at=now + within_s)

    def end(self, within_s: float) -> None:
        """Continue all stopped processes, have all leave, and kill those that do not."""
        for actor in self.actors.values():
            thaw(actor.frozen)
            actor.frozen = []
        started = [actor.process for actor in self.actors.values() if actor.process is not None]
        now = self._runtime.monotonic()
        for process in started:
            process.extend(term_at=now, kill_at=now + within_s)
        for process in started:
            process.wait(max(now + within_s - self._runtime.monotonic(), 0) + 5.0)

    def _add(
        self,
        name: str,
        argv: Sequence[str],
        variables: Mapping[str, str],
        proxies: Mapping[str, Proxy],
        *,
        is_node: bool,
    ) -> None:
        log, env = self._around.folder / f"{name}.log", dict(self._around.environment(variables))
        if argv[0] != sys.executable:
            env.pop("PYTHONPATH", None)  # it would lead to the version that we are
        self.actors[name] = Actor(name, is_node, argv, env, log, proxies)

    def _times_up(self, actor: Actor) -> int:
        return actor.log.read_text(errors="replace").count(_UP) if actor.log.exists() else 0
