"""What ``@app.job`` leaves behind: the function as it was, and how to ask for a run of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar

from fencepost.core.duration import Duration
from fencepost.core.retry import Backoff
from fencepost.core.schedule import At, Cron, Every, Schedule
from fencepost.core.words import EffectsWord, IsolationWord, MisfireWord, OnCrashWord, OverlapWord
from fencepost.engine.jobs import ASYNC, Job
from fencepost.errors import InvalidParameters, InvalidSchedule

if TYPE_CHECKING:
    from fencepost.app.application import App
    from fencepost.ledger.recording import Enqueued

P = ParamSpec("P")
R = TypeVar("R")


class SharedWords(TypedDict, total=False):
    """How a job of any kind is run; what is left out is the batch type's default."""

    timeout: Duration
    retries: int
    backoff: Backoff | Duration | Mapping[str, Duration]
    overlap: OverlapWord
    misfire: MisfireWord
    grace: Duration
    sla: Duration
    exclusive: str
    priority: int
    queue: str
    on_crash: OnCrashWord
    effects: EffectsWord
    isolation: IsolationWord
    formerly: str | Sequence[str]


class PolicyWords(SharedWords, total=False):
    """How a job is run. Bulk jobs have parameters of these names, which say more."""

    crash_limit: int
    chunk: int


class NotGiven(Enum):
    """Stands for an option that was left out, where None is a value."""

    NOT_GIVEN = "not given"


NOT_GIVEN = NotGiven.NOT_GIVEN


class JobHandle:
    """A declared job: its name, and how to ask for a run of it."""

    def __init__(self, app: App, job: Job) -> None:
        self._app = app
        self.job = job
        self.name = job.name

    def enqueue(
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
        """Ask for a run, with the parameters of the function (but for the run, which it gets by itself).

        ::

            settle.enqueue(account=7)                             # as soon as possible
            settle.enqueue(account=7, delay="5m")                 # or at=datetime(…, tzinfo=UTC)
            settle.enqueue(account=7, key=f"order-{order.id}")    # the same key twice is one run
            settle.enqueue(account=7, unique=True)                # unless the same is waiting or running
            settle.enqueue(account=7, tx=connection)              # if, and only if, your transaction commits

        Args:
            *arguments: parameters in the order of the function's.
            at: not before this instant.
            delay: not before so long from now.
            key: your name for this request. Asking again under it returns the same run; asking for something else
                under it is refused as `DuplicateRequest`.
            tx: your own connection to the ledger's database (SQLAlchemy's, Django's or the driver's), in a transaction.
            priority: instead of the policy's; larger is sooner.
            reason: why, for those who read the history.
            requested_by: who asks; by default the run that this code is part of, if any.
            unique: if a run with the same parameters has not ended yet, return that one. Whoever else asks like this
                for this job waits for your `tx`, so let that be short.
            params: parameters by name, for those that are called like one of these options.
            **named: parameters by name.

        Returns:
            The run's id, and whether it is new.
        """
        return self._app.enqueue(
            self.name,
            params=self._collected(arguments, params or {}, named),
            at=at,
            delay=delay,
            key=key,
            tx=tx,
            priority=priority,
            reason=reason,
            requested_by=requested_by,
            unique=unique,
        )

    def __repr__(self) -> str:
        return f"<job {self.name!r} of {self._app!r}>"

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


class JobFunction(JobHandle, Generic[P, R]):
    """A function that is a job as well. Called, it is the plain function: here and now, and no run is recorded."""

    def __init__(self, app: App, job: Job) -> None:
        functools.update_wrapper(self, job.function, updated=())
        super().__init__(app, job)
        if job.kind == ASYNC and hasattr(inspect, "markcoroutinefunction"):
            inspect.markcoroutinefunction(self)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """Call the plain function."""
        result: R = self.job.function(*arguments, **named)
        return result


def as_schedules(given: tuple[object, ...]) -> tuple[Schedule, ...]:
    """Return the schedules among what a decorator was given; None stands for none."""
    return tuple(as_schedule(each) for each in given if each is not None)


def as_schedule(given: object) -> Schedule:
    """Return what was given if it is a schedule, else raise `InvalidSchedule`."""
    if isinstance(given, Cron | Every | At):
        return given
    if isinstance(given, str):
        raise InvalidSchedule(f"{given!r} is a text, not a schedule; write cron({given!r}) or every({given!r})")
    raise InvalidSchedule(f"{given!r} is no schedule; there are cron(…), every(…) and at(…)")
