"""What ``@app.job`` returns: the function, and the methods that request a run of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from fencepost.core.duration import Duration
from fencepost.core.nearest import suggestion
from fencepost.core.retry import Backoff
from fencepost.core.schedule import At, Cron, Every, Schedule
from fencepost.core.schedules.written import as_code
from fencepost.core.words import EffectsWord, IsolationWord, MisfireWord, OnCrashWord, OverlapWord, ReasonWord
from fencepost.engine.jobs import ASYNC, Job
from fencepost.errors import InvalidParameters, InvalidSchedule

if TYPE_CHECKING:
    from fencepost.app.application import App
    from fencepost.engine.run import Run
    from fencepost.ledger.recording import Enqueued

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class SharedWords(TypedDict, total=False):
    """Policy options of all kinds of jobs. An omitted option, or None, means the default of the job's type."""

    timeout: Duration | None
    retries: int | None
    backoff: Backoff | Duration | Mapping[str, Duration] | None
    overlap: OverlapWord | None
    misfire: MisfireWord | None
    grace: Duration | None
    sla: Duration | None
    exclusive: str | None
    priority: int | None
    queue: str | None
    on_crash: OnCrashWord | None
    effects: EffectsWord | None
    isolation: IsolationWord | None
    formerly: str | Sequence[str] | None
    reason: ReasonWord | None
    search: str | Sequence[str] | None


class PolicyWords(SharedWords, total=False):
    """Policy options of a job. Bulk jobs have their own parameters of these names."""

    crash_limit: int | None
    chunk: int | None


class RequestOptions(TypedDict, total=False):
    """Options of a request for a run, besides its parameters. `JobHandle.options` describes each."""

    at: datetime | str | None
    delay: Duration | None
    key: str | None
    tx: Any
    priority: int | None
    reason: str | None
    requested_by: str | None
    unique: bool


class NotGiven(Enum):
    """The default of an option for which None is a value."""

    NOT_GIVEN = "not given"


NOT_GIVEN = NotGiven.NOT_GIVEN


class JobHandle(Generic[P]):
    """A declared job: its name, and the methods that request a run of it with the parameters `P`."""

    def __init__(self, app: App, job: Job) -> None:
        self._app = app
        self.job = job
        self.name = job.name

    def options(self, **options: Unpack[RequestOptions]) -> JobRequest[P]:
        """Set the options of a request. `JobRequest.enqueue` then takes only the parameters of the function.

        ::

            settle.options(key=f"order-{order.id}").enqueue(account=7)
            urgent = settle.options(priority=100)                 # for several runs
            urgent.enqueue(account=7)

        Options:
            at: not before this instant.
            delay: not before this long from now.
            key: your name for this request. A second request with the key returns the same run. A different request
                with the key is refused with `DuplicateRequest`.
            tx: your own connection to the ledger's database (SQLAlchemy's, Django's or the driver's), in a transaction:
                the run exists if, and only if, that transaction commits.
            priority: overrides the policy's; a larger one runs sooner.
            reason: why; kept in the history.
            requested_by: the requester; by default the run that this code is part of, if any.
            unique: if a run with the same parameters has not ended yet, return that one. Other `unique` requests for
                this job wait until your `tx` ends, so keep it short.
        """
        known = RequestOptions.__annotations__
        for name in options:
            if name not in known:
                raise TypeError(f"options() has no option {name!r}; {suggestion(name, known)}")
        return JobRequest(self, options)

    # With options among the parameters, type checkers accept any call; there is one overload per option.
    @overload
    def enqueue(self, *arguments: P.args, **named: P.kwargs) -> Enqueued: ...
    @overload
    def enqueue(self, *arguments: Any, at: datetime | str | None, **more: Any) -> Enqueued: ...
    @overload
    def enqueue(self, *arguments: Any, delay: Duration | None, **more: Any) -> Enqueued: ...
    @overload
    def enqueue(self, *arguments: Any, key: str | None, **more: Any) -> Enqueued: ...
    @overload
    def enqueue(self, *arguments: Any, tx: Any, **more: Any) -> Enqueued: ...
    @overload
    def enqueue(self, *arguments: Any, priority: int | None, **more: Any) -> Enqueued: ...
    @overload
    def enqueue(self, *arguments: Any, reason: str | None, **more: Any) -> Enqueued: ...
    @overload
    def enqueue(self, *arguments: Any, requested_by: str | None, **more: Any) -> Enqueued: ...
    @overload
    def enqueue(self, *arguments: Any, unique: bool, **more: Any) -> Enqueued: ...
    @overload
    def enqueue(self, *arguments: Any, params: Mapping[str, Any] | None, **more: Any) -> Enqueued: ...
    def enqueue(  # type: ignore[misc]  # a parameter with the name of an option goes through params=
        self,
        *arguments: Any,
        at: datetime | str | None = None,
        delay: Duration | None = None,
        key: str | None = None,
        tx: Any = None,
        priority: int | None = None,
        reason: str | None = None,
        requested_by: str | None = None,
        unique: bool = False,
        params: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> Enqueued:
        """Request a run with the parameters of the function, except `run`, which Fencepost passes.

        ::

            settle.enqueue(account=7)                             # as soon as possible
            settle.enqueue(account=7, delay="5m")                 # or at=datetime(…, tzinfo=UTC)
            settle.enqueue(account=7, key=f"order-{order.id}")    # the same key twice is one run
            settle.enqueue(account=7, unique=True)                # unless the same is waiting or running
            settle.enqueue(account=7, tx=connection)              # if, and only if, your transaction commits

        Type checkers check the parameters only of calls without options. With options, write
        ``settle.options(key=…).enqueue(account=7)``, which does the same and is checked.

        Args:
            *arguments: parameters in the order of the function.
            at: this and the following options: see `options`.
            delay: see there.
            key: see there.
            tx: see there.
            priority: see there.
            reason: see there.
            requested_by: see there.
            unique: see there.
            params: parameters by name, for parameters that have the name of one of these options.
            **named: parameters by name.

        Returns:
            The run's id, and whether it is new.
        """
        options = RequestOptions(
            at=at,
            delay=delay,
            key=key,
            tx=tx,
            priority=priority,
            reason=reason,
            requested_by=requested_by,
            unique=unique,
        )
        self._refuse_ambiguous(options, params or {})
        return self._enqueue(options, self._collected(arguments, params or {}, named))

    def __repr__(self) -> str:
        return f"<job {self.name!r} of {self._app!r}>"

    def _enqueue(self, options: RequestOptions, params: Mapping[str, Any]) -> Enqueued:
        return self._app.enqueue(self.name, params=params, **options)

    def _refuse_ambiguous(self, options: RequestOptions, params: Mapping[str, Any]) -> None:
        """Refuse an option that is also a parameter of the function: type checkers take it for the parameter."""
        for name, value in options.items():
            if value not in (None, False) and name in self.job.signature.names and name not in params:
                raise InvalidParameters(
                    f"job {self.name!r} has a parameter {name!r}, and enqueue has an option of that name: write "
                    f"{self.name}.options({name}=…).enqueue(…) for the option, {self.name}.options().enqueue({name}=…) "
                    "for the parameter"
                )

    def _collected(
        self, arguments: tuple[Any, ...], params: Mapping[str, Any], named: Mapping[str, Any]
    ) -> dict[str, Any]:
        names = self.job.signature.names
        if len(arguments) > len(names):
            raise InvalidParameters(f"job {self.name!r} takes {len(names)} parameters, not {len(arguments)}")
        collected = dict(zip(names, arguments, strict=False))
        for more in (params, named):
            for name in more:
                if name in collected:
                    raise InvalidParameters(f"job {self.name!r}: parameter {name!r} is given twice")
            collected |= more
        return collected


class JobRequest(Generic[P]):
    """A job and the options of a request. Made by `JobHandle.options`; can be used several times."""

    def __init__(self, handle: JobHandle[P], options: RequestOptions) -> None:
        self._handle = handle
        self._options = options

    def enqueue(self, *arguments: P.args, **named: P.kwargs) -> Enqueued:
        """Request a run with the parameters of the function, except `run`, which Fencepost passes."""
        handle = self._handle
        return handle._enqueue(self._options, handle._collected(arguments, {}, named))

    def __repr__(self) -> str:
        given = {name: value for name, value in self._options.items() if value not in (None, False)}
        return f"<{self._handle!r} with {', '.join(given) or 'no options'}>"


class JobFunction(JobHandle[P], Generic[P, R]):
    """A function that is also a job. A call executes the plain function at once and records no run."""

    __name__: str
    __qualname__: str
    __wrapped__: Callable[P, R]

    def __init__(self, app: App, job: Job) -> None:
        functools.update_wrapper(self, job.function, updated=())
        super().__init__(app, job)
        if job.kind == ASYNC and hasattr(inspect, "markcoroutinefunction"):
            inspect.markcoroutinefunction(self)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """Call the plain function."""
        result: R = self.job.function(*arguments, **named)
        return result


if TYPE_CHECKING:

    class RunFunction(JobFunction[P, R]):
        """A `JobFunction` that takes the run: a caller passes one; for a requested run, Fencepost passes it.

        Type checkers recognise it by the name of its first parameter, ``run``.
        """

        def __call__(self, run: Run, *arguments: P.args, **named: P.kwargs) -> R:  # type: ignore[override]
            """Call the plain function."""
            ...

    class TakesRun(Protocol[P, R_co]):
        """A function whose first parameter is called ``run`` and accepts a `Run`."""

        def __call__(self, run: Run, *arguments: P.args, **named: P.kwargs) -> R_co:
            """Execute with the run."""
            ...

    class Declares(Protocol):
        """The decorator that ``@app.job(…)`` returns."""

        @overload
        def __call__(self, function: TakesRun[P, R], /) -> RunFunction[P, R]: ...
        @overload
        def __call__(self, function: Callable[P, R], /) -> JobFunction[P, R]: ...


_KINDS = "there are cron(…), every(…) and at(…)"


def as_schedules(given: tuple[object, ...]) -> tuple[Schedule, ...]:
    """Return the schedules among a decorator's arguments, without the None values."""
    return tuple(as_schedule(each) for each in given if each is not None)


def as_schedule(given: object) -> Schedule:
    """Return the argument if it is a schedule, else raise `InvalidSchedule`."""
    if isinstance(given, Cron | Every | At):
        return given
    if isinstance(given, str):
        call = as_code(given)
        raise InvalidSchedule(f"{given!r} is a text, not a schedule; {f'write {call}' if call else _KINDS}")
    raise InvalidSchedule(f"{given!r} is not a schedule; {_KINDS}")
