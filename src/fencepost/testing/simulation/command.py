"""The command: simulate many seeds on several processors, and report violations; exit code 1 if there are any."""

from __future__ import annotations

import argparse
import gc
import hashlib
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from pathlib import Path
from typing import cast

from fencepost.testing.simulation.kept import KeptSeed, keep, shrunk
from fencepost.testing.simulation.ledger_file import remove_files
from fencepost.testing.simulation.lives.plan import ACTS
from fencepost.testing.simulation.outcome import SeedOutcome
from fencepost.testing.simulation.run import simulate
from fencepost.testing.simulation.scenario import FAULTS
from fencepost.testing.simulation.timeline import timeline

_CHUNK = 20  # seeds between two reports of the progress
_STINT = 100  # seeds per process: a new process is faster
_COMMAND = "python -m fencepost.testing.simulation"


@dataclass(slots=True)
class SeedTally:
    """The results of some seeds."""

    seeds: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    hashes: dict[int, str] = field(default_factory=dict)
    failed: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)

    def add(self, outcome: SeedOutcome) -> None:
        """Count one."""
        self.seeds += 1
        self.counts += outcome.counts
        self.hashes[outcome.seed] = outcome.trace_hash
        if outcome.violations:
            self.failed.append((outcome.seed, tuple(map(str, outcome.violations))))

    def merge(self, other: SeedTally) -> None:
        """Add the counts of another tally."""
        self.seeds += other.seeds
        self.counts += other.counts
        self.hashes |= other.hashes
        self.failed += other.failed

    @property
    def trace(self) -> str:
        """A hash of all traces, in the order of seeds."""
        return hashlib.sha256(repr(sorted(self.hashes.items())).encode()).hexdigest()[:16]


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    asked = _parser().parse_args(arguments)
    _be_quiet()
    kinds = None if asked.faults is None else frozenset(asked.faults)
    if asked.seed is not None:
        return _one(asked.seed, kinds, is_verbose=asked.verbose)
    first, _, last = asked.seeds.rpartition(":")
    seeds = range(int(first or 0), int(last))
    began_at = time.monotonic()
    tally = SeedTally()
    for part in _parts(seeds, kinds, asked.jobs):
        tally.merge(part)
        _print_progress(tally, len(seeds), time.monotonic() - began_at)
    _report(tally, time.monotonic() - began_at)
    for seed, violations in sorted(tally.failed)[: asked.shrink]:
        _explain(seed, violations, kinds, asked.keep)
    return 1 if tally.failed else 0


def _parts(seeds: range, kinds: frozenset[str] | None, jobs: int) -> Iterator[SeedTally]:
    if jobs == 1:
        for stint in _cut(seeds, _STINT):
            yield from (_chunk(chunk, kinds) for chunk in _cut(stint, _CHUNK))
            gc.collect()
            gc.freeze()  # the rest is held by stacks that are never resumed: another collection would free nothing
        return
    simulate(seeds[0], kinds=kinds)  # forked processes inherit what is loaded and compiled now
    yield from _by_stints(_cut(seeds, _STINT), kinds, jobs)


def _by_stints(stints: list[range], kinds: frozenset[str] | None, jobs: int) -> Iterator[SeedTally]:
    """Simulate seeds in several concurrent processes, each for a limited number of seeds.

    The stack of a crashed task is never resumed and so never freed. It is freed with the process.
    They are forked, and nothing here uses threads: so that is safe.
    """
    waiting = list(reversed(stints))
    busy: dict[Connection, BaseProcess] = {}
    while waiting or busy:
        while waiting and len(busy) < jobs:
            ours, theirs = get_context("fork").Pipe(duplex=False)
            process = get_context("fork").Process(target=_stint, args=(theirs, waiting.pop(), kinds))
            process.start()
            theirs.close()
            busy[ours] = process
        for ready in wait(list(busy)):
            try:
                yield cast("Connection", ready).recv()
            except EOFError:
                _ended(busy.pop(cast("Connection", ready)))


def _ended(process: BaseProcess) -> None:
    process.join()
    if process.exitcode:
        raise RuntimeError(f"a process that simulated ended with exit code {process.exitcode}")


def _cut(seeds: range, size: int) -> list[range]:
    return [seeds[start : start + size] for start in range(0, len(seeds), size)]


def _stint(results: Connection, seeds: range, kinds: frozenset[str] | None) -> None:
    """Simulate some seeds in this process, and send the results chunk by chunk.

    Garbage is not collected before the process ends: that would take longer than it is worth.
    """
    Finalize(None, remove_files, exitpriority=10)  # such a process does not run `atexit` handlers
    for chunk in _cut(seeds, _CHUNK):
        results.send(_chunk(chunk, kinds))
    results.close()


def _be_quiet() -> None:
    """Disable logging: refusals of stale writers are expected here."""
    logging.getLogger("fencepost").addHandler(logging.NullHandler())


def _chunk(seeds: range, kinds: frozenset[str] | None) -> SeedTally:
    tally = SeedTally()
    gc.disable()
    for seed in seeds:
        tally.add(simulate(seed, kinds=kinds))
    return tally


def _one(seed: int, kinds: frozenset[str] | None, *, is_verbose: bool) -> int:
    outcome = simulate(seed, kinds=kinds)
    if is_verbose:
        for line in timeline(outcome):
            print(line)
    else:
        for fault in outcome.plan.faults:
            print(f"fault: {fault.to_json()}")
    for violation in outcome.violations:
        print(f"VIOLATION {violation}")
    print(f"seed {seed}: {len(outcome.violations)} violations, trace {outcome.trace_hash}")
    return 1 if outcome.violations else 0


def _explain(seed: int, violations: tuple[str, ...], kinds: frozenset[str] | None, path: Path | None) -> None:
    only = f" --faults {' '.join(repr(kind) for kind in sorted(kinds))}" if kinds is not None else ""
    print(f"\nseed {seed}: {violations[0]}")
    print(f"  replay: {_COMMAND} --seed {seed} -v{only}")
    failed = simulate(seed, kinds=kinds)
    if not failed.violations:
        print("  it did not happen again: something here does not depend on the seed alone")
        return
    smallest = shrunk(failed)
    print(f"  it takes {len(smallest.plan.faults)} of {len(failed.plan.faults)} faults:")
    for fault in smallest.plan.faults:
        print(f"    {fault.to_json()}")
    if path is not None:
        keep(path, KeptSeed(seed, smallest.plan.faults, violations[0][:300]))


def _print_progress(tally: SeedTally, of: int, took_s: float) -> None:
    if sys.stderr.isatty():
        print(f"\r{tally.seeds}/{of} seeds, {len(tally.failed)} failed, {took_s:.0f} s", end="", file=sys.stderr)


def _report(tally: SeedTally, took_s: float) -> None:
    if sys.stderr.isatty():
        print(file=sys.stderr)
    counts = tally.counts
    print(f"{tally.seeds} seeds in {took_s:.1f} s ({tally.seeds / max(took_s, 1e-9):.1f} per second)")
    whats = ("runs", "attempts", "effects", "takeovers", "statements", "switches", "bulk items", "bulk chunks")
    print("  " + ", ".join(f"{counts[what]} {what}" for what in whats))
    faults = {kind: counts[f"fault: {kind}"] for kind in dict.fromkeys((*FAULTS, *ACTS))}
    print(f"  {sum(faults.values())} faults: " + ", ".join(f"{count} {kind}" for kind, count in faults.items()))
    print(f"  {counts['lives']} of them lives, of {counts['days']} days together")
    print(f"  trace of all: {tally.trace}")
    print(f"  {len(tally.failed)} seeds broke a promise")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_COMMAND, description="Simulate clusters on virtual time, one per seed.")
    parser.add_argument("--seeds", default="0:1000", help="from:to, the last one left out (default 0:1000)")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("-v", "--verbose", action="store_true", help="with --seed: print everything that happened")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes to use (default 2)")
    parser.add_argument(
        "--faults", nargs="*", choices=sorted({*FAULTS, *ACTS}), help="only these kinds of faults; none: no faults"
    )
    parser.add_argument("--shrink", type=int, default=3, metavar="N", help="explain the first N failures (default 3)")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="add what was found to this list")
    return parser
