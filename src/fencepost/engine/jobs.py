"""Jobs: a function or a program, and how it is run.

A `Job` has everything that is known before it runs: its name, its policy, the types of its parameters, and its
schedules. `Jobs` holds the jobs of one application; names are unique.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fencepost.core.identity import job_name, schedule_id
from fencepost.core.nearest import suggestion
from fencepost.core.overlap import exclusive_key
from fencepost.core.parameters import Signature
from fencepost.core.policy import Policy, template_parameters
from fencepost.core.schedule import Schedule
from fencepost.engine.known_secrets import SecretSource, known_secret
from fencepost.errors import InvalidJob, InvalidParameters, InvalidPolicy

SYNC, ASYNC, COMMAND = "sync", "async", "command"


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """A schedule that is declared in code. The id of a job's first schedule is the job's name; the others add a number.

    For a renamed job (`formerly`) its first name is used, so that a due time has one identity under both names.
    """

    id: str
    schedule: Schedule
    params: Mapping[str, Any] = field(default_factory=dict)  # as JSON values


@dataclass(frozen=True, slots=True)
class Job:
    """A job. Make it with `Job.of`, which validates. `place` is where it is declared in the code."""

    name: str
    function: Callable[..., Any]
    policy: Policy
    signature: Signature
    schedules: tuple[DeclaredSchedule, ...] = ()
    kind: str = SYNC  # or ASYNC, COMMAND: which runner executes it
    doc: str = ""
    place: str = ""
    argv: tuple[str, ...] = ()  # of a command
    parent: str | None = None  # the bulk job that this one executes partitions or replays of
    secrets: SecretSource = known_secret  # looks up the values of `Secret` parameters

    @staticmethod
    def of(
        function: Callable[..., Any],
        *,
        policy: Policy,
        name: str | None = None,
        schedules: Sequence[Schedule] = (),
        params: Mapping[str, Any] | None = None,
        signature: Signature | None = None,
        secrets: SecretSource | None = None,
    ) -> Job:
        """Make a job of a function, or raise a `ConfigurationError` that says why that is not possible.

        `signature` replaces the function's own, for a function that is called in place of another one.
        """
        named = job_name(name) if name is not None else _name_of(function)
        signature = signature or Signature.of(function)
        _refuse_method(function, signature)
        _check_exclusive(named, policy, signature)
        _check_search(named, policy, signature)
        return Job(
            name=named,
            function=function,
            policy=policy,
            signature=signature,
            schedules=_declared(named, schedules, signature, params, policy),
            kind=ASYNC if signature.is_async else SYNC,
            doc=inspect.getdoc(function) or "",
            place=place_of(function),
            secrets=secrets or known_secret,
        )

    @staticmethod
    def of_command(
        argv: Sequence[str],
        *,
        name: str,
        policy: Policy,
        schedules: Sequence[Schedule] = (),
        params: Mapping[str, Any] | None = None,
        place: str = "",
    ) -> Job:
        """Make a job of a program. It takes any parameters, and receives them in its environment."""
        _check_argv(name, argv)
        signature = Signature(takes_more=True)
        return Job(
            name=job_name(name),
            function=_not_a_function,
            policy=policy,
            signature=signature,
            schedules=_declared(name, schedules, signature, params, policy),
            kind=COMMAND,
            doc=" ".join(argv)[:500],
            place=place,
            argv=tuple(argv),
        )

    def __repr__(self) -> str:
        return f"<Job {self.name!r} ({self.policy.type}) at {self.place or 'an unknown place'}>"


class Jobs(Mapping[str, Job]):
    """The jobs of one application by name, in the order in which they were declared."""

    def __init__(self, jobs: Sequence[Job] = ()) -> None:
        self._jobs: dict[str, Job] = {}
        for job in jobs:
            self.add(job)

    def add(self, job: Job) -> None:
        """Add a job, or raise if its name is taken."""
        first = self._jobs.get(job.name)
        if first is not None:
            raise InvalidJob(
                f"there are two jobs named {job.name!r}: one at {first.place or 'an unknown place'}, one at "
                f"{job.place or 'an unknown place'}; give one of them another name, as in @app.job(name=…)"
            )
        self._check_formers(job)
        self._jobs[job.name] = job

    def _check_formers(self, job: Job) -> None:
        """Refuse a former name that is the name of a job now, or that two jobs declare."""
        for one, other in ((job, job), *((job, each) for each in self.values()), *((e, job) for e in self.values())):
            if other.name in one.policy.formerly:
                is_own = " itself" if one is other else ", which is a job of its own"
                raise InvalidJob(f"job {one.name!r}: formerly names {other.name!r}{is_own}; it has to be a name it had")
            both = set(one.policy.formerly) & set(other.policy.formerly)
            if one is not other and both:
                raise InvalidJob(
                    f"jobs {one.name!r} and {other.name!r} both say formerly={min(both)!r}; only one of them can go on "
                    "with its schedules and runs"
                )

    def __getitem__(self, name: str) -> Job:
        try:
            return self._jobs[name]
        except KeyError:
            raise KeyError(f"there is no job {name!r}; {suggestion(str(name), self._jobs)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._jobs

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    def __repr__(self) -> str:
        return f"<Jobs {', '.join(self._jobs) or 'none'}>"


def place_of(function: Callable[..., Any]) -> str:
    """Return where a function is defined: ``app/jobs.py:12 (settle)``."""
    inner = inspect.unwrap(getattr(function, "func", function))
    code = getattr(inner, "__code__", None)
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    return f"{code.co_filename}:{code.co_firstlineno} ({name})" if code is not None else name


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>" or inspect.ismethod(function):
        raise InvalidJob(f"{place_of(function)} has no name of its own; give it one, as in @app.job(name='settle')")
    return job_name(name)


def _refuse_method(function: Callable[..., Any], signature: Signature) -> None:
    """Refuse a function in the body of a class: it would be called without its object."""
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    is_in_class = bool(owner) and not owner.endswith("<locals>")
    if is_in_class and not inspect.ismethod(function) and signature.names[:1] in (("self",), ("cls",)):
        raise InvalidJob(
            f"{place_of(function)} is a method, and a run has no object to call it on; make it a function, or "
            "register the method of one object: app.job(name=…)(billing.settle)"
        )


def _check_exclusive(name: str, policy: Policy, signature: Signature) -> None:
    if policy.exclusive is None or signature.takes_more:
        return
    for wanted in template_parameters(policy.exclusive):
        if wanted not in signature.names:
            raise InvalidPolicy(
                f"job {name!r}: exclusive {policy.exclusive!r} asks for a parameter {wanted!r}, which the function "
                f"does not take; {suggestion(wanted, signature.names)}"
            )


def _check_search(name: str, policy: Policy, signature: Signature) -> None:
    for wanted in policy.search:
        if wanted not in signature.names and not signature.takes_more:
            raise InvalidPolicy(
                f"job {name!r}: search names {wanted!r}, which is not a parameter of the function; "
                f"{suggestion(wanted, signature.names)}"
            )
        if any(each.name == wanted for each in signature.secrets):
            raise InvalidPolicy(f"job {name!r}: search names {wanted!r}, which is a Secret, and no key to search by")


def _check_argv(name: str, argv: object) -> None:
    if not isinstance(argv, list | tuple) or not argv or not argv[0]:
        raise InvalidJob(f'command {name!r}: give the program and its arguments as a list, as in ["./report", "-v"]')
    if not all(isinstance(each, str) and "\0" not in each for each in argv):
        raise InvalidJob(f"command {name!r}: every argument is a text, without NUL")


def _declared(
    name: str,
    schedules: Sequence[Schedule],
    signature: Signature,
    params: Mapping[str, Any] | None,
    policy: Policy,
) -> tuple[DeclaredSchedule, ...]:
    if not schedules:
        if params:
            raise InvalidJob(f"job {name!r}: params are those of its schedules, and it has none")
        return ()
    try:
        stored = signature.validate(params or {}, job=name)
        exclusive_key(name, policy, stored)  # it must be possible to make one of them, or no tick could be planned
    except InvalidParameters as error:
        raise InvalidParameters(f"{error} (for a job with a schedule: params={{…}})") from None
    named = policy.known_as(name)
    return tuple(
        DeclaredSchedule(schedule_id(named if number == 1 else f"{named}:{number}"), schedule, stored)
        for number, schedule in enumerate(schedules, start=1)
    )


def _not_a_function(**_: Any) -> None:
    raise InvalidJob("this job is a program; only the command runner can execute it")
