"""The run of a bulk job: it plans the steps, has their partitions done, does some itself, and tells of the whole.

**The parent works.** Partitions become runs that any node may claim; the parent does one itself, and whenever it is
free it takes back one that nobody has begun. So a cluster with one free slot gets through as surely as one with many,
and a parent never waits for a slot that it occupies itself. What it waits for is partitions that run elsewhere.

**Promises.** A step is done when all its partitions are; steps that are done are not done again, by whichever run of
the instance. A parent that was lost finds its plan and its parts where they are. A partition that was given up fails
the parent, once the others have ended; a restart goes on with what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.bulk.checkpoint import Counts
from fencepost.bulk.definition import THREADS, Bulk, Step
from fencepost.bulk.instance import Instance, instance_of
from fencepost.bulk.partition import Assignment, Partition
from fencepost.bulk.places import surroundings_of
from fencepost.bulk.plan import Plan, Plans
from fencepost.bulk.watching import Watching
from fencepost.core.positions import packed, unpacked
from fencepost.core.runs import StopReason
from fencepost.core.states import RunState, is_terminal
from fencepost.core.verdicts import Cancel, Skip
from fencepost.errors import Hopeless, InvalidBulk, PartitionsFailed, Stopped
from fencepost.ledger.parts import Part, part_key, parts, take_back

if TYPE_CHECKING:
    from fencepost.engine.run import Run

_LOOK_EVERY_S = 0.25
_FOR_GOOD = (StopReason.CANCELLED, StopReason.TIMED_OUT)  # whoever is lost, or shut down, leaves its parts to the next

Ask = Callable[["Run", Mapping[str, Mapping[str, Any]]], None]
"""Enqueues runs of the job's parts on behalf of a run: their parameters by origin key."""


class StepResult(NamedTuple):
    """What became of a step, for hooks and deciders."""

    step: str
    counts: Counts
    was_done_before: bool = False


@dataclass(frozen=True, slots=True)
class Conductor:
    """Conducts the steps of one run."""

    bulk: Bulk
    run: Run
    ask: Ask
    cancel: Callable[[int], Any]

    def conduct(self) -> dict[str, Any]:
        """Do all steps, and return what became of them."""
        instance = instance_of(self.run)
        plans = Plans(self.bulk.job, instance, self.run)
        self._refuse_what_is_done(plans)
        if self.bulk.before is not None:
            self.bulk.before(self.run)
        results: dict[str, StepResult] = {}
        step: Step | None = self.bulk.steps[0]
        while step is not None:
            if step.name in results:
                raise InvalidBulk(f"bulk job {self.bulk.job!r}: step {step.name!r} would follow itself")
            results[step.name] = self._done(step, instance, plans)
            step = self._next(step, results[step.name])
        told = _told(results)
        if self.bulk.after is not None:
            self.bulk.after(self.run, results)
        return told

    def _refuse_what_is_done(self, plans: Plans) -> None:
        """Refuse an instance that another run has completed, so that nothing is done twice by mistake."""
        last = self.bulk.steps[-1]
        plan = plans.read(last) if self.bulk.decide is None else None
        if plan is not None and plan.done_by is not None and plan.done_by != self.run.id:
            raise Skip(
                f"what this run stands for was completed by run {plan.done_by}; to do it again all the same: "
                f"fencepost bulk again {plan.done_by} --reason '…'"
            )

    def _next(self, step: Step, result: StepResult) -> Step | None:
        if self.bulk.decide is not None:
            name = self.bulk.decide(step.name, result)
            return None if name is None else self.bulk.step(name)
        place = self.bulk.steps.index(step) + 1
        return self.bulk.steps[place] if place < len(self.bulk.steps) else None

    def _done(self, step: Step, instance: Instance, plans: Plans) -> StepResult:
        plan = plans.ready(step)
        if plan.done_by is not None:
            return StepResult(step.name, plan.counts, was_done_before=True)
        if step.before is not None:
            step.before(self.run)
        if step.work is not None:
            step.work(self.run)
        else:
            self._partitions(plan, plans, instance)
        counts = plans.counts(plan) if step.work is None else Counts()
        result = StepResult(step.name, counts)
        if step.after is not None:
            step.after(self.run, result)
        plans.end(plan, counts)
        return result

    # -- partitions ----------------------------------------------------------------------------------------------------

    def _partitions(self, plan: Plan, plans: Plans, instance: Instance) -> None:
        watching = Watching(self.run, plan, plans)
        if len(plan.slices) == 1:
            work(self.run, plan, plans, 0, watching.of(0))
        elif plan.step.options.over == THREADS:
            self._on_threads(plan, plans, watching)
        else:
            Parts(self, plan, plans, instance, watching).see_through()
        missing = [number for number, is_done in enumerate(plans.done(plan)) if not is_done]
        if missing:
            raise PartitionsFailed(
                f"step {plan.step.name!r}: partitions {', '.join(map(str, missing))} of {len(plan.slices)} are not "
                "done; run it again: it goes on with them"
            )
        watching.end()

    def _on_threads(self, plan: Plan, plans: Plans, watching: Watching) -> None:
        runtime = self.run.context.runtime
        left = [number for number, is_done in enumerate(plans.done(plan)) if not is_done]
        lock, errors = runtime.lock(), list[BaseException]()

        def take() -> int | None:
            with lock:
                return left.pop(0) if left and not errors else None

        def work_on() -> None:
            try:
                while (number := take()) is not None:
                    work(self.run, plan, plans, number, watching.of(number))
            except BaseException as error:  # noqa: BLE001 - raised by whoever waits
                with lock:
                    errors.append(error)

        tasks = [
            runtime.spawn(f"fencepost-partition-{number}", work_on) for number in range(min(len(left), self._threads()))
        ]
        for task in tasks:
            while task.is_alive():
                task.join(1.0)
        if errors:
            raise errors[0]

    def _threads(self) -> int:
        return 64


class Parts:
    """The partitions of a step as runs of their own."""

    def __init__(self, conductor: Conductor, plan: Plan, plans: Plans, instance: Instance, watching: Watching) -> None:
        self._run = conductor.run
        self._conductor = conductor
        self._plan = plan
        self._plans = plans
        self._instance = instance
        self._watching = watching
        self._keys: dict[int, str] = {}  # by partition: the origin key of the run that does it now
        self._gave_up: dict[int, str] = {}

    def see_through(self) -> None:
        """Return when every partition is done; raise when one was given up and the others have ended."""
        try:
            self._see_through()
        except Stopped as stopped:
            if stopped.reason in _FOR_GOOD:
                self._call_off()
            raise

    def _see_through(self) -> None:
        left = [number for number, is_done in enumerate(self._plans.done(self._plan)) if not is_done]
        without_run = self._without_run(left)
        mine, others = list(without_run)[:1], list(without_run)[1:]
        self._ask_for({number: without_run[number] for number in others})
        for number in mine:
            self._work(number)
        while True:
            self._run.check()
            found = parts(self._run.context.ledger(), list(self._keys.values()))
            waiting = self._sort(found)
            if not waiting and not self._keys:
                break
            taken = next((number for number in waiting if self._take_back(found, number)), None)
            if taken is not None:
                self._work(taken)
                continue
            self._watching.look()
            self._run.context.runtime.sleep(_LOOK_EVERY_S)
        if self._gave_up:
            raise PartitionsFailed(_failed(self._plan, self._gave_up))

    def _without_run(self, numbers: list[int]) -> dict[int, str]:
        """Note the runs of partitions that are under way; return the others, with the key that a new run would have.

        A parent that was lost finds its parts at work. It must not do theirs as well, or both would work in vain.
        """
        found: dict[int, str] = {}
        turns = dict.fromkeys(numbers, 0)
        while turns:
            keys = {number: part_key(self._run.id, self._plan.step.name, number, turns[number]) for number in turns}
            known = parts(self._run.context.ledger(), list(keys.values()))
            for number, key in keys.items():
                part = known.get(key)
                if part is not None and is_terminal(RunState(part.state)):
                    turns[number] += 1
                    continue
                (found if part is None else self._keys)[number] = key
                del turns[number]
        return found

    def _ask_for(self, keys: Mapping[int, str]) -> None:
        """Have new runs for these partitions."""
        if keys:
            self._conductor.ask(self._run, {key: self._params(number) for number, key in keys.items()})
            self._keys |= keys

    def _params(self, number: int) -> dict[str, Any]:
        exclusive = self._run.exclusive_key or f"run:{self._run.id}"
        return {
            "parent": self._run.id,
            "step": self._plan.step.name,
            "number": number,
            "instance": self._instance.name,
            "values": {name: packed(value) for name, value in self._instance.values.items()},
            "key": f"{exclusive}/{self._plan.step.name}#{number}",
        }

    def _sort(self, found: Mapping[str, Part]) -> list[int]:
        """Drop the parts that have ended, and return those that nobody has begun."""
        waiting = []
        for number, key in list(self._keys.items()):
            part = found.get(key)
            if part is None or is_terminal(RunState(part.state)):
                del self._keys[number]
                if part is not None and part.state in ("dead", "cancelled"):
                    self._gave_up[number] = f"run {part.run_id} is {part.state}: {part.error or 'see its history'}"
            elif part.state in ("queued", "waiting"):
                waiting.append(number)
        return waiting

    def _take_back(self, found: Mapping[str, Part], number: int) -> bool:
        part = found[self._keys[number]]
        if take_back(self._run.context.ledger(), part.run_id, why=f"run {self._run.id} does its partition itself"):
            del self._keys[number]
            return True
        return False

    def _work(self, number: int) -> None:
        try:
            work(self._run, self._plan, self._plans, number, self._watching.of(number))
        except Hopeless as error:  # the others go on all the same
            self._gave_up[number] = f"in run {self._run.id} itself: {error}"

    def _call_off(self) -> None:
        """The parent has to stop for good: so have its parts."""
        for part in parts(self._run.context.ledger(), list(self._keys.values())).values():
            if not is_terminal(RunState(part.state)):
                self._conductor.cancel(part.run_id)


def work(run: Run, plan: Plan, plans: Plans, number: int, watch: Callable[[Counts], None]) -> Counts:
    """Do one partition within `run`."""
    assignment = Assignment(
        plan.step, number, plan.slices[number], plan.name(number), plan.instance.name, len(plan.slices)
    )
    surroundings = surroundings_of(plan.step, run, plan.instance)
    partition = Partition(run, assignment, surroundings, watch=watch)
    return partition.work(lambda: plans.skipped(plan, without=number))


def work_part(bulk: Bulk, run: Run, params: Mapping[str, Any]) -> dict[str, int]:
    """Do the partition that a part's run stands for."""
    step = bulk.step(params["step"])
    values = {name: unpacked(value) for name, value in params["values"].items()}
    instance = Instance(params["instance"], params["parent"], values)
    plans = Plans(bulk.job, instance, run)
    plan = plans.read(step)
    if plan is None:
        raise Cancel("the plan it is part of is gone")
    watching = Watching(run, plan, plans)
    counts = work(run, plan, plans, params["number"], watching.of(params["number"]))
    watching.end()
    return counts._asdict()


def _told(results: Mapping[str, StepResult]) -> dict[str, Any]:
    total = Counts()
    for each in results.values():
        total = total.plus(each.counts)
    told: dict[str, Any] = dict(total._asdict())
    if len(results) > 1:
        told["steps"] = {name: each.counts._asdict() for name, each in results.items()}
    return told


def _failed(plan: Plan, gave_up: Mapping[int, str]) -> str:
    told = "; ".join(f"partition {number}: {why}" for number, why in sorted(gave_up.items())[:3])
    more = f" and {len(gave_up) - 3} more" if len(gave_up) > 3 else ""
    return (
        f"step {plan.step.name!r}: {len(gave_up)} of {len(plan.slices)} partitions were given up ({told}{more}); the "
        "others have landed. Mend the cause and restart the run: it goes on with these"
    )
