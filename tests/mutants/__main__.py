"""Try every mutant and print what caught it: ``python -m tests.mutants [name …]``."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.mutants.catalogue import MUTANTS
from tests.mutants.catching import ROOT, Caught, all_green, by_simulation, caught
from tests.mutants.planting import Mutant

_SEEDS = 5000
_TOGETHER = 2


def main() -> int:
    """Return 1 if one survives."""
    asked = _asked()
    chosen = [MUTANTS[name] for name in asked.names or MUTANTS]
    if asked.tested:
        chosen = [each for each in chosen if each.tests]
    if asked.one:
        print(json.dumps(_tried_here(chosen[0], asked)))
        return 0
    if not asked.simulate and (trouble := all_green(sorted({test for each in chosen for test in each.tests}))):
        print(f"a test fails without any mutant, so nothing is proved by its failing:\n{trouble}")
        return 1
    return _all_tried(chosen, asked)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help="which mutants; all, if none is named")
    parser.add_argument("--seeds", type=int, default=_SEEDS, help="how many seeds the simulator may need")
    parser.add_argument("--first", type=int, default=0, help="the seed to begin with")
    parser.add_argument("--simulate", action="store_true", help="try the simulator on all, whatever their tests are")
    parser.add_argument("--tested", action="store_true", help="only those that have a test")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--together", type=int, default=_TOGETHER, help="how many at a time")
    return parser.parse_args()


def _tried_here(mutant: Mutant, asked: argparse.Namespace) -> Caught:
    if not asked.simulate:
        return caught(mutant, seeds=asked.seeds)
    began_at = time.monotonic()
    by, after = by_simulation(mutant, seeds=asked.seeds, first=asked.first)
    return Caught(by, after, time.monotonic() - began_at)


def _all_tried(chosen: list[Mutant], asked: argparse.Namespace) -> int:
    """Try them in processes of their own, a few at a time, and print a line for each as it is done."""
    began_at = time.monotonic()
    survived = []
    with ThreadPoolExecutor(asked.together) as pool:
        tries = {pool.submit(_tried_apart, each, asked): each for each in chosen}
        for done in as_completed(tries):
            mutant, outcome = tries[done], done.result()
            if outcome.by is None:
                survived.append(mutant.name)
            print(_line(mutant, outcome), flush=True)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutants caught in {time.monotonic() - began_at:.0f} s")
    if survived:
        print(f"survived: {', '.join(sorted(survived))}")
    return 1 if survived else 0


def _tried_apart(mutant: Mutant, asked: argparse.Namespace) -> Caught:
    if mutant.tests and not asked.simulate:
        return caught(mutant, seeds=asked.seeds)
    command = [sys.executable, "-m", "tests.mutants", mutant.name, "--one", "--seeds", str(asked.seeds)]
    command += ["--first", str(asked.first), *(["--simulate"] if asked.simulate else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{mutant.name} could not be tried:\n{done.stderr[-3000:]}")
    return Caught(*json.loads(done.stdout.splitlines()[-1]))


def _line(mutant: Mutant, outcome: Caught) -> str:
    how = f"{outcome.by}, {outcome.after}" if outcome.by else f"SURVIVED {outcome.after}"
    return f"{mutant.name:36} {mutant.wrong:84} {how} ({outcome.took_s:.1f} s)"


if __name__ == "__main__":
    sys.exit(main())
