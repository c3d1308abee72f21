"""``@app.bulk``: a class, or a function that writes, becomes a bulk job."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fencepost.app.declaring import NOT_GIVEN, JobHandle, SharedWords
from fencepost.bulk.conducting import Conductor, work_part
from fencepost.bulk.definition import OPTIONS, Bulk, Options, Step
from fencepost.bulk.instance import WINDOW, Instance
from fencepost.bulk.places import targets_of
from fencepost.bulk.reader import Reader
from fencepost.bulk.refusing import refuse_while_renamed
from fencepost.bulk.replaying import Choice, Replay
from fencepost.core.identity import LONGEST_NAME, job_name
from fencepost.core.nearest import suggestion
from fencepost.core.parameters import RUN, Signature
from fencepost.core.policy import Policy
from fencepost.core.positions import unpacked
from fencepost.core.schedule import Schedule
from fencepost.core.verdicts import Fail
from fencepost.engine.jobs import Job
from fencepost.engine.known_secrets import SecretSource, known_secret
from fencepost.engine.requesting import KnownJob, Request, requested
from fencepost.engine.resolving import resolved
from fencepost.engine.run import Run, attempt_of
from fencepost.errors import InvalidBulk, NoSuchRun
from fencepost.ledger import history, requests

if TYPE_CHECKING:
    from fencepost.app.application import App
    from fencepost.bulk.letters import StoredLetter
    from fencepost.ledger.history import RunRow
    from fencepost.ledger.ledger import Ledger

PART, REPLAY = "/part", "/replay"
_FEW_CRASHES = 3  # an item that crashes its worker is replayed at most this often
_MOST_CRASHES = 1000  # a bulk job counts crashes per place, at the checkpoint; the run's own count does not limit it
_STEP_WORDS = (*OPTIONS, "chunk")
_DATABASES = ("source", "target")


@dataclass(frozen=True, slots=True)
class DeclaredBulk:
    """A bulk job as the code declares it: `make` builds the steps of one attempt."""

    name: str
    given: Any
    words: Mapping[str, Any]
    read: Reader | None
    process: Callable[[Any], Any] | None
    writer: Any
    chunk: int
    formerly: tuple[str, ...] = ()
    secrets: SecretSource = known_secret

    @property
    def known_as(self) -> str:
        """The name under which checkpoints are stored: the first name that the job had."""
        return self.formerly[0] if self.formerly else self.name

    @property
    def names(self) -> tuple[str, ...]:
        """All present and former names of the job and of its parts."""
        return tuple(name + suffix for name in (self.name, *self.formerly) for suffix in ("", PART))

    def make(self, **params: Any) -> Bulk:
        """Return the job for one attempt. A class gets a new object for each attempt."""
        if isinstance(self.given, type):
            return self._of_object(self.given(**resolved(_signature(self.given), params, self.secrets)))
        return self._of_function()

    def check(self) -> None:
        """Refuse an invalid declaration, without creating an object of the class."""
        makes_itself = isinstance(self.given, type) and self.given.__init__ is not object.__init__  # type: ignore[misc]
        self.outline().check(is_outline=makes_itself)

    def outline(self) -> Bulk:
        """Return what is known of the job without parameters. No object of the class is created."""
        return self._of_object(self.given) if isinstance(self.given, type) else self._of_function()

    def params_of(self, row: RunRow) -> dict[str, Any]:
        """Return the parameters of a run of this job, or of one of its parts, as the code receives them."""
        stored = json.loads(row.params)
        return _params_of(self, stored["values"]) if row.job.endswith(PART) else self.bound(stored)

    def bound(self, stored: dict[str, Any]) -> dict[str, Any]:
        """Convert parameters stored as JSON to what the code receives."""
        return replace(_signature(self.given), run_name=None).bind(stored)

    @property
    def takes_parameters(self) -> bool:
        """Whether its runs may have parameters."""
        signature = _signature(self.given)
        return bool(signature.parameters) or signature.takes_more

    def made_of(self, row: RunRow) -> Bulk:
        """Return the job with the parameters of a run of it, or of one of its parts."""
        return self.make(**self.params_of(row))

    def _of_function(self) -> Bulk:
        write = self.writer or self.given
        return Bulk(self.known_as, (Step("main", self._options(self.words), self.read, self.process, write),))

    def _of_object(self, made: Any) -> Bulk:
        own = {word: getattr(made, word) for word in _STEP_WORDS if hasattr(made, word)}
        words = {**own, **self.words}
        several = getattr(made, "steps", None)
        steps = (self._step("main", made, words),) if several is None else self._steps(several, made, words)
        decide = getattr(made, "decide", None)
        hooks = {} if several is None else {name: getattr(made, name, None) for name in ("before", "after")}
        return Bulk(self.known_as, steps, decide, **hooks)

    def _steps(self, several: Sequence[Any], made: Any, words: Mapping[str, Any]) -> tuple[Step, ...]:
        if not isinstance(several, list | tuple):
            raise InvalidBulk(f"bulk job {self.name!r}: steps is a list of classes, each with what a step needs")
        steps = []
        for each in several:
            name = str(getattr(each, "name", None) or getattr(each, "__name__", ""))
            obj = each() if isinstance(each, type) and not isinstance(made, type) else each
            own = {word: getattr(obj, word) for word in _STEP_WORDS if hasattr(obj, word)}
            steps.append(self._step(name, obj, {**words, **own}))
        return tuple(steps)

    def _step(self, name: str, made: Any, words: Mapping[str, Any]) -> Step:
        return Step(
            name,
            self._options(words),
            read=getattr(made, "read", self.read),
            process=getattr(made, "process", self.process),
            write=getattr(made, "write", self.writer),
            work=getattr(made, "work", None),
            before=getattr(made, "before", None),
            after=getattr(made, "after", None),
        )

    def _options(self, words: Mapping[str, Any]) -> Options:
        return Options.of(
            chunk=words.get("chunk", self.chunk), words={word: words[word] for word in words if word != "chunk"}
        )


class BulkJob(JobHandle[...]):
    """A declared bulk job. Called, it is the plain class or function."""

    def __init__(self, app: App, job: Job, declared: DeclaredBulk) -> None:
        super().__init__(app, job)
        self.declared = declared
        self.names = declared.names  # the names under which its dead letters are stored
        self.replay_name = job.name + REPLAY
        self.__doc__ = job.doc

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Make the plain object, or call the plain function."""
        return self.declared.given(*arguments, **named)


def declare_bulk(
    app: App,
    given: Any,
    schedules: tuple[Schedule, ...],
    *,
    name: str | None,
    params: Mapping[str, Any] | None,
    parts: Mapping[str, Any],
    words: Mapping[str, Any],
    policy: Policy,
) -> BulkJob:
    """Register a bulk job, and the job that its partitions are runs of."""
    named = _checked_name(name or str(getattr(given, "__name__", "")))
    words = {**words, "chunk": policy.chunk} if "chunk" in words else words
    how = (parts["read"], parts["process"], parts["writer"], policy.chunk, policy.formerly)
    declared = DeclaredBulk(named, given, words, *how, app.secrets)
    declared.check()
    policy = replace(policy, crash_limit=_MOST_CRASHES)
    part = _part_job(declared, policy)
    job = Job.of(
        _conducting(app, declared, part),
        name=named,
        policy=policy,
        schedules=schedules,
        params=params,
        signature=_signature(given),
        secrets=app.secrets,
    )
    job = replace(job, doc=inspect.getdoc(given) or "")
    app.jobs.add(job)
    app.jobs.add(part)
    app.jobs.add(_replay_job(declared, policy))
    return BulkJob(app, job, declared)


def _checked_name(name: str) -> str:
    longest = LONGEST_NAME - max(len(PART), len(REPLAY))
    if len(name) > longest:
        raise InvalidBulk(f"the name of a bulk job has at most {longest} characters, for its parts have longer ones")
    return job_name(name)


def given_options(policy: Iterable[str], **options: Any) -> dict[str, Any]:
    """Return the options that were given; refuse policy options that do not exist.

    None means "not given" for most. For a database, None means the ledger's own, even if the class names one.
    """
    for word in policy:
        if word not in SharedWords.__annotations__:
            known = (*options, *SharedWords.__annotations__)
            raise InvalidBulk(f"a bulk job has no option {word!r}; {suggestion(word, known)}")
    return {
        name: value
        for name, value in options.items()
        if value is not NOT_GIVEN and (value is not None or name in _DATABASES)
    }


def _signature(given: Any) -> Signature:
    """Return what a run takes: what the class is made with; a function takes the chunk, so its runs take nothing."""
    made = Signature.of(given) if isinstance(given, type) else Signature()
    taken = [name for name in (made.run_name, *made.names) if name in (RUN, *WINDOW)]
    if taken:
        raise InvalidBulk(
            f"bulk job {given.__name__!r}: its constructor cannot take {taken[0]!r}: queries and hooks receive that "
            "automatically; rename the parameter"
        )
    return replace(made, run_name=RUN, is_async=False)


def _conducting(app: App, declared: DeclaredBulk, part: Job) -> Callable[..., Any]:
    def ask(run: Run, instance: Instance, wanted: Mapping[str, Mapping[str, Any]]) -> None:
        known, generation = KnownJob.of(part), app.settings.generation
        request = Request(window_us=instance.window_us, requested_by=attempt_of(run).label, generation=generation)
        new_runs = [requested(known, params, replace(request, origin_key=key)) for key, params in wanted.items()]
        requests.enqueue(app.ledger, new_runs)
        app.wake()

    def cancel(run: Run, run_id: int) -> None:
        app.operations.cancel(run_id, by=attempt_of(run).label, reason="the run it is part of was cancelled")

    def conduct(run: Run, **params: Any) -> Any:
        refuse_while_renamed(run, declared.names)
        with _giving_up_what_cannot_work():
            bulk = _made(declared, params)
            return Conductor(bulk, run, part.name, ask, partial(cancel, run)).conduct()

    conduct.__name__ = conduct.__qualname__ = declared.name
    return conduct


def _made(declared: DeclaredBulk, params: Mapping[str, Any]) -> Bulk:
    """Return the job for an attempt, after checking it."""
    bulk = declared.make(**params)
    bulk.check()
    return bulk


@contextmanager
def _giving_up_what_cannot_work() -> Iterator[None]:
    """Fail a run for good if its code or query is at fault: a retry would not help."""
    try:
        yield
    except InvalidBulk as error:
        raise Fail(str(error)) from error


def _part_job(declared: DeclaredBulk, policy: Policy) -> Job:
    def part(  # `key` is the exclusive key; see the policy
        run: Run,
        *,
        parent: int,
        step: str,
        number: int,
        instance: str,
        values: dict[str, Any],
        key: str,  # noqa: ARG001
    ) -> Any:
        refuse_while_renamed(run, declared.names)
        params = _params_of(declared, values)
        window = {name: unpacked(values[name]) for name in WINDOW}
        recorded = {name: value for name, value in values.items() if name not in WINDOW}
        whole = Instance(instance, parent, {**params, **window}, recorded)
        with _giving_up_what_cannot_work():
            return work_part(_made(declared, params), run, whole, (step, number))

    words = replace(
        policy,
        exclusive="{key}",
        overlap=type(policy.overlap)("queue"),
        misfire="once",
        sla_s=None,
        formerly=tuple(each + PART for each in policy.formerly),
        search=(),  # its parent has them
    )
    made = Job.of(part, name=declared.name + PART, policy=words)
    return replace(made, doc=f"A partition of {declared.name}.", parent=declared.name)


def _replay_job(declared: DeclaredBulk, policy: Policy) -> Job:
    def replay(run: Run, *, letters: list[int], upto: int = 0, step: str = "") -> Any:
        ledger = attempt_of(run).context.ledger()

        def made(letter: StoredLetter) -> Bulk:
            return _made_for(declared, ledger, letter)

        refuse_while_renamed(run, declared.names)
        choice = Choice(declared.names, tuple(letters), upto, step)
        return Replay(run, choice, made).replay(targets_of(declared.outline(), ledger, step=step))

    words = replace(
        policy,
        exclusive=None,
        overlap=type(policy.overlap)("queue"),
        misfire="once",
        sla_s=None,
        crash_limit=_FEW_CRASHES,
        formerly=tuple(each + REPLAY for each in policy.formerly),
        search=(),
    )
    doc = f"Dead letters of {declared.name}, processed again."
    return replace(Job.of(replay, name=declared.name + REPLAY, policy=words), doc=doc, parent=declared.name)


def _made_for(declared: DeclaredBulk, ledger: Ledger, letter: StoredLetter) -> Bulk:
    """Return the job with the parameters of the letter's run, which may no longer be on record."""
    try:
        return declared.made_of(history.run(ledger, letter.run_id or 0))
    except NoSuchRun as error:
        if letter.params is None and declared.takes_parameters:
            raise InvalidBulk(
                f"bulk job {declared.name!r} takes parameters, and those of this run are unknown: {error}"
            ) from None
        return declared.make(**declared.bound(letter.params or {}))


def _params_of(declared: DeclaredBulk, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a part's parent, as the code receives them."""
    return declared.bound({name: value for name, value in values.items() if name not in WINDOW})
