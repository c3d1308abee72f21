"""Catching a mutant: by the simulator, seed after seed, or by tests in a session of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.mutants.planting import Mutant

ROOT = Path(__file__).parents[2]
_NOTICED = re.compile(r"^NOTICED (.+) (\w+)$", re.MULTILINE)
_FAILED = 1
_LONGEST_S = 300.0


class Caught(NamedTuple):
    """What noticed a mutant, `after` how much; nothing, if it survived."""

    by: str | None
    after: str
    took_s: float


def caught(mutant: Mutant, *, seeds: int) -> Caught:
    """Try a mutant with what is to catch it."""
    began_at = time.monotonic()
    by, after = by_tests(mutant, mutant.tests) if mutant.tests else by_simulation(mutant, seeds=seeds)
    return Caught(by, after, time.monotonic() - began_at)


def by_simulation(mutant: Mutant, *, seeds: int, first: int = 0) -> tuple[str | None, str]:
    """Simulate seed after seed until a checker objects to one to which it does not object without the mutant."""
    from fencepost.testing.simulation.run import simulate

    false = 0
    for seed in range(first, first + seeds):
        found = simulate(seed, patch=mutant.planted).violations
        if not found:
            continue
        if simulate(seed).violations:
            false += 1
            continue
        return f"simulator: {found[0].checker}", f"{seed + 1 - first} seeds"
    return None, f"{seeds} seeds{f', {false} of which are red without it' if false else ''}"


def by_tests(mutant: Mutant, tests: Sequence[str]) -> tuple[str | None, str]:
    """Let the tests run with the mutant planted; one of them has to fail."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--tb", "line", "--timeout", "60", *tests],
        cwd=ROOT,
        env=os.environ | {"FENCEPOST_MUTANT": mutant.name},
        capture_output=True,
        text=True,
        timeout=_LONGEST_S,
        check=False,
    )
    noticed = _NOTICED.search(done.stdout)
    if done.returncode == _FAILED and noticed is not None:
        return "test", noticed[1].removeprefix("tests/")
    if done.returncode == 0:
        return None, ", ".join(tests)
    raise RuntimeError(f"the tests of {mutant.name} could not be run:\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}")


def all_green(tests: Sequence[str]) -> str | None:
    """Run tests without any mutant; return what they say if one fails: then it proves nothing that they fail."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb", "short"]
    done = subprocess.run([*command, *tests], cwd=ROOT, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stdout[-5000:]
