"""The application: jobs, where they are recorded, and this process's part in running them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack

from fencepost.app.declaring import RequestOptions
from fencepost.app.job_decorators import JobDecorators
from fencepost.app.lifecycle import Lifecycle, Running
from fencepost.app.operations import Operations
from fencepost.app.schedules import Schedules
from fencepost.config import read_settings
from fencepost.core.duration import Duration
from fencepost.core.events import Event, Observer, What
from fencepost.core.identity import node_name
from fencepost.core.rights import Scope
from fencepost.core.runtime import Runtime
from fencepost.core.timings import SHUTDOWN_GRACE
from fencepost.engine.context import RunContext
from fencepost.engine.jobs import Jobs
from fencepost.engine.known_secrets import SecretSource, known_secret
from fencepost.engine.logs.run_logs import RunLogs
from fencepost.leases.exclusive_options import LockWishes
from fencepost.leases.lock import Lock
from fencepost.leases.locks import Locks
from fencepost.leases.observers import Observers
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.migrations import ready_schema
from fencepost.ledger.recording import Enqueued
from fencepost.observe.logs import EventLog
from fencepost.threaded import ThreadedRuntime

if TYPE_CHECKING:
    pass

_SHORTEST_SILENCE_S = 1.0  # a process on a busy machine stalls for less than this inside a short transaction

P = ParamSpec("P")
R = TypeVar("R")


class App(JobDecorators):
    """Your jobs, and the ledger they are recorded in.

    ::

        from fencepost import App, cron

        app = App()                                   # sqlite:///fencepost.db; or postgresql://…, mysql://…

        @app.job(cron("*/5 * * * *", tz="Asia/Seoul"), timeout="10m")
        def settle(run):
            with run.transaction() as tx:
                tx.execute(...)

    Making one connects to nothing. Jobs are executed by ``fencepost run module:app``, or by this process between
    `start` and `stop`. It may be made before a fork (gunicorn's ``preload_app``); then start it in each worker.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        leases: str | None = None,
        name: str | None = None,
        ttl: Duration | None = None,
        queues: Sequence[str] | None = None,
        slots: int | None = None,
        generation: int | None = None,
        leader: bool | None = None,
        logs: str | None = None,
        config: str | os.PathLike[str] | None = None,
        runtime: Runtime | None = None,
        observers: Iterable[Observer] = (),
        secrets: SecretSource | None = None,
    ) -> None:
        """Collect the settings: file < environment < arguments. See `fencepost.config`.

        Args:
            url: the database of schedules, runs and all that happened.
            leases: another store whose leases guard exclusive runs and `lock`: ``etcd://…``, ``redis://…``.
            name: what to call this machine in the records, instead of its host name.
            ttl: how long a node that stopped renewing keeps its leases. Default 30 s.
            queues: the queues from which this process takes runs.
            slots: how many runs it executes at once.
            generation: the number of this deploy. An earlier deploy does not overwrite what a later one has recorded.
            leader: let one node at a time plan for all nodes, which saves the others the work.
            logs: ``"off"`` keeps no logs of runs. Default ``"on"``; see docs/logs.md.
            config: a settings file, instead of the one in the working directory.
            runtime: for simulation and tests.
            observers: called with every `Event`, on the thread where it happens. Events are logged in any case.
            secrets: returns the value of a secret by its name, or raises `LookupError`; for jobs with `Secret[str]`
                parameters, called in the process that runs them. Default: environment variables and files, see
                docs/secrets.md.
        """
        given = {
            "url": url,
            "leases": leases,
            "name": name,
            "ttl": ttl,
            "queues": queues,
            "slots": slots,
            "generation": generation,
            "leader": leader,
            "logs": logs,
        }
        self.settings = read_settings(given, config=config).resolved()
        self.runtime: Runtime = runtime or ThreadedRuntime()
        self.secrets = secrets or known_secret
        self.jobs = Jobs()
        self.bulks = {}
        self.declared_in = {}
        self._observers = Observers([EventLog(lambda: self.node_name), *observers])
        self._lifecycle = Lifecycle(self)
        self._opening = self.runtime.lock()
        self._ledger: Ledger | None = None
        self._run_logs: RunLogs | None = None
        self._locks: dict[str, Locks] = {}  # the application's own locks, by URL
        self.node_name = self._new_name()
        self.runtime.after_fork(self, self._forget)

    def __repr__(self) -> str:
        return f"<App on {self.settings.shown()[0][1]}, {len(self.jobs)} jobs>"

    # -- requesting runs ---------------------------------------------------------------------------------------------

    def enqueue(
        self, job: str, *, params: Mapping[str, Any] | None = None, **options: Unpack[RequestOptions]
    ) -> Enqueued:
        """Request a run of a job by its name. Another deploy may own the job. See `JobHandle.enqueue`."""
        return self.operations.enqueue(job, params or {}, **options)

    def lock(self, name: str, **wishes: Unpack[LockWishes]) -> Lock:
        """Return a lock on the application's lease store. The options are those of `fencepost.locks.Locks.lock`.

        ::

            with app.lock("month-end", wait="5s") as lease:
                close_the_books(token=lease.token)
        """
        return self.locks.lock(name, **wishes)

    # -- ledger and locks --------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """The ledger. The first access opens it and checks its schema."""
        if self._ledger is None:
            with self._opening:
                if self._ledger is None:
                    ledger = open_ledger(self.settings.url, self.runtime)
                    ledger.bound_silence(max(self.settings.timings.renew_every_s, _SHORTEST_SILENCE_S))
                    try:
                        ready_schema(ledger)
                    except BaseException:
                        ledger.close()
                        raise
                    self._ledger = ledger
        return self._ledger

    @property
    def locks(self) -> Locks:
        """The lease store for the application's own locks. The first access opens it."""
        return self._locks_at(self.settings.leases or self.ledger.url.lease_url())

    def _locks_at(self, url: str) -> Locks:
        from fencepost.app.composing import open_locks  # noqa: PLC0415 - needed only to run jobs or to lock

        with self._opening:
            if url not in self._locks:
                self._locks[url] = open_locks(self, url)
            return self._locks[url]

    @property
    def operations(self) -> Operations:
        """What operators do: trigger, retry, cancel, back-fill, and query the history."""
        return Operations(
            self.ledger,
            Scope.direct(),
            known=self.jobs,
            generation=self.settings.generation,
            wake=self.wake,
            locks=self._node_locks,
            leases=None if self.settings.leases is None else lambda: self.locks,
            bulks=self.bulks,
        )

    @property
    def run_logs(self) -> RunLogs | None:
        """Where this process collects the logs of its runs; None if the settings say that none are kept."""
        if self._run_logs is None and self.settings.logs == "on":
            self._run_logs = RunLogs(self.runtime)
        return self._run_logs

    @property
    def schedules(self) -> Schedules:
        """Schedules at run time: put, get, list, pause, resume, delete."""
        return self.operations.schedules

    def wake(self) -> None:
        """Have the node of this process, if there is one, look for work now."""
        self._lifecycle.wake()

    def _node_locks(self) -> Locks:
        """Return the lease store of the nodes' sessions, which is the ledger's database."""
        return self._locks_at(self.ledger.url.lease_url())

    def worker_context(self) -> RunContext:
        """Return the context of runs in this process. The runner adds its own fields."""
        return RunContext(
            node=self.node_name, runtime=self.runtime, ledger=lambda: self.ledger, ttl_s=self.settings.ttl_s
        )

    def emit(self, event: Event) -> None:
        """Pass an event to every observer."""
        self._observers(event)

    def wants(self, what: What) -> bool:
        """Whether any observer takes events of this kind. If not, the caller need not create one."""
        return self._observers.wants(what)

    # -- running -----------------------------------------------------------------------------------------------------

    def start(self, *, processes: bool = False) -> None:
        """Take part in running the jobs, in this process, on threads and an event loop of its own.

        With `processes`, jobs run in worker processes, as with ``fencepost run``: they can be killed, and nothing that
        they do keeps this process from renewing its lease. Workers import the application by its name, so it and its
        jobs have to be in modules, not in a script or a notebook.

        Returns when this process is a node. A second call has no effect. A forked child is not started.
        """
        self._lifecycle.start(processes=processes)

    def stop(self, grace: Duration = SHUTDOWN_GRACE) -> None:
        """Claim no more runs, give the executing ones `grace` to end, and leave."""
        self._lifecycle.stop(grace)

    def running(self, grace: Duration = SHUTDOWN_GRACE, *, processes: bool = False) -> Running:
        """Start, and stop at the end of the block: ``with app.running():`` or ``async with app.running():``."""
        return Running(self._lifecycle, grace, processes=processes)

    @property
    def is_running(self) -> bool:
        """Whether this process is a node."""
        return self._lifecycle.is_running

    def close(self) -> None:
        """Stop, and close every connection. The application can be used again and then reconnects."""
        from fencepost.engine.engines import close_engine  # noqa: PLC0415 - most applications never have one

        self.stop()
        opened, self._locks = self._locks, {}
        ledger, self._ledger = self._ledger, None
        for locks in opened.values():
            locks.close()
        if ledger is not None:
            close_engine(ledger)
            ledger.close()

    def _new_name(self) -> str:
        runtime = self.runtime
        return node_name(host=self.settings.name or runtime.host(), pid=runtime.process_id(), start_id=runtime.new_id())

    def _forget(self) -> None:
        """Reset the state in a forked child: the parent stays the node."""
        self._opening = self.runtime.lock()
        self._run_logs = None
        self._lifecycle.forget()
        self.node_name = self._new_name()
