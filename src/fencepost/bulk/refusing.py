"""Refusing what would land twice: before a run of a bulk job begins, who else has done its windows, or a part of them.

See `fencepost.bulk.coalesced` for what is known of others, and decision 17 for why it is refused and not divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from fencepost.bulk.coalesced import has_ended, is_whole, narrower_runs, wider_runs, window_of
from fencepost.bulk.instance import Instance, instance_name
from fencepost.bulk.patience import asked
from fencepost.bulk.plan import Plans, StepPlan
from fencepost.core.tick import spelled_us
from fencepost.core.verdicts import Fail, Skip
from fencepost.engine.run import attempt_of
from fencepost.ledger import history

if TYPE_CHECKING:
    from fencepost.bulk.definition import Bulk
    from fencepost.engine.run import Run
    from fencepost.ledger.history import RunRow

_MOST_NAMED = 5


def refuse_what_a_wider_run_does(bulk: Bulk, run: Run) -> None:
    """Refuse a window that is part of a coalesced run's, unless that one has not begun and never will."""
    ledger = attempt_of(run).context.ledger()
    for row in asked(run, lambda: wider_runs(ledger, run.id)):
        wider = f"run {row.id}, which stands for several windows together"
        if not has_ended(row):
            raise Skip(f"this window is part of {wider}, and that has not ended")
        plan = _plan_of(bulk, run, row)
        if plan is not None and plan.complete_by is not None:
            raise Skip(
                f"this window was completed as part of {wider}; to do all of them again: "
                f"fencepost bulk again {row.id} --reason '…'"
            )
        if plan is not None:
            raise Fail(
                f"this window is part of {wider} and was given up in the middle: what of it has landed would land "
                f"twice. Go on with that one: fencepost retry {row.id}"
            )


def refuse_what_narrower_runs_did(bulk: Bulk, run: Run) -> None:
    """Refuse a coalesced run if one of its windows was begun by itself; skip it if all of them are complete."""
    ledger = attempt_of(run).context.ledger()
    found = asked(run, lambda: narrower_runs(ledger, run.id))
    if not found:
        return
    whole = asked(run, lambda: history.run(ledger, run.id))
    for row in found:
        if row.state == "running":
            raise Fail(
                f"run {row.id} is at a part of what this run stands for ({_spelled(row)}), so nothing was done. When "
                f"that has ended: fencepost retry {run.id}"
            )
    plans = {window_of(row): (row, _plan_of(bulk, run, row)) for row in found}
    begun = [(row, plan) for row, plan in plans.values() if plan is not None]
    if not begun:
        return
    if all(plan.complete_by is not None for _, plan in begun) and is_whole(whole, [row for row, _ in begun]):
        raise Skip(f"every window that this run stands for was completed by itself: {_named(begun)}")
    raise Fail(
        f"of the {whole.ticks} windows that this run stands for together, some were begun by themselves and would land "
        f"twice: {_named(begun)}. Nothing of this run was done. To do each of its windows by itself, leaving out what "
        f"is complete: {_backfill(whole)}"
    )


def _plan_of(bulk: Bulk, run: Run, row: RunRow) -> StepPlan | None:
    """Return the plan of what another run stands for, if it was begun."""
    name = asked(run, partial(instance_name, attempt_of(run).context.ledger(), row))
    return Plans(bulk.job, Instance(name, row.id, {}), run).begin(bulk.steps)


def _named(begun: Sequence[tuple[RunRow, StepPlan]]) -> str:
    told = [
        f"{_spelled(row)} (run {plan.complete_by or row.id}{'' if plan.complete_by else ', not complete'})"
        for row, plan in begun[:_MOST_NAMED]
    ]
    more = f" and {len(begun) - _MOST_NAMED} more" if len(begun) > _MOST_NAMED else ""
    return ", ".join(told) + more


def _spelled(row: RunRow) -> str:
    start, end = window_of(row)
    return f"{spelled_us(start)} to {spelled_us(end)}"


def _backfill(row: RunRow) -> str:
    first = row.due_at if row.first_due_at is None else row.first_due_at
    times = f"--from {spelled_us(first or 0)} --to {spelled_us(row.due_at or 0)}"
    return f"fencepost backfill {row.job} --schedule {row.schedule} {times} --reason '…'"
