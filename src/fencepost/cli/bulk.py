"""``fencepost bulk``: how far a bulk job is in the databases it writes to; and having it begin anew."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from fencepost.cli.applications import AppSpec, Reached, made_with, reached
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import By, Json, LedgerUrlOption, NeededReason, RunId, needed_reason, who
from fencepost.cli.output import counted, draw_fields, draw_rows, print_json, say
from fencepost.cli.run_rows import beginning
from fencepost.core.noted import Noted
from fencepost.errors import AlreadyRequested, ConfigurationError, NoSuchRun

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fencepost.app.bulk import BulkJob
    from fencepost.app.operations import Operations
    from fencepost.bulk.checkpoint import StoredCheckpoint
    from fencepost.bulk.definition import Bulk
    from fencepost.bulk.forgetting import StepSeen
    from fencepost.ledger.history import RunRow

app = typer.Typer(
    help="How far a bulk job is, partition by partition; do again what is complete, forget what cannot go on.",
    epilog="Checkpoints are kept in the databases that jobs write to, and only the code knows which these are: name it "
    "with --app, $FENCEPOST_APP or app in fencepost.toml. A run that failed needs none of this: fencepost retry RUN "
    "goes on where it stopped.",
    no_args_is_help=True,
)

_MOST_SHOWN = 60


class BulkRun(NamedTuple):
    """A run of a bulk job, what it stands for, and how far that is."""

    row: RunRow
    job: BulkJob
    bulk: Bulk
    instance: str
    steps: Sequence[StepSeen]


@app.command()
def show(run: RunId, *, spec: AppSpec = "", ledger: LedgerUrlOption = "", as_json: Json = False) -> int:
    """Show the steps and partitions of what a run stands for: where each is, what it counts, and which run does it.

    It is read from the checkpoints, which commit with the effects. A part's run shows the whole it belongs to.

    Example: fencepost bulk show 42
    """
    with reached(spec, ledger) as here:
        seen = _seen(here, run)
        runs = RunStates(here.operations, seen.row.id)
        documents = [_step_fields(step, runs) for step in seen.steps]
    if as_json:
        print_json({"run": seen.row.id, "job": seen.job.name, "instance": seen.instance, "steps": documents})
        return Exit.OK
    draw_fields({"run": f"{seen.row.id} of {seen.job.name}: {seen.row.state}", "instance": seen.instance})
    for step, document in zip(seen.steps, documents, strict=True):
        _draw_step(step, document)
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
    """Do once more what is complete, from the beginning: a new run, with the same parameters and window.

    What has landed stays, and lands once more; so this is for jobs whose effects may. The checkpoints of before stay
    as they are, too: the new run has its own.

    Example: fencepost bulk again 42 --reason 'the rates of that day were wrong'
    """
    from fencepost.bulk.forgetting import completed_by  # noqa: PLC0415 - it loads the engine
    from fencepost.bulk.instance import again_key  # noqa: PLC0415
    from fencepost.ledger.requests import retry  # noqa: PLC0415

    why = needed_reason(reason)
    with reached(spec, ledger) as here:
        seen = _seen(here, run)
        _refuse_live(here, seen)
        if completed_by(seen.steps) is None:
            raise ConfigurationError(
                f"what run {seen.row.id} stands for is not complete, so there is nothing to do again: go on with it by "
                f"fencepost retry {seen.row.id}, or have it begin anew by fencepost bulk forget"
            )
        key = again_key(seen.row.id, here.ledger.runtime.new_id()[:12])
        try:
            new = retry(here.ledger, seen.row.id, by=who(by), reason=why, origin_key=key)
        except AlreadyRequested as error:
            raise _under_way(error.run_id, seen.row.id) from None
    if as_json:
        print_json({"run": new, "again": seen.row.id})
    else:
        print(f"run {new} does again what run {seen.row.id} stands for; see: fencepost show {new} --follow")
    return Exit.OK


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
    """Forget how far an unfinished job is, so that its next run begins anew: for checkpoints of code that has changed.

    What has landed stays, and the next run reads all of the input again.

    Example: fencepost bulk forget 42 --reason 'the query has another key now'
    """
    from fencepost.bulk.forgetting import completed_by, forget  # noqa: PLC0415 - it loads the engine
    from fencepost.ledger.journal import journal  # noqa: PLC0415

    why = needed_reason(reason)
    with reached(spec, ledger) as here:
        seen = _seen(here, run)
        _refuse_live(here, seen)
        if (done_by := completed_by(seen.steps)) is not None:
            raise ConfigurationError(
                f"what run {seen.row.id} stands for was completed by run {done_by}, and is not forgotten: nothing "
                "would keep it from being done twice by mistake. To do it again on purpose: fencepost bulk again"
            )
        written = sum(step.counts.written for step in seen.steps)
        # First the journal: it may be in another database, and nothing that is done here is to be silent.
        detail = {"instance": seen.instance, "written": written}
        about: dict[str, Any] = {"job": seen.job.name, "run_id": seen.row.id, "by": who(by), "reason": why}
        journal(here.ledger, what=Noted.BULK_FORGOTTEN, detail=detail, **about)
        removed = forget(seen.bulk, seen.instance, here.ledger)
    if as_json:
        print_json({"run": seen.row.id, "instance": seen.instance, "checkpoints": removed, "written": written})
    elif not removed:
        print(f"nothing is known of what run {seen.row.id} stands for; it begins anew in any case")
    else:
        print(
            f"forgot {counted(removed, 'checkpoint')}; the {counted(written, 'item')} that were written stay, and the "
            f"next run begins anew: fencepost retry {seen.row.id}"
        )
    return Exit.OK


# -- what a run stands for ---------------------------------------------------------------------------------------------


def _seen(here: Reached, run_id: int) -> BulkRun:
    """Look at what a run stands for; a part's run leads to the run it is part of."""
    from fencepost.bulk.forgetting import see  # noqa: PLC0415 - it loads the engine
    from fencepost.bulk.instance import instance_name  # noqa: PLC0415
    from fencepost.bulk.labels import PART  # noqa: PLC0415
    from fencepost.ledger import history  # noqa: PLC0415

    row = history.run(here.ledger, run_id)
    job = here.bulk_of(row)
    if row.job.endswith(PART):
        row = history.run(here.ledger, json.loads(row.params)["parent"])
    bulk = made_with(job, job.declared.params_of(row))
    instance = instance_name(here.ledger, row)
    return BulkRun(row, job, bulk, instance, see(bulk, instance, here.ledger))


def _refuse_live(here: Reached, seen: BulkRun) -> None:
    from fencepost.bulk.forgetting import live_runs  # noqa: PLC0415 - it loads the engine

    live = live_runs(here.ledger, seen.job.names, seen.instance)
    if live:
        raise _under_way(live[0], seen.row.id)


def _under_way(run_id: int, asked: int) -> ConfigurationError:
    return ConfigurationError(
        f"run {run_id} of what run {asked} stands for has not ended; wait for it, or cancel it: "
        f"fencepost cancel {run_id}"
    )


class RunStates:
    """The states of runs that have done partitions; each is asked for once."""

    def __init__(self, ops: Operations, parent: int) -> None:
        self._ops = ops
        parts = ops.parts(parent)
        self._states: dict[int, str | None] = {part.run_id: part.state for part in parts}
        self._by_place = {(part.step, part.number): part.run_id for part in parts}  # the latest of each place

    def state(self, run_id: int) -> str | None:
        """Return the state of a run; None if it is no longer on record."""
        if run_id not in self._states:
            try:
                self._states[run_id] = self._ops.run(run_id).state
            except NoSuchRun:
                self._states[run_id] = None
        return self._states[run_id]

    def of(self, step: str, number: int, kept: StoredCheckpoint | None) -> int | None:
        """Return the run that does a partition: the one that moved it last, or the one that is to begin with it."""
        if kept is not None:
            return kept.mark.run
        return self._by_place.get((step, number))


# -- how it is shown ---------------------------------------------------------------------------------------------------


def _step_fields(step: StepSeen, runs: RunStates) -> dict[str, Any]:
    return {
        "name": step.name,
        "state": _state(step),
        "done_by": step.done_by,
        "other_code": step.is_of_other_code,
        "counts": step.counts._asdict(),
        "partitions": [
            _partition_fields(step, number, part, kept, runs)
            for number, (part, kept) in enumerate(zip(step.slices, step.partitions, strict=True))
        ],
    }


def _partition_fields(
    step: StepSeen, number: int, part: Mapping[str, Any], kept: StoredCheckpoint | None, runs: RunStates
) -> dict[str, Any]:
    run_id = runs.of(step.name, number, kept)
    return {
        "number": number,
        "slice": dict(part),
        "position": None if kept is None else kept.mark.after,
        "done": kept is not None and kept.mark.is_done,
        "counts": None if kept is None else kept.counts._asdict(),
        "run": run_id,
        "run_state": None if run_id is None else runs.state(run_id),
    }


def _state(step: StepSeen) -> str:
    if step.plan is None:
        return "not begun"
    if step.done_by is not None:
        return "done"
    return "begun"


def _draw_step(step: StepSeen, document: Mapping[str, Any]) -> None:
    told = {
        "not begun": "not begun",
        "done": f"done by run {step.done_by}",
        "begun": f"{step.done} of {counted(len(step.slices), 'partition')} done" if step.slices else "begun",
    }[document["state"]]
    say(f"step {step.name}: {told}; {_counted(document['counts'])}")
    if step.is_of_other_code:
        say("  the code has changed since: it cannot be gone on with; see fencepost bulk forget --help")
    shown = document["partitions"][:_MOST_SHOWN]
    if shown:
        columns = ("partition", "slice", "position", "state", "read", "written", "filtered", "skipped", "run")
        draw_rows(columns, map(_partition_cells, shown), spare=("slice", "filtered", "read"))
    if len(document["partitions"]) > _MOST_SHOWN:
        say(f"… and {len(document['partitions']) - _MOST_SHOWN} more: --json has all of them")


def _partition_cells(document: Mapping[str, Any]) -> tuple[str, ...]:
    counts = document["counts"] or {}
    numbers = (str(counts.get(name, "")) for name in ("read", "written", "filtered", "skipped"))
    state = "done" if document["done"] else "waits" if document["counts"] is None else "begun"
    run = "" if document["run"] is None else f"{document['run']} ({document['run_state'] or 'pruned'})"
    position = _short(document["position"])
    return (str(document["number"]), _short(document["slice"]), position, state, *numbers, run)


def _short(value: Any) -> str:
    from fencepost.core.identity import canonical_json  # noqa: PLC0415 - only this shows them

    return "" if value in (None, {}) else beginning(canonical_json(value))


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in ("read", "written", "filtered", "skipped"))
