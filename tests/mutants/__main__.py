"""Try every mutant, a few at a time, and print what caught each: ``python -m tests.mutants [name …]``.

The exit code is 1 if one survives, or if what is to catch them fails without any mutant, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

from tests.mutants.catalogue import MUTANTS
from tests.mutants.catching import ROOT, Caught, all_green, by_simulation, caught
from tests.mutants.planting import Mutant

_SEEDS = 5000
_TOGETHER = 2
_LINE = "{:36} {:104} {:30} {:>9}  {:>6}"


def main() -> int:
    """Return 1 if one survives."""
    asked = _asked()
    unknown = [name for name in asked.names if name not in MUTANTS]
    if unknown:
        print(f"there is no mutant {unknown[0]!r}; there are: {', '.join(MUTANTS)}")
        return 2
    chosen = [MUTANTS[name] for name in asked.names or MUTANTS]
    if asked.one:
        print(json.dumps(_tried_here(chosen[0], asked)))
        return 0
    return _all_tried(chosen, asked)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help="which mutants; all, if none is named")
    parser.add_argument("--seeds", type=int, default=_SEEDS, help="how many seeds the simulator may need")
    parser.add_argument("--first", type=int, default=0, help="the seed to begin with")
    parser.add_argument("--simulate", action="store_true", help="try the simulator on all, whatever their tests are")
    parser.add_argument("--together", type=int, default=_TOGETHER, help="how many at a time")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _tried_here(mutant: Mutant, asked: argparse.Namespace) -> Caught:
    if not asked.simulate:
        return caught(mutant, seeds=asked.seeds)
    began_at = time.monotonic()
    by, after = by_simulation(mutant, seeds=asked.seeds, first=asked.first)
    return Caught(by, after, time.monotonic() - began_at)


def _all_tried(chosen: Sequence[Mutant], asked: argparse.Namespace) -> int:
    """Try them in processes of their own, and print a line for each as it is done."""
    began_at = time.monotonic()
    print(_LINE.format("mutant", "what is wrong", "caught by", "after", "took"))
    with ThreadPoolExecutor(asked.together) as pool:
        tests = [] if asked.simulate else sorted({test for each in chosen for test in each.tests})
        green = pool.submit(all_green, tests)
        tries = {pool.submit(_tried_apart, each, asked): each for each in chosen}
        survived = [tries[done].name for done in as_completed(tries) if not _is_caught(tries[done], done)]
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutants caught in {time.monotonic() - began_at:.0f} s")
    if survived:
        print(f"survived: {', '.join(sorted(survived))}")
    if (trouble := green.result()) is not None:
        print(f"a test fails without any mutant, so that it fails proves nothing:\n{trouble}")
    return 1 if survived or trouble is not None else 0


def _is_caught(mutant: Mutant, done: Future[Caught]) -> bool:
    outcome = done.result()
    by = outcome.by or "NOBODY"
    print(_LINE.format(mutant.name, mutant.wrong, by, outcome.after, f"{outcome.took_s:.1f} s"), flush=True)
    return outcome.by is not None


def _tried_apart(mutant: Mutant, asked: argparse.Namespace) -> Caught:
    if mutant.tests and not asked.simulate:
        return caught(mutant, seeds=asked.seeds)  # in a session of its own
    command = [sys.executable, "-m", "tests.mutants", mutant.name, "--one", "--seeds", str(asked.seeds)]
    command += ["--first", str(asked.first), *(["--simulate"] if asked.simulate else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{mutant.name} could not be tried:\n{done.stderr[-3000:]}")
    return Caught(*json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    sys.exit(main())
