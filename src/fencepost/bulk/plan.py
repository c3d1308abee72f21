"""The plan of a step: its slices, stored in the database of its effects, so that a later attempt has the same ones.

The row of the plan also records that the step is done, and by which run. That of the first step records when all steps
are done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.bulk.checkpoint import (
    Checkpoint,
    CheckpointMark,
    Counts,
    StoredCheckpoint,
    kept_at,
    partition_name,
    plan_name,
    total_counts,
)
from fencepost.bulk.labels import COMPLETE, label_of
from fencepost.bulk.patience import asked, patiently, steadily
from fencepost.bulk.places import surroundings_of, target_of_step
from fencepost.bulk.reader import WHOLE, Slice, Surroundings
from fencepost.core.positions import packed
from fencepost.core.tick import instant
from fencepost.engine.run import attempt_of
from fencepost.errors import CheckpointMismatch

if TYPE_CHECKING:
    from fencepost.bulk.definition import Step
    from fencepost.bulk.instance import Instance
    from fencepost.bulk.reader import Reader
    from fencepost.engine.run import Run

T = TypeVar("T")

_SLICES, _WINDOW, _COMPLETE, _ASKED_AT = "slices", "window", COMPLETE, "asked_at"  # in the row of a plan


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A step's slices and its progress. `done_by` is the run that completed it; None while it is not done."""

    job: str
    instance: Instance
    step: Step
    slices: Sequence[Slice]
    mark: CheckpointMark
    counts: Counts
    done_by: int | None = None

    def name(self, number: int) -> str:
        """Return the name of a partition's checkpoint."""
        return partition_name(self.job, self.instance.name, self.step.name, number)

    @property
    def complete_by(self) -> int | None:
        """The run that completed the whole instance, in the plan of its first step; None while it is not complete."""
        return complete_by(self.mark)


@dataclass(frozen=True, slots=True)
class StepProgress:
    """The progress of a step's partitions: their checkpoints, None for a partition that has not begun."""

    kept: Sequence[StoredCheckpoint | None]

    @property
    def done(self) -> list[bool]:
        """Whether each partition is done."""
        return [each is not None and each.mark.is_done for each in self.kept]

    @property
    def counts(self) -> Counts:
        """The sum over all partitions."""
        return total_counts(self.kept)


class Plans:
    """Makes, reads and completes the plans of one instance, for a run."""

    def __init__(self, job: str, instance: Instance, run: Run) -> None:
        self._job = job
        self._instance = instance
        self._run = run

    def begin(self, steps: Sequence[Step]) -> StepPlan | None:
        """Return the plan of the first step, if there is one. From then on, use the window stored in the plan."""
        first = steps[0]
        self._instance = replace(self._instance, name=self._label(steps))
        kept = self._steadily(first, self._checkpoint(first, of_any_shape=True).read)
        if kept is None:
            return None
        self._refuse_anothers(first, kept)
        # A complete instance stays complete even if the code has changed. An incomplete one must be continued.
        found = self._plan(first, kept) if complete_by(kept.mark) is not None else self.read(first)
        if found is None:
            return None
        window = found.mark.more.get(_WINDOW)
        self._instance = self._instance if window is None else self._instance.within(window)
        return replace(found, instance=self._instance)

    def _label(self, steps: Sequence[Step]) -> str:
        """Return the name of the instance in its checkpoints' names."""
        ledger, instance = attempt_of(self._run).context.ledger(), self._instance

        def look(label: str) -> Iterator[StoredCheckpoint]:
            for step in steps:
                name = plan_name(self._job, label, step.name)
                kept = self._steadily(step, Checkpoint(name, None, attempt_of(self._run).writer()).read)
                if kept is not None:
                    yield kept

        at_us = instance.asked_at_us
        return asked(self._run, lambda: label_of(ledger, self._job, instance.name, look, asked_at_us=at_us))

    def ready(self, step: Step) -> StepPlan:
        """Return the plan of a step, and make it if there is none."""
        found = self.read(step)
        if found is not None:
            return found
        slices = patiently(self._run, lambda: self._divided(step))
        more = {_SLICES: slices, _WINDOW: self._instance.window, **self._asked_at}
        checkpoint, mark = self._checkpoint(step), CheckpointMark(run=self._run.id, more=more)
        self._steadily(step, lambda tx: checkpoint.begin(tx, mark))
        made = self.read(step)
        if made is None:
            raise CheckpointMismatch(f"the plan {checkpoint.name!r} was removed while it was made; retry the run")
        return made

    @property
    def _asked_at(self) -> dict[str, int]:
        at_us = self._instance.asked_at_us
        return {} if at_us is None else {_ASKED_AT: at_us}

    def _refuse_anothers(self, first: Step, kept: StoredCheckpoint) -> None:
        """Refuse the plan of another run with the same number: our work would count as done."""
        then_us, now_us = kept.mark.more.get(_ASKED_AT), self._instance.asked_at_us
        if then_us is None or now_us is None or then_us == now_us:
            return
        raise CheckpointMismatch(
            f"the checkpoint {self._checkpoint(first).name!r} belongs to another run with this number, requested at "
            f"{instant(then_us):%Y-%m-%d %H:%M:%S} UTC in this ledger before it was restored, or in a copy of it. "
            "Nothing was written. If that run will not be continued: "
            f"fencepost bulk forget {self._run.id} --reason '…', then fencepost retry {self._run.id}"
        )

    def read(self, step: Step) -> StepPlan | None:
        """Return the plan of a step, or None if there is none yet."""
        kept = self._steadily(step, self._checkpoint(step).read)
        return None if kept is None else self._plan(step, kept)

    def progress(self, plan: StepPlan) -> StepProgress:
        """Return the progress of the partitions."""
        names = [plan.name(number) for number in range(len(plan.slices))]
        writer = attempt_of(self._run).writer()
        return StepProgress(self._steadily(plan.step, lambda tx: kept_at(tx, names, writer)))

    def done(self, plan: StepPlan) -> list[bool]:
        """Return whether each partition is done."""
        return self.progress(plan).done

    def skipped(self, plan: StepPlan, *, without: int) -> int:
        """Return how many items the other partitions have skipped."""
        kept = self.progress(plan).kept
        return sum(each.counts.skipped for number, each in enumerate(kept) if each is not None and number != without)

    def end(self, plan: StepPlan, counts: Counts) -> None:
        """Record that the step is done."""
        self._note(plan.step, lambda mark: replace(mark, is_done=True, run=self._run.id), counts)

    def complete(self, first: Step) -> None:
        """Record in the plan of the first step that all steps and hooks are done."""
        self._note(first, lambda mark: replace(mark, more={**mark.more, _COMPLETE: self._run.id}), None)

    def _note(self, step: Step, change: Callable[[CheckpointMark], CheckpointMark], counts: Counts | None) -> None:
        """Change the row of a plan. Repeating it has no further effect."""
        checkpoint = self._checkpoint(step)

        def work(tx: Any) -> None:
            kept = checkpoint.read(tx)
            if kept is None:
                raise CheckpointMismatch(f"the plan {checkpoint.name!r} was removed while it was worked on")
            changed = change(kept.mark)
            if changed != kept.mark:
                numbered = replace(changed, number=kept.mark.number + 1)
                checkpoint.move(tx, kept.mark, numbered, kept.counts if counts is None else counts)

        self._steadily(step, work)

    def _steadily(self, step: Step, work: Callable[[Any], T]) -> T:
        return steadily(self._run, work, target_of_step(step, self._run))

    def _divided(self, step: Step) -> list[Slice]:
        if step.read is None:
            return []
        surroundings = surroundings_of(step, self._run, self._instance)
        for place, values in enumerate(step.options.given or ({},)):
            warn = surroundings.warn if place == 0 else lambda _: None  # the other warnings would be the same
            step.read.check(replace(surroundings, values={**surroundings.values, **values}, warn=warn))
        slices = self._slices(step, step.read, surroundings)
        return [_with_expected(each, step.read, surroundings) for each in slices]

    def _slices(self, step: Step, read: Reader, surroundings: Surroundings) -> list[Slice]:
        options = step.options
        if options.given:
            return [{"values": packed_values(values)} for values in options.given]
        # If the input is not divided, a broken record is found only when it is read, and all before it lands.
        return list(read.slices(options.partitions, surroundings)) if options.partitions > 1 else [WHOLE]

    def _plan(self, step: Step, kept: StoredCheckpoint) -> StepPlan:
        slices = kept.mark.more.get(_SLICES, [])
        done_by = kept.mark.run if kept.mark.is_done else None
        return StepPlan(self._job, self._instance, step, slices, kept.mark, kept.counts, done_by)

    def _checkpoint(self, step: Step, *, of_any_shape: bool = False) -> Checkpoint:
        shape = None if of_any_shape else "work" if step.read is None else step.read.shape
        return Checkpoint(plan_name(self._job, self._instance.name, step.name), shape, attempt_of(self._run).writer())


def complete_by(mark: CheckpointMark) -> int | None:
    """Return the run that completed the whole instance, from the mark of its first step's plan."""
    return mark.more.get(_COMPLETE)


def _with_expected(part: Slice, read: Reader, surroundings: Surroundings) -> Slice:
    """Return a slice with an estimate of its number of items, if there is one."""
    expected = None if "expected" in part else read.expected(part, surroundings)
    return part if expected is None else {**part, "expected": expected}


def packed_values(values: Any) -> dict[str, Any]:
    """Return the values of a listed partition as JSON."""
    return {str(name): packed(value) for name, value in values.items()}
