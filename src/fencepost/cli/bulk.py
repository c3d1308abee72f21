"""``fencepost bulk``: the progress of a bulk job in the databases it writes to, and starting it over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from fencepost.cli.applications import AppSpec, reached
from fencepost.cli.documents import document
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import By, Json, LedgerUrlOption, NeededReason, RunId, needed_reason, who
from fencepost.cli.output import answer, counted, draw_fields, draw_rows, print_json, say
from fencepost.cli.run_rows import beginning

if TYPE_CHECKING:
    from fencepost.app.records import BulkStepRecord, CountsRecord, PartitionRecord

app = typer.Typer(
    help="The progress of a bulk job by partition; repeat a complete one, or make an unfinished one start over.",
    epilog="Checkpoints are in the databases that jobs write to, and only the code knows which these are: name it "
    "with --app, $FENCEPOST_APP or app in fencepost.toml. A run that failed needs none of this: fencepost retry RUN "
    "continues where it stopped.",
    no_args_is_help=True,
)

_MOST_SHOWN = 60  # partitions in the table; --json has all of them


@app.command()
def show(run: RunId, *, spec: AppSpec = "", ledger: LedgerUrlOption = "", as_json: Json = False) -> int:
    """Show the steps and partitions of a run's instance: the position and counts of each, and the run that does it.

    The progress is read from the checkpoints, which commit with the effects. For a part's run, this shows the whole

    Example: fencepost bulk show 42
    """
    with reached(spec, ledger) as here:
        found = here.operations.bulk.show(run)
    if as_json:
        print_json(document(found))
        return Exit.OK
    draw_fields({"run": f"{found.run_id} of {found.job}: {found.state}", "instance": found.instance})
    for step in found.steps:
        _draw_step(step)
    return Exit.OK


@app.command()
def again(
    run: RunId,
    *,
    reason: NeededReason = "",
    by: By = "",
    spec: AppSpec = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Repeat a complete instance from the beginning, in a new run with the same parameters and window.

    Effects that have landed stay, and land a second time; use this for jobs where that is allowed. The earlier
    checkpoints stay as well: the new run has its own.

    Example: fencepost bulk again 42 --reason 'the rates of that day were wrong'
    """
    why = needed_reason(reason)
    with reached(spec, ledger) as here:
        made = here.operations.bulk.again(run, by=who(by), reason=why)
    new = made.run_id
    sentence = f"run {new} does again what run {made.again_of} stands for; see: fencepost show {new} --follow"
    return answer(document(made), sentence, as_json=as_json)


@app.command()
def forget(
    run: RunId,
    *,
    reason: NeededReason = "",
    by: By = "",
    spec: AppSpec = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Delete the checkpoints of an unfinished instance, so that its next run starts over: for code that has changed.

    Effects that have landed stay, and the next run reads all of the input again.

    Example: fencepost bulk forget 42 --reason 'the query has another key now'
    """
    why = needed_reason(reason)
    with reached(spec, ledger) as here:
        gone = here.operations.bulk.forget(run, by=who(by), reason=why)
    if as_json:
        print_json(document(gone))
    elif not gone.checkpoints:
        print(f"nothing is known of what run {gone.run_id} stands for; it begins anew in any case")
    else:
        print(
            f"forgot {counted(gone.checkpoints, 'checkpoint')}; the {counted(gone.written, 'item')} that were written "
            f"stay, and the next run begins anew: fencepost retry {gone.run_id}"
        )
    return Exit.OK


# -- drawing -----------------------------------------------------------------------------------------------------------


def _draw_step(step: BulkStepRecord) -> None:
    say(f"step {step.name}: {_progress(step)}; {_counted(step.counts)}")
    if step.other_code:
        say("  the code has changed since: it cannot be gone on with; see fencepost bulk forget --help")
    shown = step.partitions[:_MOST_SHOWN]
    if shown:
        columns = ("partition", "slice", "position", "state", "read", "written", "filtered", "skipped", "run")
        draw_rows(columns, map(_partition_cells, shown), spare=("slice", "filtered", "read"))
    if len(step.partitions) > _MOST_SHOWN:
        say(f"… and {len(step.partitions) - _MOST_SHOWN} more: --json has all of them")


def _progress(step: BulkStepRecord) -> str:
    if step.state == "done":
        return f"done by run {step.done_by}"
    if step.state == "begun" and step.partitions:
        return f"{step.partitions_done} of {counted(len(step.partitions), 'partition')} done"
    return step.state


def _partition_cells(part: PartitionRecord) -> tuple[str, ...]:
    counts = part.counts
    numbers = ("",) * 4 if counts is None else (counts.read, counts.written, counts.filtered, counts.skipped)
    state = "done" if part.done else "waits" if counts is None else "begun"
    run = "" if part.run_id is None else f"{part.run_id} ({part.run_state or 'pruned'})"
    return (str(part.number), _short(part.slice), _short(part.position), state, *map(str, numbers), run)


def _short(value: Any) -> str:
    from fencepost.core.identity import canonical_json  # noqa: PLC0415 - only this shows them

    return "" if value in (None, {}) else beginning(canonical_json(value))


def _counted(counts: CountsRecord) -> str:
    named = {"read": counts.read, "written": counts.written, "filtered": counts.filtered, "skipped": counts.skipped}
    return ", ".join(f"{count} {name}" for name, count in named.items())
