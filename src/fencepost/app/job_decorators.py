"""How jobs are declared: the decorators of an application."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, cast, overload

from fencepost.app.declaring import (
    NOT_GIVEN,
    JobFunction,
    JobHandle,
    NotGiven,
    PolicyWords,
    SharedWords,
    as_schedules,
)
from fencepost.config import Settings
from fencepost.core.duration import Duration
from fencepost.core.policy import Policy
from fencepost.core.schedule import Schedule
from fencepost.core.words import OverWord, TypeWord
from fencepost.engine.jobs import Job, Jobs
from fencepost.engine.known_secrets import SecretSource
from fencepost.errors import ConfigurationError, InvalidSetting

if TYPE_CHECKING:
    from fencepost.app.application import App
    from fencepost.app.bulk import BulkJob
    from fencepost.app.declaring import Declares, RunFunction, TakesRun
    from fencepost.bulk.definition import Database
    from fencepost.bulk.reader import Reader
    from fencepost.core.retry import Backoff

_OURS = "fencepost"
P = ParamSpec("P")
R = TypeVar("R")


class JobDecorators:
    """The methods that declare jobs: `job`, `bulk` and `command`. `App` inherits them."""

    settings: Settings
    secrets: SecretSource
    jobs: Jobs
    bulks: dict[str, BulkJob]
    declared_in: dict[str, str]
    """The module in which each job was declared. Its function may be from another module."""

    @overload
    def job(self, function: TakesRun[P, R], /) -> RunFunction[P, R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> JobFunction[P, R]: ...
    @overload
    def job(
        self,
        *schedules: Schedule | None,
        name: str | None = None,
        type: TypeWord | None = None,
        params: Mapping[str, Any] | None = None,
        **policy: Unpack[PolicyWords],
    ) -> Declares: ...
    def job(
        self,
        *given: Any,
        name: str | None = None,
        type: TypeWord | None = None,
        params: Mapping[str, Any] | None = None,
        **policy: Unpack[PolicyWords],
    ) -> Any:
        """Declare a function as a job. It stays callable.

        ::

            @app.job                                                  # on request only: settle.enqueue(…)
            @app.job(every("1h"))                                     # scheduled
            @app.job(cron("0 3 * * *"), cron("0 12 * * SUN"))         # several schedules
            @app.job(type="bulk", timeout="2h", exclusive="account:{account}")

        Args:
            *given: when it is due: `cron`, `every`, `at`. Without a schedule it runs on request.
            name: by default the function's. It must be unique. The ledger stores the job under it.
            type: ``scheduled`` (default with a schedule), ``manual`` (default without), ``event``, ``bulk``,
                ``near-real-time``; each has its own policy defaults.
            params: the parameters of its scheduled runs.
            **policy: ``timeout``, ``retries``, ``backoff``, ``overlap``, ``misfire``, ``grace``, ``sla``,
                ``exclusive``, ``priority``, ``queue``, ``on_crash``, ``crash_limit``, ``effects``, ``isolation``,
                ``chunk``, ``reason``: whether each act of a person needs one, ``formerly``: earlier names of the job,
                and ``search``: parameters by which its runs are found over all history. A settings file overrides
                them: ``[jobs.<name>]``.
        """
        if len(given) == 1 and callable(given[0]):
            return self._declared(given[0], (), name=None, batch_type=None, params=None, policy={})
        schedules = as_schedules(given)

        def declare(function: Callable[..., R]) -> JobFunction[..., R]:
            return self._declared(function, schedules, name=name, batch_type=type, params=params, policy=policy)

        return declare

    def command(
        self,
        name: str,
        argv: Sequence[str],
        *schedules: Schedule | None,
        type: TypeWord | None = None,
        params: Mapping[str, Any] | None = None,
        **policy: Unpack[PolicyWords],
    ) -> JobHandle[...]:
        """Declare a program as a job. It receives its token and parameters in environment variables.

        ::

            app.command("report", ["./report.sh", "--daily"], cron("0 6 * * *"), timeout="20m")
        """
        due = as_schedules(schedules)
        job = Job.of_command(
            argv,
            name=name,
            policy=self._policy(name, type, bool(due), policy),
            schedules=due,
            params=params,
            place=f"app.command({name!r})",
        )
        self.jobs.add(job)
        return JobHandle(cast("App", self), job)

    def bulk(
        self,
        *schedules: Schedule | None,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        read: Reader | None = None,
        process: Callable[[Any], Any] | None = None,
        writer: Callable[[Any, Sequence[Any]], Any] | None = None,
        target: Database | NotGiven | None = NOT_GIVEN,
        source: Database | NotGiven | None = NOT_GIVEN,
        chunk: int | None = None,
        chunk_bytes: int | str | None = None,
        chunk_time: Duration | None = None,
        memory: int | str | None = None,
        partitions: int | Sequence[Mapping[str, Any]] | None = None,
        over: OverWord | None = None,
        skip_limit: int | None = None,
        retry_limit: int | None = None,
        retry_backoff: Backoff | Duration | Mapping[str, Duration] | None = None,
        crash_limit: int | None = None,
        read_ahead: int | None = None,
        concurrency: int | None = None,
        **policy: Unpack[SharedWords],
    ) -> Callable[[Any], BulkJob]:
        """Declare a bulk job: items from a reader, in chunks, each with its checkpoint in one fenced transaction.

        ::

            @app.bulk(cron("0 2 * * *"), chunk=2000, partitions=8, skip_limit=100, target=engine)
            class SettleOrders:
                read = keyset("SELECT id, amount FROM orders WHERE id > :after ORDER BY id LIMIT :limit", key="id")

                def process(self, order): ...      # None filters; raise Skip or Retry; async is allowed
                def write(self, tx, items): ...    # in the chunk's transaction

            @app.bulk(read=keyset(…), target=engine)
            def settle(tx, orders): ...            # the function is what writes

        mypy treats a decorated class as the plain class. For mypy, write ``settle = app.bulk(…)(SettleOrders)``.

        Args:
            *schedules: when it is due. Without a schedule it runs on request.
            name: by default the class's or function's.
            params: the parameters of its scheduled runs, which the constructor of the class takes.
            read: the reader, where the class has none.
            process: the function that processes an item, where the class has no such method.
            writer: how items are written: ``copy(…)``, ``unnest(…)``, ``executemany(…)``.
            target: where items are written: a SQLAlchemy engine, its URL, or a function that returns one. Without it,
                or None: the ledger's own database. This and the following options may also be in the class.
            source: where items are read, given in the same way; by default the target.
            chunk: the maximum number of items in a chunk; 2000 by default.
            chunk_bytes: the maximum size of its items, as in ``"8MB"``; chunks are sized by measured items.
            chunk_time: the approximate time for a chunk, as in ``"5s"``.
            memory: the memory of all workers together, as in ``"256MB"``.
            partitions: how many parts the input is divided into, or the values of each part that its query names.
            over: whether parts are shared by all ``nodes`` (default), or by ``threads`` of one process.
            skip_limit: how many items may be skipped before the run fails; 0 by default.
            retry_limit: how often `process` is retried for one item; 3 by default.
            retry_backoff: the delay before a retry; ``"1s..1m"`` by default.
            crash_limit: how many workers may crash at one place before its item is skipped; 3 by default.
            read_ahead: how many pages are read in advance; 1 by default.
            concurrency: how many items an async `process` handles at once; 16 by default.
            **policy: as for `job`.
        """
        from fencepost.app.bulk import declare_bulk, given_options  # noqa: PLC0415 - most applications have none

        due = as_schedules(schedules)
        options = given_options(
            policy,
            target=target,
            source=source,
            chunk=chunk,
            chunk_bytes=chunk_bytes,
            chunk_time=chunk_time,
            memory=memory,
            partitions=partitions,
            over=over,
            skip_limit=skip_limit,
            retry_limit=retry_limit,
            retry_backoff=retry_backoff,
            crash_limit=crash_limit,
            read_ahead=read_ahead,
            concurrency=concurrency,
        )

        def declare(given: Any) -> BulkJob:
            named = name or str(getattr(given, "__name__", ""))
            read_policy = self._policy(named, "bulk", bool(due), {"effects": "fenced", "chunk": chunk, **policy})
            parts = {"read": read, "process": process, "writer": writer}
            made = declare_bulk(
                cast("App", self), given, due, name=name, params=params, parts=parts, words=options, policy=read_policy
            )
            self.bulks[made.name] = made
            self.declared_in[made.name] = _calling_module()
            return made

        return declare

    def _declared(
        self,
        function: Callable[..., R],
        schedules: tuple[Schedule, ...],
        *,
        name: str | None,
        batch_type: str | None,
        params: Mapping[str, Any] | None,
        policy: Mapping[str, Any],
    ) -> JobFunction[..., R]:
        inner = function.job.function if isinstance(function, JobFunction) else function
        named = name or str(getattr(inner, "__name__", ""))
        job = Job.of(
            inner,
            name=name,
            policy=self._policy(named, batch_type, bool(schedules), policy),
            schedules=schedules,
            params=params,
            secrets=self.secrets,
        )
        self.jobs.add(job)
        self.declared_in[job.name] = _calling_module()
        return JobFunction(cast("App", self), job)

    def _policy(self, name: str, batch_type: str | None, is_scheduled: bool, words: Mapping[str, Any]) -> Policy:
        """Read the policy. The settings file overrides the code."""
        batch_type = batch_type or ("scheduled" if is_scheduled else "manual")
        try:
            policy = Policy.of(batch_type, **words)
        except ConfigurationError as error:
            raise type(error)(f"job {name!r}: {error}") from None
        overrides = self.settings.jobs.get(name)
        if not overrides:
            return policy
        try:
            return Policy.of(**{"type": batch_type, **words, **overrides})
        except ConfigurationError as error:
            raise InvalidSetting(f"[jobs.{name}] in the settings file: {error}") from None


def _calling_module() -> str:
    """Return the name of the calling module: the nearest on the stack that is not part of Fencepost."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] != _OURS:
            return name
        frame = frame.f_back
    return ""
