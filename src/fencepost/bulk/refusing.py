"""Refuses runs of a bulk job whose work would land twice.

Another run has done its windows, or a part of them: see `fencepost.bulk.coalesced` for how such runs are found, and
decision 17 for why a run is refused and not divided. Or the job is being renamed, and some of its checkpoints have the
other name already (`fencepost.ledger.begun_renames`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
from fencepost.ledger.begun_renames import begun_renames

if TYPE_CHECKING:
    from fencepost.bulk.definition import Bulk
    from fencepost.engine.run import Run
    from fencepost.ledger.history import RunRow

_MOST_NAMED = 5  # one sentence


def refuse_while_renamed(run: Run, names: Collection[str]) -> None:
    """Refuse a run of a job that has one of these names while a rename of it is begun and not done."""
    ledger = attempt_of(run).context.ledger()
    for each in asked(run, lambda: begun_renames(ledger)):
        if not each.names.isdisjoint(names):
            raise Fail(f"{each}. Nothing of this run was done; when the rename is done: fencepost retry {run.id}")


def refuse_what_a_wider_run_does(bulk: Bulk, run: Run) -> None:
    """Refuse a window that is part of a coalesced run, unless that run has ended without having begun."""
    ledger = attempt_of(run).context.ledger()
    for row in asked(run, lambda: wider_runs(ledger, run.id)):
        wider = f"run {row.id}, which covers several windows together"
        if not has_ended(row):
            raise Skip(f"this window is part of {wider} and has not ended")
        plan = _plan_of(bulk, run, row)
        if plan is not None and plan.complete_by is not None:
            raise Skip(
                f"this window was completed as part of {wider}; to do all of them again: "
                f"fencepost bulk again {row.id} --reason '…'"
            )
        if plan is not None:
            raise Fail(
                f"this window is part of {wider} and has stopped in the middle: items that have landed would land "
                f"twice. Continue that run: fencepost retry {row.id}"
            )


def refuse_what_narrower_runs_did(bulk: Bulk, run: Run) -> None:
    """Refuse a coalesced run if a separate run has begun one of its windows. Skip it if all windows are complete."""
    ledger = attempt_of(run).context.ledger()
    found = asked(run, lambda: narrower_runs(ledger, run.id))
    if not found:
        return
    whole = asked(run, lambda: history.run(ledger, run.id))
    for row in found:
        if row.state == "running":
            raise Fail(
                f"run {row.id} is working on a part of what this run covers ({_spelled(row)}), so nothing was done. "
                f"When it has ended: fencepost retry {run.id}"
            )
    plans = {window_of(row): (row, _plan_of(bulk, run, row)) for row in found}
    begun = [(row, plan) for row, plan in plans.values() if plan is not None]
    if not begun:
        return
    if all(plan.complete_by is not None for _, plan in begun) and is_whole(whole, [row for row, _ in begun]):
        raise Skip(f"separate runs have completed every window that this run covers: {_named(begun)}")
    raise Fail(
        f"separate runs have begun some of the {whole.ticks} windows that this run covers, which would land "
        f"twice: {_named(begun)}. Nothing of this run was done. To run its windows one by one, without those that are "
        f"complete: {_backfill(whole)}"
    )


def _plan_of(bulk: Bulk, run: Run, row: RunRow) -> StepPlan | None:
    """Return the plan of another run's instance, if it was begun."""
    name = asked(run, partial(instance_name, attempt_of(run).context.ledger(), row))
    return Plans(bulk.job, Instance(name, row.id, {}), run).begin(bulk.steps)


def _named(begun: Sequence[tuple[RunRow, StepPlan]]) -> str:
    windows = [
        f"{_spelled(row)} (run {plan.complete_by or row.id}{'' if plan.complete_by else ', not complete'})"
        for row, plan in begun[:_MOST_NAMED]
    ]
    more = f" and {len(begun) - _MOST_NAMED} more" if len(begun) > _MOST_NAMED else ""
    return ", ".join(windows) + more


def _spelled(row: RunRow) -> str:
    start, end = window_of(row)
    return f"{spelled_us(start)} to {spelled_us(end)}"


def _backfill(row: RunRow) -> str:
    first = row.due_at if row.first_due_at is None else row.first_due_at
    times = f"--from {spelled_us(first or 0)} --to {spelled_us(row.due_at or 0)}"
    return f"fencepost backfill {row.job} --schedule {row.schedule} {times} --reason '…'"
