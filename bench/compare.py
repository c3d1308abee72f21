"""Is it slower than it was? Two commits of this repository, side by side in one run.

    python bench/compare.py [OLD] [NEW] [--json] [--rounds 11] [--seconds 1] [--only threads fence …]

OLD is by default the commit in `bench/baseline.txt`, NEW the working tree. The code of each is put into a temporary
folder, and each is imported from there by a process of its own (`compare_side.py`); both use this environment, so it
must have what both commits need. Per workload there is one private PostgreSQL as shipped (fsync and synchronous_commit
on), in which each side has tables of its own, and the sides take turns: old new, new old, old new, … A round is about
a second of each side, in several short turns, for a disk or a neighbour may be slow for just as long as a turn lasts.
So other load on the machine slows both alike.

- *threads*, *processes*: no-op runs a second of one node, on threads and on worker processes.
- *fence*: transactions a second with one insert behind the fence of a run.
- *bulk*: rows a second of a bulk job that writes with COPY.
- *leases-postgresql*, *leases-sqlite*: acquire+release pairs a second of one client.
- *renewals*: the 99th percentile of the time a renewal takes, while eight threads ask for runs and a node executes
  them, all in one process. A round is one turn of three seconds each here, for a percentile needs many.

A round gives one ratio, NEW over OLD. Printed is their median, and its 95 % interval by order statistics: whatever the
distribution, the true median lies between the k-th smallest and the k-th largest of n ratios with probability
1 − 2 · P(B < k) for a binomial B of n throws of a coin, and k is the largest for which that is at least 95 %. With
eleven rounds that is from the second smallest to the second largest (98.8 %). With fewer than six rounds there is no
such k; then it is from the smallest to the largest, which is less than 95 %.

It ends with status 1, and names them, where a median is below 0.95 or an interval does not reach 0.97; for renewals,
where less is better, where the median is above 1.1. A commit that is not here ends it with status 2.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stores import in_project_environment

in_project_environment()

from testbed.postgres import Postgres  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MEDIAN, REACH, SLOWEST_RENEWALS = 0.95, 0.97, 1.1
CONFIDENCE = 0.95
SIDES = ("old", "new")
MOST_ROWS = 1_000_000
WORKING_TREE = "the working tree"


@dataclass(frozen=True)
class Workload:
    """What is measured, and its unit. `warm_up` is how much to do first; it is a count, if so named.

    `turns` is how many turns of a side make a round; together they last `times` the requested seconds.
    """

    unit: str
    warm_up: float = 0.2
    is_count: bool = False
    turns: int = 4
    times: float = 1.0
    less_is_better: bool = False


WORKLOADS = {
    "threads": Workload("runs/s", warm_up=2_000, is_count=True, turns=2),
    "processes": Workload("runs/s", warm_up=2_000, is_count=True, turns=2),
    "fence": Workload("transactions/s"),
    "bulk": Workload("rows/s", warm_up=20_000, is_count=True, turns=2),
    "leases-postgresql": Workload("pairs/s"),
    "leases-sqlite": Workload("pairs/s"),
    "renewals": Workload("ms", turns=1, times=3, less_is_better=True, warm_up=0.5),
}


def main() -> None:
    options = _options()
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory(prefix="fencepost-compare-") as folder:
        sources = {side: checked_out(getattr(options, side), Path(folder) / side) for side in SIDES}
        _say(options, f"{shown(options.old)} → {shown(options.new)}, {options.rounds} rounds; load {load}")
        results = {name: compared(name, sources, Path(folder), options) for name in options.only}
    missed = [shortfall for name in results for shortfall in shortfalls(name, results[name])]
    if options.json:
        commits = {side: shown(getattr(options, side)) for side in SIDES}
        print(json.dumps({**commits, "rounds": options.rounds, "load_before": load, **results, "missed": missed}))
    if missed:
        sys.exit("slower than before: " + "; ".join(missed))


# -- the two commits -------------------------------------------------------------------------------------------------


def checked_out(commit: str | None, folder: Path) -> Path:
    """Put the code of a commit, or of the working tree, into a folder of its own; return where it is imported from."""
    source = folder / "src"
    if commit is None:
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        return source
    folder.mkdir()
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
    return source


def shown(commit: str | None) -> str:
    """Return the commit's short hash."""
    return WORKING_TREE if commit is None else commit[:10]


class Side:
    """A process with the code of one commit, which takes turns on command."""

    def __init__(self, side: str, workload: str, url: str, source: Path, log: IO[str]) -> None:
        self._name, self._log = f"{side}, {workload}", log
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(source), str(HERE))),
            "FENCEPOST_URL": url,
            "COMPARE_PREFIX": f"{side}_",
            "COMPARE_SOURCE": str(source),
        }
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "compare_side.py"), workload],
            cwd=source.parent,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )

    def until_ready(self) -> None:
        """Wait until it can take turns."""
        self._answer()

    def turn(self, amount: float) -> float:
        """Let it do so much, and return the figure."""
        assert self._process.stdin
        self._process.stdin.write(f"{amount}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout
        answer = self._process.stdout.readline()
        if not answer:
            self._log.seek(0)
            raise RuntimeError(f"the side ended ({self._name}):\n{self._log.read()[-3000:]}")
        return answer.strip()

    def close(self) -> None:
        """Let it end, and see that it did."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


# -- turns -----------------------------------------------------------------------------------------------------------


def compared(name: str, sources: dict[str, Path], folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Let both sides take turns with one workload."""
    workload = WORKLOADS[name]
    figures: dict[str, list[float]] = {side: [] for side in SIDES}
    with sides_of(name, sources, folder) as sides:
        amount = fitting(workload, sides, options.seconds)
        for number in range(options.rounds):
            for side, figure in one_round(workload, sides, amount, number).items():
                figures[side].append(figure)
    ratios = [new / old for old, new in zip(figures["old"], figures["new"], strict=True)]
    result = {
        "ratio": round(statistics.median(ratios), 3),
        "interval": [round(each, 3) for each in interval(ratios)],
        "unit": workload.unit,
        **{side: round(statistics.median(figures[side]), 2) for side in SIDES},
        "ratios": [round(each, 3) for each in ratios],
    }
    low, high = result["interval"]
    _say(
        options,
        f"{name:18} {result['ratio']:.3f} ({low:.3f} to {high:.3f})   {result['old']:>10,.1f} → {result['new']:>10,.1f}"
        f" {workload.unit}{'   MISSED' if shortfalls(name, result) else ''}",
    )
    return result


def one_round(workload: Workload, sides: dict[str, Side], amount: float, number: int) -> dict[str, float]:
    """Let the sides alternate, and return the figure of each: all that it did over all the time it took."""
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    for turn in range(number, number + workload.turns):
        for side in SIDES if turn % 2 == 0 else reversed(SIDES):
            rates[side].append(sides[side].turn(amount))
    mean = statistics.harmonic_mean if workload.is_count else statistics.fmean  # the same count, or the same time
    return {side: mean(figures) for side, figures in rates.items()}


@contextmanager
def sides_of(name: str, sources: dict[str, Path], folder: Path) -> Iterator[dict[str, Side]]:
    """Both sides on one server, ready."""
    with ExitStack() as opened:
        server = opened.enter_context(nullcontext() if name == "leases-sqlite" else Postgres())
        sides = {}
        for side in SIDES:
            log = opened.enter_context((folder / f"{side}-{name}.log").open("w+", encoding="utf-8"))
            place = f"sqlite:///{folder}/{side}.db" if server is None else server.url
            sides[side] = Side(side, name, f"{place}?prefix={side}_", sources[side], log)
            opened.callback(sides[side].close)
        if server is not None and name == "bulk":
            _make_rows(server.url)
        for each in sides.values():
            each.until_ready()
        yield sides


def fitting(workload: Workload, sides: dict[str, Side], seconds: float) -> float:
    """Warm both up, and return how much to do in a turn: the same for both, also where it is a count."""
    for side in sides.values():
        side.turn(workload.warm_up)
    if not workload.is_count:
        return seconds * workload.times / workload.turns
    slower = min(side.turn(workload.warm_up) for side in sides.values())
    return min(max(round(slower * seconds / workload.turns), 1), MOST_ROWS)


def _make_rows(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE source (id bigint PRIMARY KEY, amount bigint NOT NULL)")
        connection.execute(f"INSERT INTO source SELECT n, n * 7 FROM generate_series(1, {MOST_ROWS}) n")
        connection.execute("VACUUM ANALYZE source")


# -- what it means ---------------------------------------------------------------------------------------------------


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return between which of the ratios their true median lies with 95 %; see above."""
    count, ordered = len(ratios), sorted(ratios)
    below, place = 0.0, 0  # `below` is the probability that the median is less than the ratio at `place`
    while 2 * (below + math.comb(count, place) / 2**count) <= 1 - CONFIDENCE:
        below += math.comb(count, place) / 2**count
        place += 1
    place = max(place, 1)
    return ordered[place - 1], ordered[count - place]


def shortfalls(name: str, result: dict[str, Any]) -> list[str]:
    """Say where a workload is slower than it was."""
    ratio, (_, high) = result["ratio"], result["interval"]
    if WORKLOADS[name].less_is_better:
        return [f"{name} at {ratio:.3f} ×, more than {SLOWEST_RENEWALS}"] if ratio > SLOWEST_RENEWALS else []
    if ratio < MEDIAN:
        return [f"{name} at {ratio:.3f}, less than {MEDIAN}"]
    return [f"{name} at {high:.3f} at the most, which does not reach {REACH}"] if high < REACH else []


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    baseline = (HERE / "baseline.txt").read_text(encoding="utf-8").strip()
    parser.add_argument("old", nargs="?", default=baseline, help="a commit; by default the one in bench/baseline.txt")
    parser.add_argument("new", nargs="?", help="a commit; by default the working tree")
    parser.add_argument("--json", action="store_true", help="print the result as the last line, as JSON")
    parser.add_argument("--rounds", type=int, default=11, help="how many ratios there are; fewer say little")
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long a side is at work in a round")
    parser.add_argument("--only", nargs="+", default=list(WORKLOADS), choices=WORKLOADS, help="only these workloads")
    options = parser.parse_args()
    for side in SIDES:
        setattr(options, side, _resolved(parser, getattr(options, side)))
    return options


def _resolved(parser: argparse.ArgumentParser, commit: str | None) -> str | None:
    """Return the whole hash: a branch may move while this runs."""
    if commit is None:
        return None
    command = ["git", "rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}"]
    found = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if found.returncode:
        parser.error(f"there is no commit {commit!r} here (in a shallow clone, 'git fetch --unshallow' brings it)")
    return found.stdout.strip()


def _say(options: argparse.Namespace, line: str) -> None:
    print(line, file=sys.stderr if options.json else sys.stdout, flush=True)


if __name__ == "__main__":
    main()
