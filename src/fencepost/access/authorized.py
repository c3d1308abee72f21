"""`Authorized`: the only way by which the pages and the REST interface reach operations.

It has the methods of `fencepost.app.operations.Operations`, under the same names, without `by`: who acts is the caller.
Each is written out, so that a new operation is not reachable before its right is declared (`fencepost.access.rights`).

**Promises.** What is returned and every error name only jobs that the caller may see. An act is checked against the
permissions as they are now, by the row of the run or schedule, and is recorded under the caller's name. Refused acts
are in the audit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Unpack

from fencepost.access.authority import CALLER, Authority
from fencepost.access.authorized_access import AuthorizedAccess
from fencepost.access.authorized_concerns import AuthorizedConcerns
from fencepost.access.authorized_ledger import AuthorizedAudit, AuthorizedBulk, AuthorizedLetters, AuthorizedRestored
from fencepost.access.authorized_locks import AuthorizedLocks
from fencepost.access.authorized_nodes import AuthorizedPauses
from fencepost.access.authorized_schedules import AuthorizedSchedules
from fencepost.access.identity import Identity
from fencepost.access.refusals import Refusals
from fencepost.access.repeating import KeyedAct, KeyedRequest, Told, once
from fencepost.app.operations import Operations
from fencepost.app.records import (
    AttemptRecord,
    DueRecord,
    FiguresRecord,
    JobRecord,
    JournalRecord,
    LockRecord,
    LogRecord,
    NodeRecord,
    PartRecord,
    RenamedJobRecord,
    RunRecord,
    RunsFound,
    WhyRecord,
)
from fencepost.app.searching import RunSearch
from fencepost.core.duration import Duration
from fencepost.core.rights import ALL_JOBS, Caller, HumanAct
from fencepost.engine.backfilling import Backfilled
from fencepost.ledger.recording import Enqueued
from fencepost.ledger.removing import Forgotten
from fencepost.ledger.requests import Cancelled, Retried


class Authorized:
    """Operations in the name of one caller, as far as its permissions allow."""

    def __init__(self, operations: Operations, identity: Identity, refusals: Refusals) -> None:
        """Operate as `identity`. `fencepost.access.authentication` makes these."""
        self._authority = Authority(operations, identity, refusals)
        self._ledger = operations.ledger
        self.schedules = AuthorizedSchedules(self._authority)
        self.letters = AuthorizedLetters(self._authority)
        self.locks = AuthorizedLocks(self._authority)
        self.bulk = AuthorizedBulk(self._authority)
        self.concerns = AuthorizedConcerns(self._authority)
        self.audit = AuthorizedAudit(self._authority)
        self.restored = AuthorizedRestored(self._authority)
        self.pauses = AuthorizedPauses(self._authority)
        self.access = AuthorizedAccess(self._authority, operations.ledger)

    # -- who asks ----------------------------------------------------------------------------------------------------

    @property
    def principal(self) -> str:
        """Whom permissions are given to, such as ``user:ann``."""
        return self._authority.identity.principal

    @property
    def caller(self) -> Caller:
        """Who asks, how that was found out, and from where."""
        return self._authority.identity.caller

    @property
    def scope_key(self) -> frozenset[tuple[str, str]]:
        """What those have in common who may see and do the same, and must say why: pairs of a job and a role."""
        scope = self._authority.identity.scope()
        wanted = {(ALL_JOBS, f"reasons of {role}") for role in scope.reasons_of}
        return frozenset((job, role.value) for job, role in scope.roles.items()) | wanted

    def check(self) -> None:
        """Raise `NotAuthenticated` if the login or API token has ended. Streams call it now and then."""
        self._authority.identity.scope()

    def may(self, act: HumanAct, job: str | None = None) -> bool:
        """Return whether the caller may do this, on `job` where it concerns one: for what a page offers."""
        return self._authority.identity.scope().may(act, job)

    def must_say(self, act: HumanAct, job: str | None = None) -> bool:
        """Return whether the caller's role has to give a reason for this: for what a page marks as required."""
        return self._authority.identity.scope().must_say(act, job)

    def once(self, request: KeyedRequest, act: KeyedAct[Any]) -> Told:
        """Do an act of this caller's, unless the same request was answered before: see `fencepost.access.repeating`.

        The act itself is one of the methods below, and is checked as such.
        """
        return once(self._authority, self._ledger, request, act)

    # -- looking -----------------------------------------------------------------------------------------------------

    def why(self, job: str, at: datetime | str | None = None) -> list[WhyRecord]:
        """Say what became of a due time: see `Operations.why`."""
        return self._authority.looks(lambda ops: ops.why(job, at))

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
        """Return a page of runs, newest first; with `after_id` those after it, oldest first."""
        return self._authority.looks(
            lambda ops: ops.runs(
                job=job,
                states=states,
                waits_for=waits_for,
                schedule=schedule,
                queue=queue,
                node=node,
                requested_by=requested_by,
                retry_of=retry_of,
                exclusive_key=exclusive_key,
                since=since,
                until=until,
                ids=ids,
                before_id=before_id,
                after_id=after_id,
                limit=limit,
            )
        )

    def find_runs(
        self, *, before_id: int | None = None, after_id: int | None = None, limit: int = 100, **asked: Unpack[RunSearch]
    ) -> RunsFound:
        """Return a page of runs within bounds, and say how far the search came: see `Operations.find_runs`."""
        return self._authority.looks(
            lambda ops: ops.find_runs(before_id=before_id, after_id=after_id, limit=limit, **asked)
        )

    def run(self, run_id: int, *, to: HumanAct = HumanAct.LOOK) -> RunRecord:
        """Return one run, or raise `NoSuchRun`; with `to`, that is recorded as a refused try at this act."""
        return self._authority.looks(lambda ops: ops.run(run_id), to, run=run_id)

    def waits(self, run_id: int) -> str | None:
        """Say in a sentence what a run waits for; None if it does not wait."""
        return self._authority.looks(lambda ops: ops.waits(run_id))

    def attempts(self, run_id: int) -> list[AttemptRecord]:
        """Return the attempts of a run that have ended, in their order."""
        return self._authority.looks(lambda ops: ops.attempts(run_id))

    def log(
        self, run_id: int, *, attempt: int | None = None, after: str | None = None, limit: int = 100
    ) -> list[LogRecord]:
        """Return what a run wrote, in order."""
        return self._authority.looks(lambda ops: ops.log(run_id, attempt=attempt, after=after, limit=limit))

    def parts(self, run_id: int) -> list[PartRecord]:
        """Return the runs that a run of a bulk job has made of its partitions."""
        return self._authority.looks(lambda ops: ops.parts(run_id))

    def now(self) -> datetime:
        """Return what time it is by the ledger's clock, in UTC."""
        return self._authority.looks(lambda ops: ops.now())

    def held_because(self) -> str | None:
        """Say why nodes do nothing with this ledger until a person has decided what it is; None if they do."""
        return self._authority.looks(lambda ops: ops.held_because())

    def nodes(self, *, living: bool = False, limit: int = 100) -> list[NodeRecord]:
        """Return the nodes that have a job of the caller's: with these jobs, their queues and their runs."""
        return self._authority.looks(lambda ops: ops.nodes(living=living, limit=limit))

    def leader(self) -> LockRecord | None:
        """Return the lock of the node that leads, or led last. Needs the role of viewer for all jobs."""
        return self._authority.looks(lambda ops: ops.leader())

    def jobs(self) -> list[JobRecord]:
        """Return the jobs that any deploy has put on record, by name."""
        return self._authority.looks(lambda ops: ops.jobs())

    def job(self, name: str) -> JobRecord:
        """Return one job, or raise `NoSuchJob`, which says what may have been meant."""
        return self._authority.looks(lambda ops: ops.job(name))

    def figures(
        self,
        job: str | None = None,
        *,
        since: datetime | str | None = None,
        jobs: Collection[str] | None = None,
        after: str = "",
        limit: int = 100,
    ) -> list[FiguresRecord]:
        """Return how the attempts of jobs ended and how long they took: see `Operations.figures`."""
        return self._authority.looks(lambda ops: ops.figures(job, since=since, jobs=jobs, after=after, limit=limit))

    def journal(
        self,
        *,
        job: str | None = None,
        run_id: int | None = None,
        what: str | None = None,
        since: datetime | str | None = None,
        before_id: int | None = None,
        limit: int = 100,
    ) -> list[JournalRecord]:
        """Return lines of the journal, newest first; lines about no job need the role of viewer for all jobs."""
        return self._authority.looks(
            lambda ops: ops.journal(job=job, run_id=run_id, what=what, since=since, before_id=before_id, limit=limit)
        )

    def read_params(self, job: str, typed: Mapping[str, str], *, to: HumanAct = HumanAct.LOOK) -> dict[str, Any]:
        """Read parameters as they were typed, each as its job wants it; `to` as for `run`."""
        return self._authority.looks(lambda ops: ops.read_params(job, typed), to, job=job)

    def would_backfill(
        self,
        job: str,
        first: datetime | str,
        last: datetime | str,
        *,
        schedule: str | None = None,
        params: Mapping[str, Any] | None = None,
        limit: int | None = None,
        to: HumanAct = HumanAct.LOOK,
    ) -> list[DueRecord]:
        """Return the due times that `backfill` would ask for, with their windows; asks for nothing. `to`: as `run`."""
        return self._authority.looks(
            lambda ops: ops.would_backfill(job, first, last, schedule=schedule, params=params, limit=limit),
            to,
            job=job,
        )

    # -- acting ------------------------------------------------------------------------------------------------------

    def trigger(
        self,
        job: str,
        params: Mapping[str, Any] | None = None,
        *,
        reason: str | None = None,
        at: datetime | str | None = None,
        delay: Duration | None = None,
        key: str | None = None,
        priority: int | None = None,
        again: bool = False,
    ) -> Enqueued:
        """Ask for a run: see `Operations.trigger`."""
        return self._authority.acts(
            HumanAct.TRIGGER,
            reason,
            lambda ops: ops.trigger(
                job, params, by=CALLER, reason=reason, at=at, delay=delay, key=key, priority=priority, again=again
            ),
            job=job,
        )

    def backfill(
        self,
        job: str,
        first: datetime | str,
        last: datetime | str,
        *,
        reason: str | None = None,
        schedule: str | None = None,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
        limit: int | None = None,
        again: bool = False,
    ) -> Backfilled:
        """Ask for one run per due time from `first` to `last`, both included: see `Operations.backfill`."""
        return self._authority.acts(
            HumanAct.BACKFILL,
            reason,
            lambda ops: ops.backfill(
                job,
                first,
                last,
                by=CALLER,
                reason=reason,
                schedule=schedule,
                params=params,
                key=key,
                limit=limit,
                again=again,
            ),
            job=job,
        )

    def cancel(self, run_id: int, *, reason: str | None = None, expect: str | None = None) -> Cancelled:
        """Cancel a run that has not started, or have it stopped. `expect`: see `Operations.cancel`."""
        return self._authority.acts(
            HumanAct.CANCEL, reason, lambda ops: ops.cancel(run_id, by=CALLER, reason=reason, expect=expect), run=run_id
        )

    def retry(
        self,
        run_id: int,
        *,
        reason: str | None = None,
        again: bool = False,
        params: Mapping[str, Any] | None = None,
        expect: str | None = None,
    ) -> int:
        """Make a new run of one that has ended, with the same window and parameters, or `params`; return its id."""
        return self._authority.acts(
            HumanAct.RETRY,
            reason,
            lambda ops: ops.retry(run_id, by=CALLER, reason=reason, again=again, params=params, expect=expect),
            run=run_id,
        )

    def release(self, run_id: int, *, reason: str | None = None, expect: str | None = None) -> None:
        """Let a run go on that waits for a person."""
        return self._authority.acts(
            HumanAct.RELEASE_RUN,
            reason,
            lambda ops: ops.release(run_id, by=CALLER, reason=reason, expect=expect),
            run=run_id,
        )

    def reprocess(
        self,
        *,
        reason: str | None = None,
        job: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        after_id: int = 0,
        limit: int = 100,
    ) -> list[Retried]:
        """Repeat up to `limit` runs that were given up, of the jobs that the caller may operate, each once."""
        return self._authority.acts(
            HumanAct.REPROCESS,
            reason,
            lambda ops: ops.reprocess(
                by=CALLER, reason=reason, job=job, since=since, until=until, after_id=after_id, limit=limit
            ),
            job=job,
        )

    def drain_node(self, node: str, *, reason: str | None = None) -> NodeRecord:
        """Ask a living node to claim nothing more, to finish its runs, and to leave: see `Operations.drain_node`."""
        return self._authority.acts(
            HumanAct.DRAIN_NODE, reason, lambda ops: ops.drain_node(node, by=CALLER, reason=reason), node=node
        )

    def rename_job(
        self, old: str, new: str, *, reason: str | None = None, into_existing: bool = False
    ) -> RenamedJobRecord:
        """Give a job another name for good. For one with effects in other databases, use the command line."""
        return self._authority.acts(
            HumanAct.RENAME_JOB,
            reason,
            lambda ops: ops.rename_job(old, new, by=CALLER, reason=reason, into_existing=into_existing),
            job=old,
            new=new,
        )

    def forget_job(self, name: str, *, reason: str | None = None) -> Forgotten:
        """Forget a job that no living node has: delete its schedules, cancel its runs that have not ended."""
        return self._authority.acts(
            HumanAct.FORGET_JOB, reason, lambda ops: ops.forget_job(name, by=CALLER, reason=reason), job=name
        )
