"""The checkers. Each reads evidence and reports broken promises. They are pure functions, in one file for each promise.

`check_all` runs all of them. If the evidence lacks what a checker needs, the checker reports nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fencepost.proof.checkers import (
    acknowledged_writes,
    attempts_on_record,
    bulk_once,
    effects_once,
    every_due_time,
    fair_ends,
    limits,
    lock_register,
    missed_ticks,
    nobody_can,
    one_run_per_tick,
    one_trace,
    prompt_start,
    request_keys,
    rising_grants,
    rising_writes,
    run_graph,
)
from fencepost.proof.evidence import Evidence, Violation

Check = Callable[[Evidence], Iterator[Violation]]

CHECKERS: tuple[tuple[str, Check], ...] = tuple(
    (module.NAME, module.check)
    for module in (
        rising_writes,
        one_run_per_tick,
        rising_grants,
        every_due_time,
        run_graph,
        acknowledged_writes,
        bulk_once,
        effects_once,
        request_keys,
        limits,
        prompt_start,
        one_trace,
        lock_register,
        attempts_on_record,
        missed_ticks,
        nobody_can,
        fair_ends,
    )
)


def check_all(evidence: Evidence) -> list[Violation]:
    """Run every checker, and return all violations."""
    return [violation for _, check in CHECKERS for violation in check(evidence)]
