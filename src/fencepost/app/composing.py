"""Builds a node from an application: settings, ledger, leases and runners.

Nodes differ only in the runners they bring: threads and an event loop in this process (``app.start()``), or worker
processes (``fencepost run`` and ``app.start(processes=True)``: `fencepost.app.worker_processes`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fencepost.app.free_files import FreeFiles
from fencepost.app.one_machine import warn_of_one_machine
from fencepost.app.processors import processors
from fencepost.config import unknown_variables
from fencepost.core import runtime
from fencepost.core.events import Event, What
from fencepost.core.identity import canonical_json
from fencepost.core.nearest import suggestion
from fencepost.core.schedule import schedule_to_json
from fencepost.engine.node import Node
from fencepost.engine.node_state import NodeSettings, NodeState
from fencepost.engine.requesting import on_record
from fencepost.engine.runners.kinds import RunnerParts, local_runners
from fencepost.engine.runners.runner import Runner
from fencepost.errors import InvalidSetting, LedgerUnavailable, StoreUnavailable
from fencepost.leases.locks import Locks
from fencepost.leases.schemes import store_from_url
from fencepost.ledger.declared import Declarations, apply
from fencepost.ledger.migrations import NEWEST
from fencepost.ledger.rights import check_rights
from fencepost.ledger.schedule_rows import NewSchedule
from fencepost.schema import effects
from fencepost.schema.revisions import recorded
from fencepost.sql.full_server import is_busy_file, is_full

if TYPE_CHECKING:
    from fencepost.app.application import App

_FEWEST_SLOTS = 10  # jobs on threads mostly wait for databases and networks
_FREE_WITHIN_S = 300.0  # a server that is full, or a file that is busy, for longer needs an operator
_ASK_AGAIN_S = 1.0  # a full server frees connections in seconds; spread, so that nodes do not ask together
_WHEN_IT_ANSWERS = "this node starts when it answers"


class Composed:
    """A node and the lease stores that it alone uses: started together, stopped together."""

    def __init__(self, node: Node, locks: tuple[Locks, ...]) -> None:
        self.node = node
        self._locks = locks

    def start(self) -> None:
        """Start the node. If that fails, close the lease stores."""
        try:
            self.node.start()
        except BaseException:
            self._close()
            raise

    def stop(self, grace_s: float) -> None:
        """Stop the node, giving its runs `grace_s` to end, and close the lease stores."""
        try:
            self.node.stop(grace_s)
        finally:
            self._close()

    def _close(self) -> None:
        for locks in self._locks:
            locks.close()


def compose(app: App, runners: Mapping[str, Runner] | None = None, *, slots: int | None = None) -> Composed:
    """Make a node of `app`. `runners` maps kinds of jobs to runners; by default those inside this process.

    `slots` is how many runs they execute at once, where that differs from the settings.

    After it has joined, the node records the jobs and schedules of the code, so that every node and command sees them.
    """
    refuse_unknown_jobs(app)
    check_rights(app.ledger)
    settings = app.settings
    urls = [app.ledger.url.lease_url(), *([] if settings.leases is None else [settings.leases])]
    opened: list[Locks] = []
    try:
        for url in urls:
            opened.append(open_locks(app, url))  # noqa: PERF401 - what was opened before one fails is to be closed
        return Composed(_node(app, runners, opened, slots), tuple(opened))
    except BaseException:
        for locks in opened:
            locks.close()
        raise


class StartCalledOff(Exception):
    """A node was stop_requested to leave while it waited to start."""


def start_node(
    app: App,
    runners: Callable[[], Mapping[str, Runner]] | None = None,
    *,
    slots: int | None = None,
    stop_requested: runtime.Flag | None = None,
) -> Composed:
    """Make a node of `app` and start it. Wait for resources that others are expected to release soon.

    These are a connection, where the server has none free, and a SQLite file to which others write. On a busy machine
    that may take longer than the timeout of a call. If `stop_requested` is set meanwhile, raise `StartCalledOff`.
    """
    give_up_at, is_warned, is_reported = app.runtime.monotonic() + _FREE_WITHIN_S, False, False
    files = FreeFiles(app)

    def report(reason: str) -> None:
        nonlocal is_reported
        if not is_reported:
            app.emit(Event(What.LEDGER_TROUBLE, node=app.node_name, reason=reason))
        is_reported = True

    def pause(for_s: float) -> None:
        if stop_requested is None:
            app.runtime.sleep(for_s)
        elif stop_requested.wait(for_s):
            raise StartCalledOff

    while True:
        try:
            files.wait(give_up_at, lambda why: report(f"{why}; {_WHEN_IT_ANSWERS}"), pause)
            if not is_warned:
                warn(app)
            is_warned = True
            return _started(app, compose(app, None if runners is None else runners(), slots=slots))
        except (LedgerUnavailable, StoreUnavailable) as error:
            reason = _waits_for(error)
            if reason is None or app.runtime.monotonic() > give_up_at:
                raise
            report(reason)
        pause(_ASK_AGAIN_S * (0.5 + app.runtime.random()))


def _waits_for(error: Exception) -> str | None:
    """Return what the start waits for; None if waiting does not help."""
    if is_full(error):
        return f"{error}; this node starts when one is free"
    return f"{error}; {_WHEN_IT_ANSWERS}" if is_busy_file(error) else None


def _started(app: App, composed: Composed) -> Composed:
    composed.start()
    warn_of_one_machine(
        app
    )  # after the start: a reader of the log who looks for why it failed must not find this first
    return composed


def _node(app: App, runners: Mapping[str, Runner] | None, opened: Sequence[Locks], slots: int | None) -> Node:
    state = NodeState(
        ledger=app.ledger,
        locks=opened[0],
        gate_locks=opened[1] if len(opened) > 1 else None,
        jobs=app.jobs,
        runners=local_runners(runner_parts(app)) if runners is None else runners,
        runtime=app.runtime,
        settings=node_settings(app, slots),
        declared=declared_by(app),
        emit=app.emit,
        wants=app.wants,
        logs=app.run_logs,
    )
    return Node(state, publish=partial(publish, app))


def open_locks(app: App, url: str) -> Locks:
    """Connect to a lease store."""
    locks = Locks(store_from_url(url, app.runtime), runtime=app.runtime, holder=app.settings.name, observers=[app.emit])
    locks.start()
    return locks


def node_settings(app: App, slots: int | None = None) -> NodeSettings:
    """Return the settings of the node."""
    from fencepost import __version__  # noqa: PLC0415 - the package imports us

    settings = app.settings
    return NodeSettings(
        name=app.node_name,
        version=recorded(__version__, NEWEST, effects.NEWEST),
        timings=settings.timings,
        queues=settings.queues,
        slots=slots or slots_of(app),
        generation=settings.generation,
        leader=settings.leader,
        retention=settings.retention,
    )


def slots_of(app: App) -> int:
    """Return how many runs may execute at once: as set, or twice the processors, and at least 10."""
    return app.settings.slots or max(_FEWEST_SLOTS, 2 * processors())


def runner_parts(app: App) -> RunnerParts:
    """Return what every runner of `app` is built from."""
    return RunnerParts(
        jobs=app.jobs,
        context=app.worker_context(),
        slots=slots_of(app),
        timings=app.settings.timings,
        emit=app.emit,
        logs=app.run_logs,
    )


def declared_by(app: App) -> Declarations:
    """Return the jobs and schedules of the code, as they are recorded."""
    schedules = [
        NewSchedule(each.id, job.name, schedule_to_json(each.schedule), canonical_json(each.params))
        for job in app.jobs.values()
        for each in job.schedules
    ]
    return Declarations(tuple(on_record(job) for job in app.jobs.values()), tuple(schedules), app.settings.generation)


def publish(app: App) -> None:
    """Record the jobs and schedules of the code. What a later deploy has recorded stays."""
    declared = declared_by(app)
    generation = declared.generation
    try:
        applied = apply(app.ledger, declared)
    except LedgerUnavailable:  # perhaps the server ended a transaction because this process was slow; to repeat is safe
        applied = apply(app.ledger, declared)
    for name in applied.kept:
        app.emit(Event(What.RUNNER_WARNING, job=name, reason=_KEPT_JOB.format(generation)))
    for name in sorted(applied.yielded):
        app.emit(Event(What.RUNNER_WARNING, job=name, reason=_YIELDED_JOB))
    for name in sorted(applied.waiting):
        app.emit(Event(What.RUNNER_WARNING, job=name, reason=_WAITING_JOB))
    of_schedule = {each.id: each.job for each in declared.schedules}
    for schedule in applied.synced.kept:
        reason = _KEPT_SCHEDULE.format(schedule, generation)
        app.emit(Event(What.RUNNER_WARNING, job=of_schedule.get(schedule, schedule), reason=reason))


_KEPT_JOB = (
    "a later deploy than this one of generation {} has recorded the job differently, and that stays; on this node its "
    "runs use the code of this deploy"
)
_YIELDED_JOB = (
    "nodes of a later deploy have this job, so its schedules and settings stay as they declare them until the last of "
    "them has left; on this node its runs use the code of this deploy"
)
_WAITING_JOB = (
    "a living node has this job under its former name, so its schedules stay there, and that node runs them, until the "
    "last such node has left"
)
_KEPT_SCHEDULE = (
    "the schedule {!r} was recorded differently by a later deploy than this one of generation {}, or by a person at "
    "run time; that stays, and is what is planned"
)


def warn(app: App) -> None:
    """Warn of settings that are allowed but probably not intended."""
    for doubt in doubts(app):
        app.emit(Event(What.RUNNER_WARNING, reason=doubt))


def doubts(app: App) -> list[str]:
    """Return settings that are allowed but probably not intended, each as a sentence."""
    found = unknown_variables(os.environ)
    if not app.jobs:
        found.append(
            "the application has no jobs, so this node will run nothing; is the module that declares them imported "
            "where the App is?"
        )
    elif doubt := doubtful_queues(app.settings.queues, {job.policy.queue for job in app.jobs.values()}):
        found.append(doubt)
    return found


def doubtful_queues(taken: Sequence[str], known: Collection[str]) -> str | None:
    """Return what is odd about the queues from which a node takes runs, given those of its jobs; None if nothing is.

    Not an error: somebody may change the queue of a job in the settings of another node, or later.
    """
    unknown = [each for each in dict.fromkeys(taken) if each not in known]
    if not unknown:
        return None
    near = suggestion(unknown[0], known)
    have = f"jobs of this application have the queue{'' if len(known) == 1 else 's'} {', '.join(sorted(known))}"
    hint = f" ({near})" if near.startswith("did") else ""
    set_by = "set it with --queues, FENCEPOST_QUEUES or queues="
    if len(unknown) == len(set(taken)):
        return (
            f"this node takes runs from {', '.join(unknown)} alone, so it runs none of its jobs: {have}{hint}; {set_by}"
        )
    return f"no job has the queue {', '.join(unknown)}, from which this node takes runs: {have}{hint}; {set_by}"


def refuse_unknown_jobs(app: App) -> None:
    """Refuse settings of jobs that do not exist: a misspelt name must not be ignored."""
    for name in app.settings.jobs:
        if name not in app.jobs:
            raise InvalidSetting(
                f"[jobs.{name}] in the settings file: there is no job {name!r}; {suggestion(name, app.jobs)}"
            )
