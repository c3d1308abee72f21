"""The checkers: each reads evidence and says which promise was broken, to whom, and when. Pure, one file for each.

`check_all` asks every one of them. What evidence does not tell they cannot judge; they then say nothing.
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
    """Ask every checker, and return all that they found."""
    return [violation for _, check in CHECKERS for violation in check(evidence)]
