"""Queries for operators: runs, nodes, jobs, the journal, and what became of a due time. Changes nothing.

Nothing here needs the job's code: what a deploy has recorded in the ledger is enough. The answers are records, as
`fencepost.app.records` describes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack

from fencepost.app.auditing import Audit
from fencepost.app.concerns import Concerns
from fencepost.app.figures import figures_of
from fencepost.app.held import held_because
from fencepost.app.lease_places import LEDGER, leases_of
from fencepost.app.lock_operations import LockOperations
from fencepost.app.numbers import existing_run_id, is_id, page_edge, page_limit
from fencepost.app.records import (
    AttemptRecord,
    FiguresRecord,
    JobRecord,
    JournalRecord,
    LockRecord,
    LogRecord,
    NodeNames,
    NodeRecord,
    PartRecord,
    RunRecord,
    RunsFound,
    WhyRecord,
)
from fencepost.app.records.record import read_json
from fencepost.app.scoped import masked
from fencepost.app.searching import KeyedIds, RunSearch, checked_params, find_runs
from fencepost.app.waiting import ClusterState, why_it_waits
from fencepost.core.grants import Grant, SessionSight
from fencepost.core.log_chunks import Position, with_missing
from fencepost.core.names import LEADER_LEASE
from fencepost.core.nearest import suggestion
from fencepost.core.noted import Noted
from fencepost.core.rights import HumanAct, Scope
from fencepost.core.runtime import Runtime
from fencepost.core.states import RunState
from fencepost.core.tick import instant
from fencepost.engine.requesting import instant_us
from fencepost.engine.why import unknown_job, why
from fencepost.errors import InvalidParameters, LedgerRefused, StoreRefused, StoreUnavailable
from fencepost.leases.locks import Locks
from fencepost.ledger import history, journal, nodes
from fencepost.ledger import jobs as job_rows
from fencepost.ledger.history import RunFilter, RunRow
from fencepost.ledger.jobs import JobRow
from fencepost.ledger.journal import About
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.log_chunks import chunks_of
from fencepost.ledger.nodes import NodeRow
from fencepost.ledger.parts import parts_of
from fencepost.ledger.renaming import formers, name_now
from fencepost.ledger.search_keys import declared_names, ids_with

_USUAL_QUEUE = "default"  # of a policy that names none
_LARGEST_PAGE = 10_000  # of a search


class Looking:
    """Queries of one ledger."""

    def __init__(
        self,
        ledger: Ledger,
        scope: Scope,
        *,
        locks: Callable[[], Locks] | None = None,
        leases: Callable[[], Locks] | None = None,
    ) -> None:
        """Look at `ledger`, as far as `scope` allows. `locks` is the nodes' lease store, if it is open already.

        `leases` is the other store that the application names for its locks, if it does.
        """
        self._ledger = ledger
        self._scope = scope
        self._locks = locks
        self._leases = leases
        self._names: dict[str, str] = {}  # names of nodes, by their ids

    @property
    def audit(self) -> Audit:
        """The acts of people, in a chain of hashes: list, verify, anchor, export, prune."""
        return Audit(self._ledger, self._scope)

    @property
    def locks(self) -> LockOperations:
        """Locks and exclusive keys: list, show, release, reset."""
        return LockOperations(
            self._ledger, self._scope, locks=self._locks, leases=self._leases, node_names=self._node_names
        )

    @property
    def concerns(self) -> Concerns:
        """What needs a person now, and who knows of it: list, changes, acknowledge, unacknowledge."""
        return Concerns(self._ledger, self._scope, self, self._shown)

    @property
    def ledger(self) -> Ledger:
        """The ledger that is asked. What is read from it by other ways is not bounded by the scope."""
        return self._ledger

    @property
    def runtime(self) -> Runtime:
        """The clocks of this process, for callers that poll."""
        return self._ledger.runtime

    def why(self, job: str, at: datetime | str | None = None) -> list[WhyRecord]:
        """Return what became of a due time: one answer per schedule of the job that it concerns.

        `job` may also be the id of a schedule. Without `at`, answer for the latest due time of each schedule.
        """
        answers = why(self._ledger, job, None if at is None else instant_us(at, what="at"), scope=self._scope)
        runs = iter(self._shown([each.run for each in answers if each.run is not None]))
        return [WhyRecord.of(each, run=None if each.run is None else next(runs)) for each in answers]

    def runs(
        self,
        *,
        job: str | None = None,
        states: Collection[str] = (),
        waits_for: str | None = None,
        schedule: str | None = None,
        queue: str | None = None,
        node: str | None = None,
        requested_by: str | None = None,
        retry_of: int | None = None,
        exclusive_key: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        ids: Collection[int] | None = None,
        before_id: int | None = None,
        after_id: int | None = None,
        limit: int = 100,
    ) -> list[RunRecord]:
        """Return a page of runs, newest first; with `after_id` those after it, oldest first.

        None does not filter. `since` and `until` compare the time of creation.
        """
        where = RunSearch(job=job, states=states, waits_for=waits_for, schedule=schedule, queue=queue, node=node)
        whose = RunSearch(requested_by=requested_by, retry_of=retry_of, exclusive_key=exclusive_key, ids=ids)
        wanted = self._wanted(**where | whose | RunSearch(since=since, until=until))
        return self._page(wanted, before_id=page_edge(before_id), after_id=page_edge(after_id), limit=page_limit(limit))

    def find_runs(
        self, *, before_id: int | None = None, after_id: int | None = None, limit: int = 100, **asked: Unpack[RunSearch]
    ) -> RunsFound:
        """Return a page of runs as `runs` does, within bounds: where no index helps, say how far the search came.

        `params` are texts by the names of parameters: ``{"customer": "7"}``. A search key that the job declares, or any
        job if none is given, leads to its runs over all history; other parameters are compared run by run.
        """
        filtered = self._wanted(**asked)
        before, after, most = page_edge(before_id), page_edge(after_id), min(page_limit(limit), _LARGEST_PAGE)
        return find_runs(
            self._page,
            filtered,
            size=most,
            clock=self._ledger.runtime.monotonic,
            before_id=before,
            after_id=after,
            keyed=self._keyed(filtered),
        )

    def _wanted(self, **wanted: Unpack[RunSearch]) -> RunFilter:
        for name in wanted.keys() - RunSearch.__annotations__.keys():
            raise TypeError(f"runs cannot be looked for by {name!r}; {suggestion(name, RunSearch.__annotations__)}")
        ids, retry_of = wanted.get("ids"), wanted.get("retry_of")
        return RunFilter(
            job=wanted.get("job"),
            jobs=self._scope.visible if retry_of is None or is_id(retry_of) else (),
            states=_known_states(wanted.get("states", ())),
            waits_for=wanted.get("waits_for"),
            schedule=wanted.get("schedule"),
            queue=wanted.get("queue"),
            node=wanted.get("node"),
            requested_by=wanted.get("requested_by"),
            retry_of=retry_of,
            exclusive_key=wanted.get("exclusive_key"),
            since_us=optional_us(wanted.get("since"), "since"),
            until_us=optional_us(wanted.get("until"), "until"),
            ids=None if ids is None else [each for each in ids if is_id(each)],
            params=checked_params(wanted.get("params")) or None,
        )

    def _page(
        self, wanted: RunFilter, *, before_id: int | None = None, after_id: int | None = None, limit: int
    ) -> list[RunRecord]:
        return self._shown(history.runs(self._ledger, wanted, before_id=before_id, after_id=after_id, limit=limit))

    def _keyed(self, wanted: RunFilter) -> KeyedIds | None:
        """Return what leads to the runs with one of these parameters, if a job of the scope declares it."""
        if not wanted.params or wanted.finds_nothing:
            return None
        jobs_ = wanted.jobs if wanted.job is None else (wanted.job,)
        declared = frozenset[str]().union(*declared_names(self._ledger, jobs=jobs_).values())
        for name, text in wanted.params.items():
            if name in declared:
                return lambda before_id, limit: ids_with(
                    self._ledger, name, text, before_id=before_id, limit=limit, jobs=wanted.jobs
                )
        return None

    def run(self, run_id: int) -> RunRecord:
        """Return one run, or raise `NoSuchRun`."""
        return self._shown([self._run(run_id)])[0]

    def waits(self, run_id: int) -> str | None:
        """Return a sentence that says what a run waits for; None if it does not wait."""
        return why_it_waits(ClusterState(self._ledger, self._sights), self._run(run_id), self._scope)

    def waits_of(self, run_ids: Collection[int]) -> dict[int, str]:
        """Return the same for several runs, by their ids, for the cost of one; those that do not wait are left out."""
        cluster, ids = ClusterState(self._ledger, self._sights), [each for each in run_ids if is_id(each)]
        wanted = RunFilter(jobs=self._scope.visible, ids=ids)
        rows = history.runs(self._ledger, wanted, limit=page_limit(len(ids))) if ids else []
        said = {row.id: why_it_waits(cluster, row, self._scope) for row in rows}
        return {run_id: words for run_id, words in said.items() if words is not None}

    def now(self) -> datetime:
        """Return the present time of the ledger's clock, in UTC."""
        return instant(self._ledger.now_us())

    def held_because(self) -> str | None:
        """Return why nodes do nothing with this ledger until a person decides what it is; None if it is not held."""
        return held_because(self._ledger)

    def attempts(self, run_id: int) -> list[AttemptRecord]:
        """Return the attempts of a run that have ended, in their order."""
        found = history.attempts(self._ledger, self._visible_id(run_id))
        names = self._node_names(row.node for row in found)
        return [AttemptRecord.of(row, nodes=names) for row in found]

    def log(
        self, run_id: int, *, attempt: int | None = None, after: str | None = None, limit: int = 100
    ) -> list[LogRecord]:
        """Return what a run wrote, in order: of one attempt or of all, after the `position` of a record.

        While a run goes on, ask again with the last position for what came since.
        """
        place, most = _position(after), page_limit(limit)
        found = chunks_of(self._ledger, self._visible_id(run_id), attempt=attempt, after=place, limit=most)
        return [
            LogRecord.of(chunk, missing=missing, position=position)
            for chunk, missing, position in with_missing(found, place)
        ]

    def parts(self, run_id: int) -> list[PartRecord]:
        """Return the runs that a run of a bulk job has made for its partitions, in the order of their creation."""
        found = parts_of(self._ledger, self._visible_id(run_id), jobs=self._scope.visible)
        return [PartRecord.of(part) for part in found]

    def nodes(self, *, living: bool = False, limit: int = 100) -> list[NodeRecord]:
        """Return nodes, the living first; with `living`, all living nodes, the oldest first.

        Within a scope: those that have one of its jobs, with these jobs, their queues and their runs.
        """
        most, allowed = page_limit(limit), self._scope.visible
        found = nodes.living_nodes(self._ledger) if living else nodes.nodes(self._ledger, limit=most, jobs=allowed)
        if allowed is not None:
            found = self._nodes_within(found, allowed)
        running = history.running_by_node(self._ledger, jobs=allowed) if found else {}
        sights = self._sights([row.grant for row in found if row.is_living])
        return [NodeRecord.of(row, running=running.get(row.id, 0), sights=sights) for row in found]

    def _sights(self, grants: Sequence[Grant]) -> Mapping[str, SessionSight] | None:
        """Return how the sessions of nodes look in the lease store; None if it does not answer."""
        try:
            return leases_of(self._ledger, self._locks).sessions(grants) if grants else {}
        except (StoreUnavailable, StoreRefused, LedgerRefused):
            return None

    def _nodes_within(self, found: Sequence[NodeRow], allowed: frozenset[str]) -> list[NodeRow]:
        policies = [_policy(row.policy) for row in job_rows.jobs(self._ledger, names=allowed)]
        queues = {policy.get("queue", _USUAL_QUEUE) for policy in policies}
        shown = (
            row._replace(
                jobs=tuple(job for job in row.jobs if job in allowed),
                queues=tuple(queue for queue in row.queues if queue in queues),
            )
            for row in found
        )
        return [row for row in shown if row.jobs]

    def jobs(self) -> list[JobRecord]:
        """Return the jobs that any deploy has recorded, by name."""
        found = job_rows.jobs(self._ledger, names=self._scope.visible)
        on_nodes = Counter(name for node in nodes.living_nodes(self._ledger) for name in node.jobs)
        newer = _newer_names(found, on_nodes)
        return [JobRecord.of(row, nodes=on_nodes[row.name], renamed_to=newer.get(row.name)) for row in found]

    def job(self, name: str) -> JobRecord:
        """Return one job, or raise `NoSuchJob` with a suggestion."""
        known = job_rows.jobs(self._ledger, names=self._scope.visible)
        for row in known:
            if row.name == name:
                on_nodes = Counter(each for node in nodes.living_nodes(self._ledger) for each in node.jobs)
                newer = _newer_names(known, on_nodes).get(name)
                return JobRecord.of(row, nodes=on_nodes[name], renamed_to=newer)
        raise unknown_job(name, [row.name for row in known], scope=self._scope)

    def figures(
        self,
        job: str | None = None,
        *,
        since: datetime | str | None = None,
        jobs: Collection[str] | None = None,
        after: str = "",
        limit: int = 100,
    ) -> list[FiguresRecord]:
        """Return how the attempts of jobs ended and how long they took, hour by hour: of one, of `jobs`, or of all.

        By name: those after `after`, at most `limit`. `since`: by default a day ago. Of `jobs`, those on record count.
        Run times of each hour are returned for one job alone.
        """
        since_us, most = optional_us(since, "since"), page_limit(limit)
        if job is not None:
            names = [self.job(job).name]
        else:
            allowed = self._scope.visible
            wanted = allowed if jobs is None else frozenset(jobs) if allowed is None else allowed.intersection(jobs)
            names = sorted(row.name for row in job_rows.jobs(self._ledger, names=wanted) if row.name > after)[:most]
        return figures_of(self._ledger, names, since_us=since_us, is_one=job is not None)

    def journal(
        self,
        *,
        job: str | None = None,
        run_id: int | None = None,
        about: About | None = None,
        what: str | None = None,
        since: datetime | str | None = None,
        before_id: int | None = None,
        limit: int = 100,
    ) -> list[JournalRecord]:
        """Return lines of the journal, newest first: about a job or a run, or about what `about` names."""
        concerns = about or About(job=job, run_id=run_id)
        if concerns.run_id is not None and not is_id(concerns.run_id):
            return []
        found = journal.entries(
            self._ledger,
            about=concerns,
            jobs=self._scope.visible,
            what=what,
            since_us=optional_us(since, "since"),
            before_id=page_edge(before_id),
            limit=page_limit(limit),
        )
        if what is not None and not found:
            _refuse_unnoted(what)
        names = self._node_names(entry.node for entry in found)
        return [JournalRecord.of(entry._replace(by=self._masked(entry.by)), nodes=names) for entry in found]

    def leader(self) -> LockRecord | None:
        """Return the lock of the present or last leader; None if no node was ever a candidate."""
        self._scope.require(HumanAct.LOOK)
        found = leases_of(self._ledger, self._locks).read(LEADER_LEASE)
        return None if found is None else LockRecord.of(found, store=LEDGER)

    # -- reading records ---------------------------------------------------------------------------------------------

    def _run(self, run_id: int) -> RunRow:
        """Return a run of the scope, or raise `NoSuchRun`."""
        return history.run(self._ledger, existing_run_id(run_id), jobs=self._scope.visible)

    def _visible_id(self, run_id: int) -> int:
        """Return the id; where not every run may be seen, only of one that may be."""
        return existing_run_id(run_id) if self._scope.visible is None else self._run(run_id).id

    def _masked(self, by: str | None) -> str | None:
        return masked(by, self._scope)

    def _shown(self, rows: Sequence[RunRow]) -> list[RunRecord]:
        """Return records of runs. Read the ledger's clock only if a run needs it."""
        rows = [
            row._replace(requested_by=self._masked(row.requested_by), cancel_by=self._masked(row.cancel_by))
            for row in rows
        ]
        names = self._node_names(row.node for row in rows)
        is_open = any(row.sla_at is not None and row.ended_at is None for row in rows)
        now_us = self._ledger.now_us() if is_open else 0
        return [RunRecord.of(row, nodes=names, now_us=now_us) for row in rows]

    def _node_names(self, ids: Iterable[str | None]) -> NodeNames:
        """Return the names of nodes. Each is read once, because it never changes."""
        unknown = {each for each in ids if each is not None} - self._names.keys()
        self._names |= nodes.node_names(self._ledger, unknown)
        return self._names


def _position(text: str | None) -> Position:
    try:
        return Position() if text is None else Position.parse(text)
    except (ValueError, AttributeError):
        raise InvalidParameters(f"after={text!r} is not a position: give that of a record of this log") from None


def optional_us(at: datetime | str | None, what: str) -> int | None:
    """Read an optional instant."""
    return None if at is None else instant_us(at, what=what)


def _newer_names(rows: Sequence[JobRow], living: Mapping[str, int]) -> Mapping[str, str]:
    """Return the present names of jobs that have another one now. `living`: the names that living nodes have."""
    renamed = {former for row in rows for former in formers(row.policy)}
    present = {row.name: name_now(row.name, rows, living) for row in rows if row.name in renamed}
    return {name: newer for name, newer in present.items() if newer != name}


def _policy(stored: str) -> Mapping[str, Any]:
    """Return a policy as it is stored; an empty one if somebody has damaged it."""
    read = read_json(stored)
    return read if isinstance(read, Mapping) else {}


def _known_states(states: Collection[str]) -> Collection[str]:
    """Refuse an unknown state: an empty result would look like an answer."""
    given = (states,) if isinstance(states, str) else states
    for state in given:
        if state not in set(RunState):
            raise InvalidParameters(f"{state!r} is not a state of runs; {suggestion(str(state), RunState)}")
    return given


def _refuse_unnoted(what: str) -> None:
    """Refuse an unknown kind of entry: an empty result would look as if it had never happened."""
    if what not in [*Noted]:
        raise InvalidParameters(f"the journal has no {what!r}; {suggestion(what, sorted(map(str, Noted)))}")
