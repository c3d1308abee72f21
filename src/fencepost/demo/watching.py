"""Reads from the ledger's file, a few times a second, which node runs what with which token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fencepost.core.states import TERMINAL
from fencepost.core.tick import instant
from fencepost.sql.sqlite import ERRORS, opened_for_reading

_RUNS = (
    "SELECT r.id, r.job, r.state, r.attempts, n.name, r.token, r.due_at, r.created_at, r.started_at, r.ended_at, "
    "r.progress, r.why FROM fencepost_run r LEFT JOIN fencepost_node n ON n.id = r.node ORDER BY r.id"
)
_NODES = "SELECT name, left_at, dead_at FROM fencepost_node ORDER BY started_at"
_LOST = (
    "SELECT a.run_id, a.number, a.token, n.name, a.error FROM fencepost_attempt a "
    "LEFT JOIN fencepost_node n ON n.id = a.node WHERE a.outcome = 'lost'"
)


class ShownRun(NamedTuple):
    """A run, as the demo shows it."""

    id: int
    job: str
    state: str
    attempts: int
    node: str | None
    token: int
    due_us: int | None
    created_us: int
    started_us: int | None
    ended_us: int | None
    progress: float | None
    why: str | None

    @property
    def at_work(self) -> str:
        """The run with its progress and token."""
        share = f" {self.progress:.0%}" if self.progress is not None else ""
        return f"{self.job} run {self.id}{share} (token {self.token})"


@dataclass(frozen=True, slots=True)
class View:
    """The state of all nodes and runs."""

    nodes: dict[str, str]  # name → living, dead or left; the latest node if several had the name
    runs: tuple[ShownRun, ...]
    turns: tuple[str, ...]  # losses and takeovers since the last view
    lines: tuple[str, ...]  # runs that have ended since then

    def running(self, node: str) -> list[ShownRun]:
        """Return the runs of a node."""
        return [run for run in self.runs if run.state == "running" and run.node == node]

    def busiest(self) -> str | None:
        """Return the living node to kill: one with an import in progress, else the one with the most runs."""
        living = [name for name, state in self.nodes.items() if state == "living" and self.running(name)]
        return max(living, key=self._busyness, default=None)

    def _busyness(self, node: str) -> tuple[bool, int]:
        running = self.running(node)
        return any(run.job == "import_orders" and (run.progress or 0) > 0.1 for run in running), len(running)


class LedgerWatcher:
    """Reads the ledger, and returns what has changed."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._told: dict[int, str] = {}
        self._lost: set[tuple[int, int]] = set()
        self._taken: set[tuple[int, int]] = set()

    def look(self) -> View:
        """Read the ledger. Before it exists, the view is empty."""
        try:
            with closing(opened_for_reading(self._ledger, 5.0)) as connection:
                runs = tuple(
                    ShownRun(row[0], row[1], row[2], row[3], short(row[4]), *row[5:])
                    for row in connection.execute(_RUNS)
                )
                nodes = {short(name) or "": _state(left, dead) for name, left, dead in connection.execute(_NODES)}
                lost = list(connection.execute(_LOST))
        except ERRORS:
            return View({}, (), (), ())
        return View(nodes, runs, (*self._losses(lost, runs), *self._takeovers(runs)), tuple(self._endings(runs)))

    def _losses(
        self, lost: list[tuple[int, int, int, str | None, str | None]], runs: tuple[ShownRun, ...]
    ) -> Iterator[str]:
        jobs = {run.id: run.job for run in runs}
        for run_id, number, token, node, _ in lost:
            if (run_id, number) not in self._lost:
                self._lost.add((run_id, number))
                job = jobs.get(run_id, "")
                yield f"{job:<14} run {run_id:<4} attempt {number} on {short(node)} is lost (token {token})"

    def _takeovers(self, runs: tuple[ShownRun, ...]) -> Iterator[str]:
        for run in runs:
            if run.state == "running" and (run.id, run.attempts - 1) in self._lost - self._taken:
                self._taken.add((run.id, run.attempts - 1))
                yield f"{run.job:<14} run {run.id:<4} is taken over by {run.node} (token {run.token})"

    def _endings(self, runs: tuple[ShownRun, ...]) -> Iterator[str]:
        for run in runs:
            if run.state in TERMINAL and run.id not in self._told:
                self._told[run.id] = run.state
                yield _ending(run)


def short(node: str | None) -> str | None:
    """Return the name of a node without the process id and the random part."""
    return None if node is None else node.partition(":")[0]


def clock(at_us: int) -> str:
    """Format the time of day, in UTC."""
    return f"{instant(at_us):%H:%M:%S}"


def _state(left_at: int | None, dead_at: int | None) -> str:
    if dead_at is not None:
        return "dead"
    return "living" if left_at is None else "left"


def _ending(run: ShownRun) -> str:
    due = f"due {clock(run.due_us)}" if run.due_us is not None else f"requested {clock(run.created_us)}"
    what = f"{run.job:<14} run {run.id:<4} {due}"
    if run.state != "succeeded" or run.started_us is None or run.ended_us is None:
        return f"{what} {run.state}: {run.why or ''}"
    took = f"{(run.ended_us - run.started_us) / 1000:.0f} ms"
    tries = "" if run.attempts == 1 else f", attempt {run.attempts}"
    return f"{what} done by {run.node} in {took} (token {run.token}{tries})"
