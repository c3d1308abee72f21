"""What operators look at: runs, nodes, jobs, the journal, and what became of a due time. Changes nothing.

Nothing here needs the job's code: what a deploy has put into the ledger is enough. What is returned are records, as
`fencepost.app.records` describes them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from fencepost.app.auditing import Audit
from fencepost.app.held import held_because
from fencepost.app.numbers import existing_run_id, is_id, page_edge, page_limit
from fencepost.app.records import (
    AttemptRecord,
    JobRecord,
    JournalRecord,
    LockRecord,
    NodeNames,
    NodeRecord,
    PartRecord,
    RunRecord,
    WhyRecord,
)
from fencepost.app.scoped import masked
from fencepost.app.waiting import why_it_waits
from fencepost.core.nearest import suggestion
from fencepost.core.noted import Noted
from fencepost.core.rights import HumanAct, Scope
from fencepost.core.runtime import Runtime
from fencepost.core.states import RunState
from fencepost.core.tick import instant
from fencepost.engine.requesting import instant_us
from fencepost.engine.why import why
from fencepost.errors import InvalidParameters, NoSuchJob
from fencepost.leases.locks import Locks
from fencepost.ledger import history, jobs, journal, nodes
from fencepost.ledger.history import RunFilter, RunRow
from fencepost.ledger.journal import About
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.nodes import NodeRow
from fencepost.ledger.parts import parts_of
from fencepost.locks import connect

_USUAL_QUEUE = "default"  # of a policy that names none


class Looking:
    """Questions to one ledger."""

    def __init__(self, ledger: Ledger, scope: Scope, *, locks: Callable[[], Locks] | None = None) -> None:
        """Look at `ledger`, as far as `scope` allows. `locks` is the nodes' lease store, if it is open already."""
        self._ledger = ledger
        self._scope = scope
        self._locks = locks
        self._names: dict[str, str] = {}  # of nodes, by their ids

    @property
    def audit(self) -> Audit:
        """What people did, in a chain of hashes: list, verify, anchor, export, prune."""
        return Audit(self._ledger, self._scope)

    @property
    def ledger(self) -> Ledger:
        """The ledger that is asked. What is read from it by other ways is not bounded by the scope."""
        return self._ledger

    @property
    def runtime(self) -> Runtime:
        """The clocks of this process: how those sleep who look again and again."""
        return self._ledger.runtime

    def why(self, job: str, at: datetime | str | None = None) -> list[WhyRecord]:
        """Say what became of a due time: one answer per schedule of the job that has something to say of it.

        `job` may also be the id of a schedule. Without a time, what became of the latest due time of each schedule.
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

        What is None does not matter. `since` and `until` are about when they were made.
        """
        if retry_of is not None and not is_id(retry_of):
            return []
        wanted = RunFilter(
            job=job,
            jobs=self._scope.visible,
            states=_known_states(states),
            waits_for=waits_for,
            schedule=schedule,
            queue=queue,
            node=node,
            requested_by=requested_by,
            retry_of=retry_of,
            exclusive_key=exclusive_key,
            since_us=optional_us(since, "since"),
            until_us=optional_us(until, "until"),
            ids=None if ids is None else [each for each in ids if is_id(each)],
        )
        before, after, most = page_edge(before_id), page_edge(after_id), page_limit(limit)
        return self._shown(history.runs(self._ledger, wanted, before_id=before, after_id=after, limit=most))

    def run(self, run_id: int) -> RunRecord:
        """Return one run, or raise `NoSuchRun`."""
        return self._shown([self._run(run_id)])[0]

    def waits(self, run_id: int) -> str | None:
        """Say in a sentence what a run waits for; None if it does not wait."""
        return why_it_waits(self._ledger, self._run(run_id), self._scope)

    def now(self) -> datetime:
        """Return what time it is by the ledger's clock, in UTC."""
        return instant(self._ledger.now_us())

    def held_because(self) -> str | None:
        """Say why nodes do nothing with this ledger until somebody has decided what it is; None if they do."""
        return held_because(self._ledger)

    def attempts(self, run_id: int) -> list[AttemptRecord]:
        """Return the attempts of a run that have ended, in their order."""
        found = history.attempts(self._ledger, self._visible_id(run_id))
        names = self._node_names(row.node for row in found)
        return [AttemptRecord.of(row, nodes=names) for row in found]

    def parts(self, run_id: int) -> list[PartRecord]:
        """Return the runs that a run of a bulk job has made of its partitions, in the order in which they were made."""
        found = parts_of(self._ledger, self._visible_id(run_id), jobs=self._scope.visible)
        return [PartRecord.of(part) for part in found]

    def nodes(self, *, living: bool = False, limit: int = 100) -> list[NodeRecord]:
        """Return nodes, the living first; or all that live, longest there first.

        Within a scope: those that have one of its jobs, with these jobs, their queues and their runs.
        """
        most, allowed = page_limit(limit), self._scope.visible
        found = nodes.living_nodes(self._ledger) if living else nodes.nodes(self._ledger, limit=most, jobs=allowed)
        if allowed is not None:
            found = self._nodes_within(found, allowed)
        running = history.running_by_node(self._ledger, jobs=allowed) if found else {}
        return [NodeRecord.of(row, running=running.get(row.id, 0)) for row in found]

    def _nodes_within(self, found: Sequence[NodeRow], allowed: frozenset[str]) -> list[NodeRow]:
        policies = [json.loads(row.policy) for row in jobs.jobs(self._ledger, names=allowed)]
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
        """Return the jobs that any deploy has put on record, by name."""
        found = jobs.jobs(self._ledger, names=self._scope.visible)
        on_nodes = Counter(name for node in nodes.living_nodes(self._ledger) for name in node.jobs)
        newer = {former: row.name for row in found for former in json.loads(row.policy).get("formerly") or ()}
        return [JobRecord.of(row, nodes=on_nodes[row.name], renamed_to=newer.get(row.name)) for row in found]

    def job(self, name: str) -> JobRecord:
        """Return one job, or raise `NoSuchJob`, which says what may have been meant."""
        known = {each.name: each for each in self.jobs()}
        if name in known:
            return known[name]
        raise NoSuchJob(name, suggestion(name, known)) if known else NoSuchJob(name)

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
        """Return lines of the journal, newest first: about a job or a run, or about whatever else `about` names."""
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
        """Return the lock of who leads, or led last; None if nobody ever stood for it. Needs a role for all jobs."""
        self._scope.require(HumanAct.LOOK)
        from fencepost.engine.node import LEADER  # noqa: PLC0415 - the engine's loops are not needed to ask

        with self._lease_store() as locks:
            found = locks.read(LEADER)
        return None if found is None else LockRecord.of(found)

    # -- small things ------------------------------------------------------------------------------------------------

    @contextmanager
    def _lease_store(self) -> Iterator[Locks]:
        """Lend the store of the nodes' leases: the one that is open already, or one for the duration."""
        if self._locks is not None:
            yield self._locks()
            return
        with connect(self._ledger.url.lease_url(), runtime=self._ledger.runtime) as locks:
            yield locks

    def _run(self, run_id: int) -> RunRow:
        """Return a run of the scope, or raise `NoSuchRun`."""
        return history.run(self._ledger, existing_run_id(run_id), jobs=self._scope.visible)

    def _visible_id(self, run_id: int) -> int:
        """Return the id; where not every run may be seen, only of one that may be."""
        return existing_run_id(run_id) if self._scope.visible is None else self._run(run_id).id

    def _masked(self, by: str | None) -> str | None:
        return masked(by, self._scope)

    def _shown(self, rows: Sequence[RunRow]) -> list[RunRecord]:
        """Return runs as they are shown; what is not needed for that is not asked for."""
        rows = [
            row._replace(requested_by=self._masked(row.requested_by), cancel_by=self._masked(row.cancel_by))
            for row in rows
        ]
        names = self._node_names(row.node for row in rows)
        is_open = any(row.sla_at is not None and row.ended_at is None for row in rows)
        now_us = self._ledger.now_us() if is_open else 0
        return [RunRecord.of(row, nodes=names, now_us=now_us) for row in rows]

    def _node_names(self, ids: Iterable[str | None]) -> NodeNames:
        """Return what nodes are called; nobody is asked twice, for they keep their names."""
        unknown = {each for each in ids if each is not None} - self._names.keys()
        self._names |= nodes.node_names(self._ledger, unknown)
        return self._names


def optional_us(at: datetime | str | None, what: str) -> int | None:
    """Read an instant that may be left out."""
    return None if at is None else instant_us(at, what=what)


def _known_states(states: Collection[str]) -> Collection[str]:
    """Refuse what no run can be: it would find nothing, which looks like an answer."""
    asked = (states,) if isinstance(states, str) else states
    for state in asked:
        if state not in set(RunState):
            raise InvalidParameters(f"{state!r} is not a state of runs; {suggestion(str(state), RunState)}")
    return asked


def _refuse_unnoted(what: str) -> None:
    """Refuse words that nothing is ever noted under: an empty answer would look as if it had never happened."""
    if what not in [*Noted]:
        raise InvalidParameters(f"the journal knows no {what!r}; {suggestion(what, sorted(map(str, Noted)))}")
