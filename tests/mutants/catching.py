"""Catching a mutant: by the simulator, seed after seed, or by tests in a session of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count as count_from
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from fencepost.testing.simulation import scenario, simulate
from fencepost.testing.simulation.lives.plan import is_life
from fencepost.testing.simulation.scenario import bulk_work
from tests.mutants.planting import Mutant

BULK = "bulk"
LIVES = "lives"
STEPPED = "stepped"
_HAVE = {
    "": lambda _: True,
    BULK: lambda seed: bulk_work(seed) is not None,
    LIVES: is_life,
    STEPPED: lambda seed: not is_life(seed) and scenario(seed).is_stepped,
}
ROOT = Path(__file__).parents[2]
_PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "60")
_NOTICED = re.compile(r"^NOTICED (.+) (?:setup|call|teardown)$", re.MULTILINE)
_ALL_PASSED, _SOME_FAILED = 0, 1


class Caught(NamedTuple):
    """What noticed a mutant, `after` how much; nobody, if it survived."""

    by: str | None
    after: str
    took_s: float


def caught(mutant: Mutant, *, seeds: int) -> Caught:
    """Try a mutant with what is to catch it."""
    began_at = time.monotonic()
    by, after = by_tests(mutant) if mutant.tests else by_simulation(mutant, seeds=seeds)
    return Caught(by, after, time.monotonic() - began_at)


def by_simulation(mutant: Mutant, *, seeds: int, first: int = 0) -> tuple[str | None, str]:
    """Simulate seed after seed until a checker objects to one to which none objects without the mutant."""
    for count, seed in enumerate(islice(_seeds(mutant, first), seeds), 1):
        found = simulate(seed, patch=mutant.planted).violations
        if found and not simulate(seed).violations:
            return f"simulation: {found[0].checker}", f"{count} seed{'s' if count > 1 else ''}"
    return None, f"{seeds} seeds"


def _seeds(mutant: Mutant, first: int) -> Iterator[int]:
    """Return the seeds of clusters that have what the bug is in."""
    return (seed for seed in count_from(first) if _HAVE[mutant.among](seed))


def by_tests(mutant: Mutant) -> tuple[str | None, str]:
    """Let its tests run with the mutant planted; one of them has to fail."""
    done = _session("-x", "-p", "tests.mutants.plugin", "--tb", "line", *mutant.tests, mutant=mutant.name)
    noticed = _NOTICED.search(done.stdout)
    if done.returncode == _SOME_FAILED and noticed is not None:
        return noticed[1].removeprefix("tests/"), "1 test"
    if done.returncode == _ALL_PASSED:
        return None, f"{len(mutant.tests)} tests"
    raise RuntimeError(f"the tests of {mutant.name} could not be run:\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}")


def all_green(tests: Sequence[str]) -> str | None:
    """Run tests without any mutant; return what they say if one fails."""
    done = _session("--tb", "short", *tests) if tests else None
    return None if done is None or done.returncode == _ALL_PASSED else done.stdout[-5000:]


def collected(tests: Sequence[str]) -> str | None:
    """Look whether there are such tests; return what pytest says if not."""
    done = _session("--collect-only", *tests)
    return None if done.returncode == _ALL_PASSED else done.stderr[-3000:]


def _session(*arguments: str, mutant: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [*_PYTEST, *arguments],
        cwd=ROOT,
        env=environment | {"FENCEPOST_MUTANT": mutant},
        capture_output=True,
        text=True,
        check=False,
    )
