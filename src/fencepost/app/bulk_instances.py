"""The progress of bulk jobs, repeating complete work and forgetting unfinished work: ``app.operations.bulk``.

Checkpoints are in the databases that jobs write to. Only the code knows which these are, so this needs the bulk
jobs themselves. A run that failed needs none of this: `retry` continues where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.app.numbers import existing_run_id
from fencepost.app.people import reason_given
from fencepost.app.records import (
    BulkAgainRecord,
    BulkForgottenRecord,
    BulkRecord,
    BulkStepRecord,
    CountsRecord,
    PartitionRecord,
)
from fencepost.app.scoped import acting, actor, run_check
from fencepost.app.users_code import made_with
from fencepost.bulk.forgetting import StepSeen, completed_by, forget, live_runs, see
from fencepost.bulk.instance import again_key, instance_name
from fencepost.bulk.labels import PART
from fencepost.core.nearest import suggestion
from fencepost.core.noted import Noted
from fencepost.core.rights import HumanAct
from fencepost.errors import AlreadyRequested, ConfigurationError, NoSuchRun
from fencepost.ledger import history
from fencepost.ledger.journal import journal
from fencepost.ledger.parts import part_place, parts_of
from fencepost.ledger.requests import retry

if TYPE_CHECKING:
    from fencepost.app.bulk import BulkJob
    from fencepost.bulk.checkpoint import StoredCheckpoint
    from fencepost.bulk.definition import Bulk
    from fencepost.core.rights import Scope
    from fencepost.ledger.history import RunRow
    from fencepost.ledger.ledger import Ledger


class _Instance(NamedTuple):
    """The instance that a run of a bulk job works on, and its progress."""

    row: RunRow
    job: BulkJob
    bulk: Bulk
    name: str
    steps: Sequence[StepSeen]


class BulkInstances:
    """The instances of an application's bulk jobs. Each instance is work to be done once."""

    def __init__(self, ledger: Ledger, scope: Scope, bulks: Mapping[str, BulkJob], wake: Callable[[], None]) -> None:
        """Look where `bulks` write to: those that `scope` shows. `wake` wakes this process's node."""
        self._ledger = ledger
        self._scope = scope
        self._bulks = bulks
        self._wake = wake

    def show(self, run_id: int) -> BulkRecord:
        """Return the steps and partitions of a run's instance, with the progress of each and the run that does it.

        The progress is read from the checkpoints, which commit with the effects. For a part's run, this shows the
        """
        found = self._instance(run_id)
        states = _RunStates(self._ledger, found.row.id)
        steps = tuple(_step_record(step, states) for step in found.steps)
        return BulkRecord(found.row.id, found.job.name, found.row.state, found.name, steps)

    def again(self, run_id: int, *, by: str, reason: str) -> BulkAgainRecord:
        """Repeat a complete instance from the beginning, in a new run with the same parameters and window.

        Effects that have landed stay, and land a second time; use this for jobs where that is allowed. The earlier
        checkpoints stay as well: the new run has its own.
        """
        found = self._instance(run_id)
        self._scope.require(HumanAct.REPEAT_BULK, found.row.job)
        who, why = actor(self._scope, by), reason_given(reason)
        self._refuse_live(found)
        if completed_by(found.steps) is None:
            raise ConfigurationError(
                f"what run {found.row.id} stands for is not complete, so there is nothing to do again: go on with it "
                f"by fencepost retry {found.row.id}, or have it begin anew by fencepost bulk forget"
            )
        key = again_key(found.row.id, self._ledger.runtime.new_id()[:12])
        check = run_check(self._scope, HumanAct.REPEAT_BULK)
        try:
            with acting(self._scope):
                new = retry(self._ledger, found.row.id, by=who, reason=why, origin_key=key, check=check)
        except AlreadyRequested as error:
            raise _under_way(error.run_id, found.row.id) from None
        self._wake()
        return BulkAgainRecord(new, found.row.id)

    def forget(self, run_id: int, *, by: str, reason: str) -> BulkForgottenRecord:
        """Delete the checkpoints of an unfinished instance, so that its next run starts over: for changed code.

        Effects that have landed stay, and the next run reads all of the input again.
        """
        found = self._instance(run_id)
        self._scope.require(HumanAct.FORGET_BULK, found.row.job)
        who, why = actor(self._scope, by), reason_given(reason)
        self._refuse_live(found)
        if (done_by := completed_by(found.steps)) is not None:
            raise ConfigurationError(
                f"what run {found.row.id} stands for was completed by run {done_by}, and is not forgotten: nothing "
                "would keep it from being done twice by mistake. To do it again on purpose: fencepost bulk again"
            )
        written = sum(step.counts.written for step in found.steps)
        # The journal first: it may be in another database, and no act may go unrecorded.
        detail = {"instance": found.name, "written": written}
        about: dict[str, Any] = {"job": found.job.name, "run_id": found.row.id, "by": who, "reason": why}
        with acting(self._scope):
            journal(self._ledger, what=Noted.BULK_FORGOTTEN, detail=detail, **about)
        removed = forget(found.bulk, found.name, self._ledger)
        return BulkForgottenRecord(found.row.id, found.name, removed, written)

    def _instance(self, run_id: int) -> _Instance:
        """Return the instance of a run. For a part's run, this is the instance of its parent."""
        allowed = self._scope.visible
        row = history.run(self._ledger, existing_run_id(run_id), jobs=allowed)
        job = self._bulk_of(row)
        if row.job.endswith(PART):
            row = history.run(self._ledger, json.loads(row.params)["parent"], jobs=allowed)
        bulk = made_with(job, job.declared.params_of(row))
        name = instance_name(self._ledger, row)
        return _Instance(row, job, bulk, name, see(bulk, name, self._ledger))

    def _bulk_of(self, row: RunRow) -> BulkJob:
        """Return the bulk job of a run, or of the run's parent."""
        for each in self._bulks.values():
            if row.job in each.names:
                return each
        known = suggestion(row.job, self._bulks)
        raise ConfigurationError(f"run {row.id} is one of {row.job!r}, which is no bulk job here; {known}")

    def _refuse_live(self, found: _Instance) -> None:
        live = live_runs(self._ledger, found.job.names, found.name)
        if live:
            raise _under_way(live[0], found.row.id)


class _RunStates:
    """The states of runs that have done partitions. Each is read once."""

    def __init__(self, ledger: Ledger, parent: int) -> None:
        self._ledger = ledger
        parts = parts_of(ledger, parent)
        self._states: dict[int, str | None] = {part.run_id: part.state for part in parts}
        self._by_place = {part_place(part.origin_key): part.run_id for part in parts}  # the latest run of each place

    def state(self, run_id: int) -> str | None:
        """Return the state of a run; None if it is no longer on record."""
        if run_id not in self._states:
            try:
                self._states[run_id] = history.run(self._ledger, run_id).state
            except NoSuchRun:
                self._states[run_id] = None
        return self._states[run_id]

    def of(self, step: str, number: int, kept: StoredCheckpoint | None) -> int | None:
        """Return the run that does a partition: the one that wrote last, or the one that will start it."""
        return self._by_place.get((step, number)) if kept is None else kept.mark.run


def _under_way(run_id: int, of_run: int) -> ConfigurationError:
    return ConfigurationError(
        f"run {run_id} of what run {of_run} stands for has not ended; wait for it, or cancel it: "
        f"fencepost cancel {run_id}"
    )


def _step_record(step: StepSeen, states: _RunStates) -> BulkStepRecord:
    return BulkStepRecord(
        name=step.name,
        state=_state(step),
        done_by=step.done_by,
        other_code=step.is_of_other_code,
        counts=CountsRecord.of(step.counts),
        partitions=tuple(
            _partition_record(step, number, part, kept, states)
            for number, (part, kept) in enumerate(zip(step.slices, step.partitions, strict=True))
        ),
    )


def _partition_record(
    step: StepSeen, number: int, part: Mapping[str, Any], kept: StoredCheckpoint | None, states: _RunStates
) -> PartitionRecord:
    run_id = states.of(step.name, number, kept)
    return PartitionRecord(
        number=number,
        slice=dict(part),
        position=None if kept is None else kept.mark.after,
        done=kept is not None and kept.mark.is_done,
        counts=None if kept is None else CountsRecord.of(kept.counts),
        run_id=run_id,
        run_state=None if run_id is None else states.state(run_id),
    )


def _state(step: StepSeen) -> str:
    if step.plan is None:
        return "not begun"
    return "begun" if step.done_by is None else "done"
