"""Acts and queries of operators: the same for the command line, the web and the application's own code.

**Promises.** Every act names who did it and leaves a line in the journal, in the same transaction as the act. Who that
is, the scope says; under `Scope.direct`, for callers that have the database's password, it is the name given as `by`.
What is outside of the scope looks as if it did not exist (`fencepost.app.scoped`). Nothing here needs the job's code:
what a deploy has recorded in the ledger is enough. Where this process is a node, it looks for work after each act.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fencepost.app.job_acts import JobActs
from fencepost.app.looking import optional_us
from fencepost.app.numbers import existing_run_id, page_edge, page_limit
from fencepost.app.people import requesting_run
from fencepost.app.records import DueRecord
from fencepost.app.retrying import changed_request
from fencepost.app.schedules import Schedules
from fencepost.app.scoped import acting, actor, hiding_others, jobs_to_repeat, require_job, run_check
from fencepost.core.duration import Duration, seconds, whole_us
from fencepost.core.noted import Noted
from fencepost.core.overlap import exclusive_key
from fencepost.core.parameters import Signature
from fencepost.core.policy import Policy
from fencepost.core.rights import HumanAct, Scope
from fencepost.core.runs import Requested
from fencepost.core.tick import outside_calendar
from fencepost.engine.backfilling import MOST_BACKFILLED, Backfilled, backfill_requests
from fencepost.engine.jobs import Jobs
from fencepost.engine.requesting import KnownJob, Request, instant_us, on_record, requested
from fencepost.errors import ConfigurationError, InvalidParameters, NotAllowed
from fencepost.leases.locks import Locks
from fencepost.ledger import duplicates, jobs, journal, requests, schedules
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import statements_for
from fencepost.ledger.history import RunFilter
from fencepost.ledger.jobs import NewJob
from fencepost.ledger.journal import About
from fencepost.ledger.keys import taken_keys
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.recording import Enqueued, record
from fencepost.ledger.renaming import present_name
from fencepost.ledger.requests import Cancelled, Retried
from fencepost.ledger.unplanned import with_window

if TYPE_CHECKING:
    from fencepost.app.bulk import BulkJob
    from fencepost.app.bulk_instances import BulkInstances
    from fencepost.app.letters import Letters
    from fencepost.app.restored import RestoredLedger

_BATCH = 500  # runs per transaction: claims of nodes wait for no more than that


class Operations(JobActs):
    """Acts and queries on one ledger. `known` are jobs whose code is loaded; other jobs are read from the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        scope: Scope,
        *,
        known: Jobs | None = None,
        generation: int = 0,
        wake: Callable[[], None] = lambda: None,
        locks: Callable[[], Locks] | None = None,
        leases: Callable[[], Locks] | None = None,
        bulks: Mapping[str, BulkJob] | None = None,
    ) -> None:
        """Act on `ledger` as `scope` allows. `wake` wakes this process's node; `locks` and `leases`: see `Looking`.

        `bulks` are the bulk jobs of the application: only their code knows where their letters are.
        """
        super().__init__(ledger, scope, locks=locks, leases=leases)
        self._known = known if known is not None else Jobs()
        self._bulks = bulks
        self._generation = generation
        self._wake = wake

    def within(self, scope: Scope) -> Operations:
        """Return the same operations under another scope. This is cheap: it reads nothing."""
        other = copy(self)
        other._scope = scope
        return other

    @property
    def schedules(self) -> Schedules:
        """Schedules: list, preview, put, pause, resume, delete."""
        return Schedules(self._ledger, self._scope, self.known, self._wake)

    # -- requesting runs ---------------------------------------------------------------------------------------------

    def known(self, name: str) -> KnownJob:
        """Return what a request needs of a job: from the code if it is loaded, else from the ledger."""
        require_job(self._scope, HumanAct.LOOK, name)
        if name in self._known:
            return KnownJob.of(self._known[name])
        row = jobs.job(self._ledger, name)
        return KnownJob(row.name, Policy.from_json(row.policy), Signature.from_json(row.signature), row.parent)

    def enqueue(
        self,
        job: str,
        params: Mapping[str, Any],
        *,
        at: datetime | str | None = None,
        delay: Duration | None = None,
        key: str | None = None,
        tx: Any = None,
        priority: int | None = None,
        reason: str | None = None,
        requested_by: str | None = None,
        unique: bool = False,
    ) -> Enqueued:
        """Request a run for a program; with `tx`, as part of the caller's transaction.

        With `unique`, if a run that does the same has not ended, return that run. Only programs that reach the ledger
        itself can call this: it leaves no entry in the audit.
        """
        if not self._scope.is_direct:
            raise NotAllowed("to enqueue is for programs that reach the ledger itself: trigger the job", job=job)
        if unique and key is not None:
            raise InvalidParameters("give key= or unique=True, not both: a key alone makes a request one run")
        job = self._present_name(job, HumanAct.TRIGGER)
        request = Request(
            key=key,
            priority=priority,
            reason=reason,
            requested_by=requested_by or requesting_run(),
            **self._when(at, delay),
        )
        new_run = self._requested(job, params, request)
        if unique:
            made = requests.enqueue_unique(self._ledger, new_run, newcomer=self._newcomer(job), tx=tx)
        else:
            [made] = requests.enqueue(self._ledger, [new_run], tx=tx)
        if tx is None:
            self._wake()
        return made

    def trigger(
        self,
        job: str,
        params: Mapping[str, Any] | None = None,
        *,
        by: str,
        reason: str | None = None,
        at: datetime | str | None = None,
        delay: Duration | None = None,
        key: str | None = None,
        priority: int | None = None,
        again: bool = False,
    ) -> Enqueued:
        """Request a run for a person: ``app.operations.trigger("settle", {"account": 7}, by="ann")``.

        It waits for a run of a schedule that does the same: the one declared in code, or one that was made at run
        time with the same parameters. Without a key, raise `AlreadyRequested` if a run that does the same has not
        ended, unless `again` is set.
        """
        require_job(self._scope, HumanAct.TRIGGER, job)
        job, who = self._present_name(job, HumanAct.TRIGGER), actor(self._scope, by)
        request = Request(key=key, priority=priority, reason=reason, requested_by=who, **self._when(at, delay))
        new_run, policy = self._requested(job, params or {}, request), self.known(job).policy

        def work(cursor: Cursor) -> Enqueued:
            if key is None and not again:
                self._refuse_twin(cursor, new_run)
            [made] = self._record(cursor, [self._beside_schedules(cursor, new_run, policy)])
            if made.is_new:
                about = About(job=job, run_id=made.run_id, by=who, reason=reason)
                journal.note(self._ledger, cursor, Noted.RUN_TRIGGERED, about)
            return made

        with acting(self._scope), hiding_others(self._scope):
            made = self._ledger.write(work)
        self._wake()
        return made

    def read_params(self, job: str, typed: Mapping[str, str]) -> dict[str, Any]:
        """Convert parameters as they were typed (``-p days=3``) to the types of the job."""
        return self.known(self._present_name(job, HumanAct.LOOK)).signature.coerce_text(typed, job=job)

    def backfill(
        self,
        job: str,
        first: datetime | str,
        last: datetime | str,
        *,
        by: str,
        reason: str | None = None,
        schedule: str | None = None,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
        limit: int | None = None,
        again: bool = False,
    ) -> Backfilled:
        """Request one run per due time from `first` to `last`, both included, of the job's schedules (or of one).

        A second call with the same `key` requests nothing new. Without a key, every call is a new back-fill. It raises
        `AlreadyRequested` while one of the same due times has not ended, unless `again` is set. More than 10,000
        due times are refused unless `limit` allows them.
        """
        require_job(self._scope, HumanAct.BACKFILL, job)
        job = self._present_name(job, HumanAct.BACKFILL)
        who, back_key = actor(self._scope, by), key or self._ledger.runtime.new_id()[:12]
        request = Request(key=key, requested_by=who, reason=reason, generation=self._generation)
        new_runs = self._due_times(
            job, (first, last), schedule=schedule, request=request, key=back_key, params=params, limit=limit
        )
        about = About(job=job, schedule=schedule, by=who, reason=reason)
        detail = {"key": back_key, "runs": len(new_runs), "first": str(first), "last": str(last)}
        is_alone = key is None and not again
        with acting(self._scope), hiding_others(self._scope):
            count = self._backfilled(new_runs, about._replace(detail=detail), is_alone)
        self._wake()
        return Backfilled(back_key, len(new_runs), count)

    def would_backfill(
        self,
        job: str,
        first: datetime | str,
        last: datetime | str,
        *,
        schedule: str | None = None,
        params: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> list[DueRecord]:
        """Return the due times that `backfill` would request, each with its window. Requests nothing."""
        request, key, job = Request(), "dry-run", self._present_name(job, HumanAct.LOOK)
        new_runs = self._due_times(
            job, (first, last), schedule=schedule, request=request, key=key, params=params, limit=limit
        )
        return [DueRecord.of(each) for each in new_runs]

    def _due_times(
        self,
        job: str,
        stretch: tuple[datetime | str, datetime | str],
        *,
        schedule: str | None,
        request: Request,
        key: str,
        params: Mapping[str, Any] | None,
        limit: int | None,
    ) -> list[Requested]:
        first, last = stretch
        return backfill_requests(
            self.known(job),
            [each for each in schedules.schedules(self._ledger, job=job) if schedule in (None, each.id)],
            range_us=(instant_us(first, what="first"), instant_us(last, what="last")),
            request=request,
            key=key,
            params=params,
            limit=MOST_BACKFILLED if limit is None else limit,
            now_us=self._ledger.now_us(),
        )

    def _present_name(self, job: str, act: HumanAct) -> str:
        """Return the name under which runs of a job are requested: where it was renamed, the new one, at once.

        It stays the old name while a living node has the job under that, or this process does; and for a caller who
        may not do `act` on the new one.
        """
        newer = job if job in self._known else present_name(self._ledger, job)
        return newer if newer == job or self._scope.may(act, newer) else job

    # -- changing the course of runs ---------------------------------------------------------------------------------

    def cancel(self, run_id: int, *, by: str, reason: str | None = None, expect: str | None = None) -> Cancelled:
        """Cancel a run that has not started, or request that it stops. Return which, or that it was too late.

        `expect` is the `run_version` that the caller saw: raise `StateChanged` if it has changed.
        """
        who, check = actor(self._scope, by), run_check(self._scope, HumanAct.CANCEL, expect)
        with acting(self._scope):
            outcome = requests.cancel(self._ledger, existing_run_id(run_id), by=who, reason=reason, check=check)
        self._wake()
        return outcome

    def retry(
        self,
        run_id: int,
        *,
        by: str,
        reason: str | None = None,
        again: bool = False,
        params: Mapping[str, Any] | None = None,
        expect: str | None = None,
    ) -> int:
        """Repeat a run that has ended, with the same window, and the same parameters or `params`. Return the new id.

        Raise `AlreadyRequested` while a repetition of it has not ended, unless `again` is set.
        """
        who, check = actor(self._scope, by), run_check(self._scope, HumanAct.RETRY, expect)
        row = None if params is None else with_window(self._ledger, self._run(run_id))
        changed = None if row is None or params is None else changed_request(row, params, check, self.known)
        given: dict[str, Any] = {"by": who, "reason": reason, "again": again, "changed": changed, "check": check}
        with acting(self._scope):
            made = requests.retry(self._ledger, existing_run_id(run_id), **given)
        self._wake()
        return made

    def release(self, run_id: int, *, by: str, reason: str | None = None, expect: str | None = None) -> None:
        """Release a run that waits for a person."""
        who, check = actor(self._scope, by), run_check(self._scope, HumanAct.RELEASE_RUN, expect)
        with acting(self._scope):
            requests.release_held(self._ledger, existing_run_id(run_id), by=who, reason=reason, check=check)
        self._wake()

    def reprocess(
        self,
        *,
        by: str,
        reason: str | None = None,
        job: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        after_id: int = 0,
        limit: int = 100,
    ) -> list[Retried]:
        """Repeat up to `limit` runs that were given up, each once, with ids above `after_id`.

        To repeat more, call it again with the last `old_id` as `after_id`. A transaction repeats at most 500 of them.
        """
        since_us, until_us = optional_us(since, "since"), optional_us(until, "until")
        wanted = RunFilter(job=job, jobs=jobs_to_repeat(self._scope, job), since_us=since_us, until_us=until_us)
        who, most, start = actor(self._scope, by), page_limit(limit), page_edge(after_id) or 0
        made: list[Retried] = []
        while len(made) < most:
            size = min(_BATCH, most - len(made))
            with acting(self._scope):
                page = requests.reprocess(self._ledger, wanted, after_id=start, limit=size, by=who, reason=reason)
            if not page:
                break
            made += page
            start = page[-1].old_id
        self._wake()
        return made

    # -- what is not a run -------------------------------------------------------------------------------------------

    @property
    def letters(self) -> Letters:
        """Dead letters of the application's bulk jobs: list, show, replay, drop."""
        from fencepost.app.letters import Letters  # noqa: PLC0415 - most applications have none

        known = {name for name in self._known if self._scope.sees(name)}
        return Letters(self._ledger, self._scope, self._bulk_jobs("letters"), known, self.trigger)

    @property
    def bulk(self) -> BulkInstances:
        """The instances of the application's bulk jobs: show their progress, repeat them, forget them."""
        from fencepost.app.bulk_instances import BulkInstances  # noqa: PLC0415 - most applications have none

        return BulkInstances(self._ledger, self._scope, self._bulk_jobs("checkpoints"), self._wake)

    @property
    def restored(self) -> RestoredLedger:
        """Whether the ledger was restored or copied, and what a person decides about it: standing, accept, as_copy."""
        from fencepost.app.restored import RestoredLedger  # noqa: PLC0415 - rarely needed

        return RestoredLedger(self._ledger, self._scope)

    def _bulk_jobs(self, what: str) -> Mapping[str, BulkJob]:
        if self._bulks is None:
            raise ConfigurationError(f"{what} are where bulk jobs write to, which needs their code: app.operations")
        return {name: bulk for name, bulk in self._bulks.items() if self._scope.sees(name)}

    # -- recording requests-------------------------------------------------------------------------------------------

    def _requested(self, job: str, params: Mapping[str, Any], request: Request) -> Requested:
        return requested(self.known(job), params, request)

    def _when(self, at: datetime | str | None, delay: Duration | None) -> dict[str, Any]:
        """Return when the run is due, by the ledger's clock, and the generation of the requesting deploy."""
        if at is not None and delay is not None:
            raise InvalidParameters("give at= or delay=, not both")
        at_us = optional_us(at, "at")
        delayed_us = None if delay is None else self._delayed_us(delay)
        return {"at_us": at_us, "available_at_us": delayed_us, "generation": self._generation}

    def _delayed_us(self, delay: Duration) -> int:
        at_us = self._ledger.now_us() + whole_us(seconds(delay, what="delay"))
        if wrong := outside_calendar(at_us):
            raise InvalidParameters(f"delay {delay!r} from now {wrong}")
        return at_us

    def _record(self, cursor: Cursor, new_runs: Sequence[Requested]) -> list[Enqueued]:
        made = record(self._ledger, cursor, new_runs)
        if any(each.is_new for each in made):
            statements_for(self._ledger.connect("words")).notify(cursor)
        return made

    def _newcomer(self, job: str) -> NewJob | None:
        return on_record(self._known[job]) if job in self._known else None

    def _beside_schedules(self, cursor: Cursor, new_run: Requested, policy: Policy) -> Requested:
        """Return the request with the exclusive key of the schedule that does the same; if several, a taken one."""
        if policy.exclusive is not None or new_run.exclusive_key is None:
            return new_run
        params = json.loads(new_run.params)
        found = schedules.with_params(self._ledger, cursor, new_run.job, new_run.params)
        ids = [each.id if each.is_of_run_time else None for each in found]
        keys = [exclusive_key(new_run.job, policy, params, runtime_schedule=each) for each in ids]
        if set(keys) <= {new_run.exclusive_key}:
            return new_run
        taken = taken_keys(self._ledger, cursor, [key for key in keys if key is not None])
        usual = [new_run.exclusive_key] if new_run.exclusive_key in keys else keys
        return new_run._replace(exclusive_key=next((key for key in keys if key in taken), usual[0]))

    def _refuse_twin(self, cursor: Cursor, new_run: Requested) -> None:
        """Refuse a request if a run that has not ended does the same. Concurrent requests wait for this transaction."""
        duplicates.hold(self._ledger, cursor, new_run.job, self._newcomer(new_run.job))
        twin = duplicates.live_twin(self._ledger, cursor, new_run)
        if twin is not None:
            raise twin.refusal()

    def _refuse_other_backfill(self, cursor: Cursor, new_runs: Sequence[Requested]) -> None:
        duplicates.hold(self._ledger, cursor, new_runs[0].job, self._newcomer(new_runs[0].job))
        twin = duplicates.live_backfill(self._ledger, cursor, new_runs)
        if twin is not None:
            raise twin.refusal("back-fills one of these due times already")

    def _backfilled(self, new_runs: Sequence[Requested], about: About, is_alone: bool) -> int:
        """Record a back-fill in batches, the act with the first of them; return how many runs are new.

        With `is_alone`, refuse it beside another one of the same due times. A later call sees this one's first batch.
        """

        def work(cursor: Cursor, start: int) -> int:
            if start == 0 and is_alone and new_runs:
                self._refuse_other_backfill(cursor, new_runs)
            if start == 0:
                journal.note(self._ledger, cursor, Noted.BACKFILL_REQUESTED, about)
            return sum(made.is_new for made in self._record(cursor, new_runs[start : start + _BATCH]))

        return sum(
            self._ledger.write(lambda cursor, start=start: work(cursor, start))  # type: ignore[misc]
            for start in range(0, max(len(new_runs), 1), _BATCH)
        )
