"""The run of a bulk job: it plans the steps, starts runs for their partitions, works on some itself, and reports.

**The parent works.** Partitions become runs that any node may claim. The parent works on one itself, and whenever it is
free it takes back one that has not begun. So a cluster with one free slot completes the job as surely as one with many,
and a parent never waits for a slot that it occupies itself. It waits only for partitions that run elsewhere.

**Promises.** A step is done when all its partitions are. No run of the instance repeats steps that are done. A parent
that was lost finds its plan and its parts when it is retried. If a partition has failed for good, the parent fails
after the others have ended. A restart continues with what is left, and waits for parts of the earlier run that are
still running. Parts end when their parent has ended, at the latest when they next report their progress.

**Not promised.** That hooks, and `work` of a step, are called once: if an attempt is lost after them, they are called
again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.bulk.checkpoint import Counts
from fencepost.bulk.definition import THREADS, Bulk, Step
from fencepost.bulk.instance import WINDOW, Instance, instance_of
from fencepost.bulk.partition import Partition, PartitionAssignment
from fencepost.bulk.patience import asked
from fencepost.bulk.places import surroundings_of, target_of_step
from fencepost.bulk.plan import Plans, StepPlan
from fencepost.bulk.pools import threads_for
from fencepost.bulk.refusing import refuse_what_a_wider_run_does, refuse_what_narrower_runs_did
from fencepost.bulk.watching import Watching, refuse_without_parent
from fencepost.core.identity import fitted
from fencepost.core.runs import StopReason
from fencepost.core.states import RunState, is_terminal
from fencepost.core.texts import beginning
from fencepost.core.verdicts import Cancel, Fail, Skip
from fencepost.engine.run import attempt_of
from fencepost.errors import FencepostError, Hopeless, PartitionsFailed, Stopped
from fencepost.ledger.parts import Part, part_key, parts, take_back, under_way

if TYPE_CHECKING:
    from fencepost.engine.run import Run
    from fencepost.ledger.ledger import Ledger

_LOOK_EVERY_S = 0.25  # how often the parent looks for parts that have ended
_MOST_TURNS = 3  # runs of one partition that may end without completing it
_LONGEST_WHY = 300  # one line of an error
_MOST_THREADS = 8  # each uses a connection to the source, and SQLAlchemy's pools have fifteen by default

Ask = Callable[["Run", Instance, Mapping[str, Mapping[str, Any]]], None]
"""Enqueues runs of the job's parts for a run: their parameters by origin key. Calling it twice changes nothing."""


class StepResult(NamedTuple):
    """The result of a step, for hooks and deciders."""

    step: str
    counts: Counts
    was_done_before: bool = False


@dataclass(frozen=True, slots=True)
class Conductor:
    """Conducts the steps of one run."""

    bulk: Bulk
    run: Run
    part_job: str
    ask: Ask
    cancel: Callable[[int], Any]

    def conduct(self) -> dict[str, Any]:
        """Run all steps, and return their counts."""
        bulk, run = self.bulk, self.run
        instance = asked(run, lambda: instance_of(run))
        plans = Plans(bulk.job, instance, run)
        self._refuse_what_is_complete(plans, is_again=instance.is_again)
        if bulk.before is not None:
            bulk.before(run)
        results = self._steps_done(plans)
        if bulk.after is not None:
            bulk.after(run, results)
        plans.complete(bulk.steps[0])
        return _total_counts(results)

    def _refuse_what_is_complete(self, plans: Plans, *, is_again: bool) -> None:
        """Refuse an instance that another run has completed, so that nothing is repeated by mistake."""
        plan = plans.begin(self.bulk.steps)
        run_id = None if plan is None else plan.complete_by
        if run_id is not None and run_id != self.run.id:
            raise Skip(
                f"the work of this run was completed by run {run_id}; to repeat it anyway: "
                f"fencepost bulk again {run_id} --reason '…'"
            )
        if plan is None:
            refuse_what_a_wider_run_does(self.bulk, self.run)
        if plan is None and not is_again:
            refuse_what_narrower_runs_did(self.bulk, self.run)

    def _steps_done(self, plans: Plans) -> dict[str, StepResult]:
        results: dict[str, StepResult] = {}
        step: Step | None = self.bulk.steps[0]
        while step is not None:
            if step.name in results:
                raise Fail(f"bulk job {self.bulk.job!r}: its decider would run step {step.name!r} a second time")
            results[step.name] = self._done(step, plans)
            step = self._next(step, results[step.name])
        return results

    def _next(self, step: Step, result: StepResult) -> Step | None:
        if self.bulk.decide is not None:
            name = self.bulk.decide(step.name, result)
            return None if name is None else self.bulk.step(name)
        place = self.bulk.steps.index(step) + 1
        return self.bulk.steps[place] if place < len(self.bulk.steps) else None

    def _done(self, step: Step, plans: Plans) -> StepResult:
        plan = plans.ready(step)
        if plan.done_by is not None:
            return StepResult(step.name, plan.counts, was_done_before=True)
        if step.before is not None:
            step.before(self.run)
        if step.work is not None:
            step.work(self.run)
            counts = Counts()
        else:
            counts = self._partitions(plan, plans)
        result = StepResult(step.name, counts)
        if step.after is not None:
            step.after(self.run, result)
        plans.end(plan, counts)
        return result

    # -- partitions ----------------------------------------------------------------------------------------------------

    def _partitions(self, plan: StepPlan, plans: Plans) -> Counts:
        watching = Watching(self.run, plan, plans)
        if len(plan.slices) == 1:
            work(self.run, plan, plans, 0, watching.of(0))
        elif plan.step.options.over == THREADS:
            self._on_threads(plan, plans, watching)
        else:
            PartitionRuns(self, plan, plans, watching).see_through()
        progress = plans.progress(plan)
        missing = [number for number, is_done in enumerate(progress.done) if not is_done]
        if missing:
            raise PartitionsFailed(
                f"step {plan.step.name!r}: partitions {', '.join(map(str, missing))} of {len(plan.slices)} are not "
                "done; retry the run: it continues with them"
            )
        watching.end()
        return progress.counts

    def _on_threads(self, plan: StepPlan, plans: Plans, watching: Watching) -> None:
        runtime = attempt_of(self.run).context.runtime
        left = _left(plans, plan)
        source, target = surroundings_of(plan.step, self.run, plan.instance).source, target_of_step(plan.step, self.run)
        threads = threads_for(source, target, wanted=min(len(left), _MOST_THREADS))
        lock, errors, gave_up = runtime.lock(), list[BaseException](), dict[int, str]()

        def take() -> int | None:
            with lock:
                return left.pop(0) if left and not errors else None

        def work_on() -> None:
            try:
                while (number := take()) is not None:
                    try:
                        work(self.run, plan, plans, number, watching.of(number))
                    except Hopeless as error:  # the other partitions continue
                        gave_up[number] = str(error)
            except BaseException as error:  # noqa: BLE001 - raised by the waiting thread
                with lock:
                    errors.append(error)

        tasks = [
            runtime.spawn(f"fencepost-partition-{number}", partial(copy_context().run, work_on))
            for number in range(threads)
        ]
        for task in tasks:
            while task.is_alive():
                task.join(1.0)
        if errors:
            raise errors[0]
        if gave_up:
            raise PartitionsFailed(_failed(plan, gave_up))


class PartitionRuns:
    """Runs each partition of a step as a run of its own."""

    def __init__(self, conductor: Conductor, plan: StepPlan, plans: Plans, watching: Watching) -> None:
        self._run = conductor.run
        self._conductor = conductor
        self._plan = plan
        self._plans = plans
        self._watching = watching
        self._keys: dict[int, str] = {}  # the origin key of the current run of each partition
        self._gave_up: dict[int, str] = {}
        self._turns: Counter[int] = Counter()

    def see_through(self) -> None:
        """Return when every partition is done. If one has failed for good, raise when the others have ended."""
        try:
            self._see_through()
        except Stopped as stopped:
            if stopped.reason == StopReason.CANCELLED:  # after a loss or shutdown, the next attempt needs the parts
                self._call_off()
            raise
        if self._gave_up:
            raise PartitionsFailed(_failed(self._plan, self._gave_up))

    def _see_through(self) -> None:
        without_run = self._without_run(_left(self._plans, self._plan))
        busy = self._busy(list(without_run))
        mine = next((number for number in without_run if number not in busy), None)
        self._ask_for({number: key for number, key in without_run.items() if number != mine})
        if mine is not None:
            self._work(mine)
        while self._keys:
            self._run.check()
            found = asked(self._run, lambda: parts(self._ledger, list(self._keys.values())))
            self._ask_again(self._ended(found))
            taken = self._taken_back(found)
            if taken is not None:
                self._work(taken)
            else:
                self._watching.look()
                attempt_of(self._run).context.runtime.sleep(_LOOK_EVERY_S)

    @property
    def _ledger(self) -> Ledger:
        return attempt_of(self._run).context.ledger()

    # -- starting runs -------------------------------------------------------------------------------------------------

    def _without_run(self, numbers: list[int]) -> dict[int, str]:
        """Note the partitions that have a live run; return the others, with the origin key for a new run.

        A parent that was lost finds its parts running. It must not work on the same partitions, or both would waste
        their work.
        """
        found: dict[int, str] = {}
        turns = dict.fromkeys(numbers, 0)
        while turns:
            keys = {number: part_key(self._run.id, self._plan.step.name, number, turns[number]) for number in turns}
            known = asked(self._run, partial(parts, self._ledger, list(keys.values())))
            for number, key in keys.items():
                part = known.get(key)
                if part is not None and is_terminal(RunState(part.state)):
                    turns[number] += 1
                    continue
                (found if part is None else self._keys)[number] = key
                del turns[number]
        return found

    def _busy(self, numbers: list[int]) -> set[int]:
        """Return the partitions on which a part of an earlier parent still works. Our runs will wait for it."""
        keys = {fitted(self._exclusive(number)): number for number in numbers}
        found = asked(self._run, lambda: under_way(self._ledger, self._conductor.part_job, list(keys)))
        return {keys[key] for key in found}

    def _ask_for(self, keys: Mapping[int, str]) -> None:
        """Enqueue new runs for these partitions."""
        if not keys:
            return
        wanted = {key: self._params(number) for number, key in keys.items()}
        asked(self._run, lambda: self._conductor.ask(self._run, self._plan.instance, wanted))
        self._keys |= keys

    def _params(self, number: int) -> dict[str, Any]:
        instance = self._plan.instance
        return {
            "parent": self._run.id,
            "step": self._plan.step.name,
            "number": number,
            "instance": instance.name,
            "values": {**instance.params, **dict(zip(WINDOW, instance.window, strict=True))},
            "key": self._exclusive(number),
        }

    def _exclusive(self, number: int) -> str:
        """Return the exclusive key of a partition's runs, which is the same for all parents."""
        whole = self._run.exclusive_key or f"bulk:{self._plan.job}@{self._plan.instance.name}"
        return f"{whole}/{self._plan.step.name}#{number}"

    # -- when they end -------------------------------------------------------------------------------------------------

    def _ended(self, found: Mapping[str, Part]) -> list[int]:
        """Remove parts that have ended, and return those that have not failed for good. They may not be done yet."""
        ended = []
        for number, key in list(self._keys.items()):
            part = found.get(key)
            if part is not None and not is_terminal(RunState(part.state)):
                continue
            del self._keys[number]
            if part is not None and part.state in ("dead", "cancelled"):
                self._gave_up[number] = f"run {part.run_id} is {part.state}: {part.error or 'see its history'}"
            else:
                ended.append(number)
        return ended

    def _ask_again(self, ended: list[int]) -> None:
        """Enqueue new runs for partitions that are not done although their run has ended, as after being taken back."""
        if not ended:
            return
        left = set(_left(self._plans, self._plan)) & set(ended)
        self._turns.update(left)
        for number in [each for each in left if self._turns[each] > _MOST_TURNS]:
            left.discard(number)
            self._gave_up[number] = f"{_MOST_TURNS} of its runs have ended without completing it"
        self._ask_for(self._without_run(sorted(left)))

    def _taken_back(self, found: Mapping[str, Part]) -> int | None:
        """Take back a part that has not begun. Begin with the last one, because other nodes claim the first ones."""
        why = f"run {self._run.id} works on its partition itself"
        for number, key in sorted(self._keys.items(), reverse=True):
            part = found.get(key)
            if part is None or part.state != RunState.QUEUED.value:
                continue
            if asked(self._run, partial(take_back, self._ledger, part, why=why)):
                del self._keys[number]
                return number
        return None

    def _work(self, number: int) -> None:
        try:
            work(self._run, self._plan, self._plans, number, self._watching.of(number))
        except Hopeless as error:  # the other partitions continue
            self._gave_up[number] = f"in run {self._run.id} itself: {error}"

    def _call_off(self) -> None:
        """Cancel the parts, because the parent is cancelled. Parts that this does not reach notice it themselves."""
        with suppress(FencepostError):
            for part in parts(self._ledger, list(self._keys.values())).values():
                if not is_terminal(RunState(part.state)):
                    self._conductor.cancel(part.run_id)


def _left(plans: Plans, plan: StepPlan) -> list[int]:
    return [number for number, is_done in enumerate(plans.done(plan)) if not is_done]


def work(run: Run, plan: StepPlan, plans: Plans, number: int, watch: Callable[[Counts], None]) -> Counts:
    """Work on one partition within `run`."""
    assignment = PartitionAssignment(
        plan.step, number, plan.slices[number], plan.name(number), plan.instance, len(plan.slices)
    )
    surroundings = surroundings_of(plan.step, run, plan.instance)
    partition = Partition(run, assignment, surroundings, watch=watch)
    return partition.work(lambda: plans.skipped(plan, without=number))


def work_part(bulk: Bulk, run: Run, instance: Instance, place: tuple[str, int]) -> dict[str, int]:
    """Work on the partition of a part's run; `place` is the step's name and the partition's number."""
    refuse_without_parent(run, instance.parent)
    plans = Plans(bulk.job, instance, run)
    plan = plans.read(bulk.step(place[0]))
    if plan is None:
        raise Cancel("the plan that it is part of no longer exists")
    watching = Watching(run, plan, plans, part=place[1])
    counts = work(run, plan, plans, place[1], watching.of(place[1]))
    watching.end()
    return counts._asdict()


def _total_counts(results: Mapping[str, StepResult]) -> dict[str, Any]:
    total = Counts()
    for each in results.values():
        total = total.plus(each.counts)
    counts: dict[str, Any] = dict(total._asdict())
    if len(results) > 1:
        counts["steps"] = {name: each.counts._asdict() for name, each in results.items()}
    return counts


def _first_line(why: str) -> str:
    return beginning(next(iter(why.splitlines()), why), _LONGEST_WHY)


def _failed(plan: StepPlan, gave_up: Mapping[int, str]) -> str:
    reasons = "; ".join(f"partition {number}: {_first_line(why)}" for number, why in sorted(gave_up.items())[:3])
    more = f" and {len(gave_up) - 3} more" if len(gave_up) > 3 else ""
    others = "the others have landed" if len(gave_up) < len(plan.slices) else "what they have written stays"
    return (
        f"step {plan.step.name!r}: {len(gave_up)} of {len(plan.slices)} partitions have failed ({reasons}{more}); "
        f"{others}. Correct the cause and restart the run: it continues with these "
        f"(fencepost retry {plan.instance.parent})"
    )
