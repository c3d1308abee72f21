"""Nodes are killed at random while ten jobs are due every second; what became of each due time is then counted.

    python -m tests.cluster.killing postgresql://… --seconds 120 --every 10

The due times are enumerated here, from the interval alone, not asked of the code under test.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.testing import until
from tests.cluster.nodes import command, nodes, rarely

JOBS = tuple(f"beat-{number}" for number in range(10))
FINAL = ("succeeded", "misfired", "skipped")


class Tally(NamedTuple):
    """What became of the due times between the first and the last one that were seen."""

    due: int
    states: Counter[str]
    missing: list[tuple[str, int]]
    twice: list[tuple[str, int]]
    unfinished: int
    lost_attempts: int


def run(
    url: str, *, seconds: float, every_s: float, folder: Path, seed: int = 1, ttl: str = "3s", workers: int = 2
) -> Tally:
    """Start three nodes, kill one at random every so often and start it again; then let all end, and count."""
    chance, stopwatch = random.Random(seed), threading.Event()
    with nodes(3, url, "--ttl", ttl, "--workers", str(workers), folder=folder) as made:
        for _ in range(max(1, int(seconds / every_s))):
            stopwatch.wait(every_s)
            victim = chance.choice(made)
            victim.kill()
            victim.start()
        settled(url)
        for node in made:
            until(node.is_up, 60, "the node takes part")
        for node in made:
            node.stop()
    return tally(command(url, "runs", "--limit", "100000"))


def settled(url: str) -> None:
    """Wait until nothing that was due a while ago is still under way."""

    def is_settled() -> bool:
        rows = command(url, "runs", "--limit", "2000", "--state", "running", "--state", "queued", "--state", "waiting")
        newest = max((_second(row["due_at"]) for row in rows), default=0)
        return all(_second(row["due_at"]) >= newest - 5 for row in rows)

    until(rarely(is_settled), 60, "what was due has ended")


def tally(rows: list[dict[str, Any]]) -> Tally:
    """Count, for each second of each job between the first and the last, how many rows stand for it."""
    ended = [row for row in rows if row["state"] in FINAL]
    unfinished = [row for row in rows if row["state"] not in FINAL]
    until_s = min((_second(row["first_due_at"]) for row in unfinished), default=None)
    covered: Counter[tuple[str, int]] = Counter()
    for row in ended:
        for second in range(_second(row["first_due_at"]), _second(row["due_at"]) + 1):
            covered[row["job"], second] += 1
    first = {job: min(s for j, s in covered if j == job) for job in JOBS}
    last = (until_s - 1) if until_s is not None else max(second for _, second in covered)
    due = [(job, second) for job in JOBS for second in range(first[job], last + 1)]
    return Tally(
        due=len(due),
        states=Counter(row["state"] for row in ended),
        missing=[tick for tick in due if covered[tick] == 0],
        twice=[tick for tick in due if covered[tick] > 1],
        unfinished=len(unfinished),
        lost_attempts=sum(row["crashes"] for row in rows),
    )


def _second(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--every", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = run(options.url, seconds=options.seconds, every_s=options.every, folder=Path(folder), seed=options.seed)
    print(f"due {found.due}, {dict(found.states)}, attempts lost {found.lost_attempts}, under way {found.unfinished}")
    print(f"missing {found.missing[:10]}, twice {found.twice[:10]}")
    sys.exit(bool(found.missing or found.twice))


if __name__ == "__main__":
    main()
