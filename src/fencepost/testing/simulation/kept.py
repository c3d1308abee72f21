"""Seeds that once failed, with the faults that it took: a list that tests replay, so that no bug comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fencepost.testing.simulation.outcome import Patch, SeedOutcome
from fencepost.testing.simulation.run import simulate
from fencepost.testing.simulation.scenario import SimulatedFault


@dataclass(frozen=True, slots=True)
class KeptSeed:
    """One of them, and what was found."""

    seed: int
    faults: tuple[SimulatedFault, ...]
    found: str

    def replay(self) -> SeedOutcome:
        """Simulate it once more."""
        return simulate(self.seed, faults=self.faults)

    def to_json(self) -> str:
        """Write it as one line."""
        faults = [fault.to_json() for fault in self.faults]
        return json.dumps({"seed": self.seed, "found": self.found, "faults": faults})

    @staticmethod
    def from_json(text: str) -> KeptSeed:
        """Read a line."""
        read = json.loads(text)
        return KeptSeed(read["seed"], tuple(SimulatedFault(**fault) for fault in read["faults"]), read["found"])


def kept_in(path: Path) -> Iterator[KeptSeed]:
    """Read a list; none if there is no file."""
    if path.exists():
        yield from (KeptSeed.from_json(line) for line in path.read_text().splitlines() if line.strip())


def keep(path: Path, found: KeptSeed) -> None:
    """Add to a list, unless it is in there."""
    if found.to_json() not in {each.to_json() for each in kept_in(path)}:
        with path.open("a") as file:
            file.write(found.to_json() + "\n")


def shrunk(failed: SeedOutcome, *, patch: Patch | None = None) -> SeedOutcome:
    """Drop faults, one after the other, as long as the same checker still reports a violation."""
    checker = failed.violations[0].checker
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for number in range(len(failed.plan.faults) - 1, -1, -1):
            fewer = failed.plan.faults[:number] + failed.plan.faults[number + 1 :]
            tried = simulate(failed.seed, faults=fewer, patch=patch)
            if any(violation.checker == checker for violation in tried.violations):
                failed, is_smaller = tried, True
    return failed
