"""The plan of a step: its slices, kept where its effects land, so that whoever goes on has the same ones.

The row of the plan also says when the step is done, and by which run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fencepost.bulk.checkpoint import Checkpoint, Counts, Kept, Mark, partition_name, plan_name
from fencepost.bulk.places import surroundings_of, target_of_step
from fencepost.bulk.reader import WHOLE, Slice
from fencepost.core.positions import packed
from fencepost.errors import CheckpointMismatch

if TYPE_CHECKING:
    from fencepost.bulk.definition import Step
    from fencepost.bulk.instance import Instance
    from fencepost.engine.run import Run


@dataclass(frozen=True, slots=True)
class Plan:
    """A step's slices, and how far the whole is. `done_by` is the run that ended it, None while it is not done."""

    job: str
    instance: Instance
    step: Step
    slices: Sequence[Slice]
    mark: Mark
    counts: Counts
    done_by: int | None = None

    def name(self, number: int) -> str:
        """Name the checkpoint of a partition."""
        return partition_name(self.job, self.instance.name, self.step.name, number)


class Plans:
    """Makes, reads and ends the plans of one instance, on behalf of a run."""

    def __init__(self, job: str, instance: Instance, run: Run) -> None:
        self._job = job
        self._instance = instance
        self._run = run

    def ready(self, step: Step) -> Plan:
        """Return the plan of a step, made if there is none."""
        found = self.read(step)
        if found is not None:
            return found
        slices = self._divided(step)
        checkpoint, mark = self._checkpoint(step), Mark(run=self._run.id, more={"slices": list(slices)})
        self._run.in_transaction(lambda tx: checkpoint.begin(tx, mark), target_of_step(step, self._run))
        made = self.read(step)
        if made is None:
            raise CheckpointMismatch(f"the plan {checkpoint.name!r} was removed while it was made; run it again")
        return made

    def read(self, step: Step) -> Plan | None:
        """Return the plan of a step, or None if there is none yet."""
        checkpoint = self._checkpoint(step)
        kept = self._run.in_transaction(checkpoint.read, target_of_step(step, self._run))
        return None if kept is None else self._plan(step, kept)

    def done(self, plan: Plan) -> list[bool]:
        """Say of each partition whether it is done."""
        kept = self._kept(plan)
        return [each is not None and each.mark.is_done for each in kept]

    def counts(self, plan: Plan) -> Counts:
        """Return the sum over all partitions."""
        total = Counts()
        for each in self._kept(plan):
            total = total if each is None else total.plus(each.counts)
        return total

    def skipped(self, plan: Plan, *, without: int) -> int:
        """Return how many items the other partitions have put aside."""
        kept = self._kept(plan)
        return sum(each.counts.skipped for number, each in enumerate(kept) if each is not None and number != without)

    def end(self, plan: Plan, counts: Counts) -> None:
        """Note that the step is done."""
        ended = replace(plan.mark, number=plan.mark.number + 1, is_done=True, run=self._run.id)
        checkpoint = self._checkpoint(plan.step)
        self._run.in_transaction(
            lambda tx: checkpoint.move(tx, plan.mark, ended, counts), target_of_step(plan.step, self._run)
        )

    def _kept(self, plan: Plan) -> list[Kept | None]:
        writer, target = self._run.writer(), target_of_step(plan.step, self._run)
        rows = [Checkpoint(plan.name(number), None, writer) for number in range(len(plan.slices))]
        return self._run.in_transaction(lambda tx: [each.read(tx) for each in rows], target)

    def _divided(self, step: Step) -> list[Slice]:
        if step.read is None:
            return []
        surroundings = surroundings_of(step, self._run, self._instance)
        step.read.check(surroundings)
        options = step.options
        if options.given:
            return [{"values": packed_values(values)} for values in options.given]
        return list(step.read.slices(options.partitions, surroundings)) if options.partitions > 1 else [WHOLE]

    def _plan(self, step: Step, kept: Kept) -> Plan:
        slices = kept.mark.more.get("slices", [])
        done_by = kept.mark.run if kept.mark.is_done else None
        return Plan(self._job, self._instance, step, slices, kept.mark, kept.counts, done_by)

    def _checkpoint(self, step: Step) -> Checkpoint:
        shape = "work" if step.read is None else step.read.shape
        return Checkpoint(plan_name(self._job, self._instance.name, step.name), shape, self._run.writer())


def packed_values(values: Any) -> dict[str, Any]:
    """Return the given values of a partition as JSON."""
    return {str(name): packed(value) for name, value in values.items()}
