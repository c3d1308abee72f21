"""What operators do, and what they ask: the same for the command line, the web and the application's own code.

**Promises.** Every act names who did it and leaves a line in the journal, in the same transaction as the act. Who that
is, the scope says; under `Scope.direct`, which everyone has who reaches the database itself, it is the name given as
`by`. What is outside of the scope looks as if it did not exist (`fencepost.app.scoped`).
Nothing here needs the job's code: what a deploy has put into the ledger is enough. Where this process is a node, it
looks for work after each act, without waiting for its next turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fencepost.app.looking import Looking, optional_us
from fencepost.app.numbers import existing_run_id, page_edge, page_limit
from fencepost.app.records import DueRecord, RenamedJobRecord
from fencepost.app.schedules import Schedules
from fencepost.app.scoped import acting, actor, hiding_others, require_job, run_check
from fencepost.core.duration import Duration, seconds
from fencepost.core.noted import Noted
from fencepost.core.overlap import exclusive_key
from fencepost.core.parameters import Signature
from fencepost.core.policy import Policy
from fencepost.core.rights import HumanAct, Scope
from fencepost.core.runs import Requested
from fencepost.engine.backfilling import MOST_BACKFILLED, Backfilled, backfill_requests
from fencepost.engine.jobs import Jobs
from fencepost.engine.requesting import KnownJob, Request, instant_us, on_record, requested
from fencepost.engine.run import attempt_of, current_run
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
from fencepost.ledger.removing import Forgotten, forget
from fencepost.ledger.requests import Cancelled, Retried

if TYPE_CHECKING:
    from fencepost.app.bulk import BulkJob
    from fencepost.app.bulk_instances import BulkInstances
    from fencepost.app.letters import Letters
    from fencepost.app.restored import RestoredLedger

_BATCH = 500


class Operations(Looking):
    """Acts and questions on one ledger. `known` are jobs whose code is at hand; of others the ledger knows enough."""

    def __init__(
        self,
        ledger: Ledger,
        scope: Scope,
        *,
        known: Jobs | None = None,
        generation: int = 0,
        wake: Callable[[], None] = lambda: None,
        locks: Callable[[], Locks] | None = None,
        bulks: Mapping[str, BulkJob] | None = None,
    ) -> None:
        """Act on `ledger` as `scope` allows. `wake` wakes this process's node; `locks` is the nodes' lease store.

        `bulks` are the bulk jobs of the application: where their letters are, only their code knows.
        """
        super().__init__(ledger, scope, locks=locks)
        self._known = known if known is not None else Jobs()
        self._bulks = bulks
        self._generation = generation
        self._wake = wake

    def within(self, scope: Scope) -> Operations:
        """Return the same operations under another scope. It asks nothing, and opens nothing."""
        other = copy(self)
        other._scope = scope
        return other

    @property
    def schedules(self) -> Schedules:
        """Schedules: list, preview, put, pause, resume, delete."""
        return Schedules(self._ledger, self._scope, self.known, self._wake)

    # -- asking for runs ---------------------------------------------------------------------------------------------

    def known(self, name: str) -> KnownJob:
        """Return what a request needs to know of a job: from the code if it is here, else from the ledger."""
        require_job(self._scope, HumanAct.LOOK, name)
        if name in self._known:
            return KnownJob.of(self._known[name])
        row = jobs.job(self._ledger, name)
        return KnownJob(row.name, Policy.from_json(row.policy), Signature.from_json(row.signature))

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
        """Ask for a run in the name of a program; with `tx` as part of the caller's transaction.

        With `unique`, a run that has not ended and does the same stands for this request, too. Only programs that
        reach the ledger itself can ask like this: it leaves no entry in the audit.
        """
        if not self._scope.is_direct:
            raise NotAllowed("to enqueue is for programs that reach the ledger itself: trigger the job", job=job)
        if unique and key is not None:
            raise InvalidParameters("give key= or unique=True, not both: a key alone makes a request one run")
        request = Request(
            key=key,
            priority=priority,
            reason=reason,
            requested_by=requested_by or _asking_run(),
            **self._when(at, delay),
        )
        asked = self._requested(job, params, request)
        if unique:
            made = requests.enqueue_unique(self._ledger, asked, newcomer=self._newcomer(job), tx=tx)
        else:
            [made] = requests.enqueue(self._ledger, [asked], tx=tx)
        if tx is None:
            self._wake()
        return made

    def trigger(
        self,
        job: str,
        params: Mapping[str, Any] | None = None,
        *,
        by: str = "",
        reason: str | None = None,
        at: datetime | str | None = None,
        delay: Duration | None = None,
        key: str | None = None,
        priority: int | None = None,
        again: bool = False,
    ) -> Enqueued:
        """Ask for a run in the name of a person: ``app.operations.trigger("settle", {"account": 7}, by="ann")``.

        It waits for a run of the schedule that does the same: the one declared in code, or one that was made at run
        time with the same parameters. Without a key, what is under way already is refused as `AlreadyRequested`,
        unless `again` insists on one more.
        """
        require_job(self._scope, HumanAct.TRIGGER, job)
        who = actor(self._scope, by)
        request = Request(key=key, priority=priority, reason=reason, requested_by=who, **self._when(at, delay))
        asked, policy = self._requested(job, params or {}, request), self.known(job).policy

        def work(cursor: Cursor) -> Enqueued:
            if key is None and not again:
                self._refuse_twin(cursor, asked)
            [made] = self._record(cursor, [self._beside_schedules(cursor, asked, policy)])
            if made.is_new:
                about = About(job=job, run_id=made.run_id, by=who, reason=reason)
                journal.note(self._ledger, cursor, Noted.RUN_TRIGGERED, about)
            return made

        with acting(self._scope), hiding_others(self._scope):
            made = self._ledger.write(work)
        self._wake()
        return made

    def read_params(self, job: str, typed: Mapping[str, str]) -> dict[str, Any]:
        """Read parameters as they were typed (``-p days=3``), each as its job wants it."""
        return self.known(job).signature.coerce_text(typed, job=job)

    def backfill(
        self,
        job: str,
        first: datetime | str,
        last: datetime | str,
        *,
        by: str = "",
        reason: str | None = None,
        schedule: str | None = None,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
        limit: int | None = None,
        again: bool = False,
    ) -> Backfilled:
        """Ask for one run per due time from `first` to `last`, both included, of the job's schedules (or of one).

        The same `key` twice asks for nothing new. Without one, every call is a back-fill of its own, which is refused
        as `AlreadyRequested` while one of the same due times has not ended, unless `again` insists. More than 10,000
        due times are refused unless `limit` allows them.
        """
        require_job(self._scope, HumanAct.BACKFILL, job)
        who, back_key = actor(self._scope, by), key or self._ledger.runtime.new_id()[:12]
        request = Request(requested_by=who, reason=reason, generation=self._generation)
        asked = self._due_times(
            job, (first, last), schedule=schedule, request=request, key=back_key, params=params, limit=limit
        )
        about = About(job=job, schedule=schedule, by=who, reason=reason)
        detail = {"key": back_key, "runs": len(asked), "first": str(first), "last": str(last)}
        is_alone = key is None and not again
        with acting(self._scope), hiding_others(self._scope):
            made = Backfilled(back_key, len(asked), self._backfilled(asked, about._replace(detail=detail), is_alone))
        self._wake()
        return made

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
        """Return the due times that `backfill` would ask for, each with its window; asks for nothing."""
        request, key = Request(), "dry-run"
        asked = self._due_times(
            job, (first, last), schedule=schedule, request=request, key=key, params=params, limit=limit
        )
        return [DueRecord.of(each) for each in asked]

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
        )

    # -- changing the course of runs ---------------------------------------------------------------------------------

    def cancel(self, run_id: int, *, by: str = "", reason: str | None = None) -> Cancelled:
        """Cancel a run that has not started, or have it stopped; returns which of them, or that it was too late."""
        who, check = actor(self._scope, by), run_check(self._scope, HumanAct.CANCEL)
        with acting(self._scope):
            outcome = requests.cancel(self._ledger, existing_run_id(run_id), by=who, reason=reason, check=check)
        self._wake()
        return outcome

    def retry(self, run_id: int, *, by: str = "", reason: str | None = None, again: bool = False) -> int:
        """Make a new run of one that has ended, with the same parameters and window; return its id.

        While a repetition of it has not ended, that is refused as `AlreadyRequested`, unless `again` insists.
        """
        who, check = actor(self._scope, by), run_check(self._scope, HumanAct.RETRY)
        with acting(self._scope):
            made = requests.retry(
                self._ledger, existing_run_id(run_id), by=who, reason=reason, again=again, check=check
            )
        self._wake()
        return made

    def release(self, run_id: int, *, by: str = "", reason: str | None = None) -> None:
        """Let a run go on that waits for a person."""
        who, check = actor(self._scope, by), run_check(self._scope, HumanAct.RELEASE_RUN)
        with acting(self._scope):
            requests.release_held(self._ledger, existing_run_id(run_id), by=who, reason=reason, check=check)
        self._wake()

    def reprocess(
        self,
        *,
        by: str = "",
        reason: str | None = None,
        job: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        after_id: int = 0,
        limit: int = 100,
    ) -> list[Retried]:
        """Repeat up to `limit` runs that were given up, each once, from after `after_id` on.

        To repeat more, call it again with the last `old_id` as `after_id`. A transaction repeats at most 500 of them.
        """
        since_us, until_us = optional_us(since, "since"), optional_us(until, "until")
        wanted = RunFilter(job=job, jobs=self._jobs_to_reprocess(job), since_us=since_us, until_us=until_us)
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
        """The work of the application's bulk jobs: show how far it is, do it again, forget it."""
        from fencepost.app.bulk_instances import BulkInstances  # noqa: PLC0415 - most applications have none

        return BulkInstances(self._ledger, self._scope, self._bulk_jobs("checkpoints"), self._wake)

    @property
    def restored(self) -> RestoredLedger:
        """Whether the ledger was restored or copied, and what a person decides about it: standing, accept, as_copy."""
        from fencepost.app.restored import RestoredLedger  # noqa: PLC0415 - few ledgers ever are

        return RestoredLedger(self._ledger, self._scope)

    def rename_job(
        self, old: str, new: str, *, by: str = "", reason: str | None = None, effects: Sequence[str] | None = None
    ) -> RenamedJobRecord:
        """Give a job another name for good, while no living node has either: all that is on record gets the new name.

        `effects` are the URLs of the databases besides the ledger's that its runs write to. A bulk job needs it: its
        checkpoints are there. An empty list says that it writes to the ledger's own alone. If this is interrupted, do
        it again.
        """
        from fencepost.app.renaming import rename_job  # noqa: PLC0415 - done once in the life of a job

        self._scope.require(HumanAct.RENAME_JOB)
        who = actor(self._scope, by)
        with acting(self._scope):
            return rename_job(self._ledger, old, new, by=who, reason=reason, effects=effects)

    def forget_job(self, name: str, *, by: str = "", reason: str | None = None) -> Forgotten:
        """Forget a job that no living node has: delete its schedules, cancel its runs that have not ended."""
        known, who = self.job(name).name, actor(self._scope, by)
        self._scope.require(HumanAct.FORGET_JOB, known)
        with acting(self._scope):
            return forget(self._ledger, known, by=who, reason=reason)

    def _bulk_jobs(self, what: str) -> Mapping[str, BulkJob]:
        if self._bulks is None:
            raise ConfigurationError(f"{what} are where bulk jobs write to, which needs their code: app.operations")
        return {name: bulk for name, bulk in self._bulks.items() if self._scope.sees(name)}

    # -- small things ------------------------------------------------------------------------------------------------

    def _jobs_to_reprocess(self, job: str | None) -> frozenset[str] | None:
        """Return the jobs whose runs the caller may repeat, or raise if there is none."""
        if job is not None:
            require_job(self._scope, HumanAct.REPROCESS, job)
        allowed = self._scope.jobs_for(HumanAct.REPROCESS)
        if allowed is not None and not allowed:
            self._scope.require(HumanAct.REPROCESS)
        return allowed

    def _requested(self, job: str, params: Mapping[str, Any], request: Request) -> Requested:
        return requested(self.known(job), params, request)

    def _when(self, at: datetime | str | None, delay: Duration | None) -> dict[str, Any]:
        """Say when, by the ledger's clock; and which deploy asks."""
        if at is not None and delay is not None:
            raise InvalidParameters("give at= or delay=, not both")
        at_us = optional_us(at, "at")
        delayed_us = None if delay is None else self._ledger.now_us() + round(seconds(delay, what="delay") * 1_000_000)
        return {"at_us": at_us, "available_at_us": delayed_us, "generation": self._generation}

    def _record(self, cursor: Cursor, asked: Sequence[Requested]) -> list[Enqueued]:
        made = record(self._ledger, cursor, asked)
        if any(each.is_new for each in made):
            statements_for(self._ledger.connect("words")).notify(cursor)
        return made

    def _newcomer(self, job: str) -> NewJob | None:
        return on_record(self._known[job]) if job in self._known else None

    def _beside_schedules(self, cursor: Cursor, asked: Requested, policy: Policy) -> Requested:
        """Return a request with the key of the schedule that does the same; of several, of one that is at it now.

        Schedules that were made at run time have keys of their own, so that they do not wait for each other.
        """
        if policy.exclusive is not None or asked.exclusive_key is None:
            return asked
        params = json.loads(asked.params)
        found = schedules.with_params(self._ledger, cursor, asked.job, asked.params)
        ids = [each.id if each.is_of_run_time else None for each in found]
        keys = [exclusive_key(asked.job, policy, params, runtime_schedule=each) for each in ids]
        if set(keys) <= {asked.exclusive_key}:
            return asked
        taken = taken_keys(self._ledger, cursor, [key for key in keys if key is not None])
        usual = [asked.exclusive_key] if asked.exclusive_key in keys else keys
        return asked._replace(exclusive_key=next((key for key in keys if key in taken), usual[0]))

    def _refuse_twin(self, cursor: Cursor, asked: Requested) -> None:
        """Refuse a request if a run that has not ended does the same; whoever asks next waits until this is decided."""
        duplicates.hold(self._ledger, cursor, asked.job, self._newcomer(asked.job))
        twin = duplicates.live_twin(self._ledger, cursor, asked)
        if twin is not None:
            raise twin.refusal()

    def _refuse_other_backfill(self, cursor: Cursor, asked: Sequence[Requested]) -> None:
        duplicates.hold(self._ledger, cursor, asked[0].job, self._newcomer(asked[0].job))
        twin = duplicates.live_backfill(self._ledger, cursor, asked)
        if twin is not None:
            raise twin.refusal("back-fills one of these due times already")

    def _backfilled(self, asked: Sequence[Requested], about: About, is_alone: bool) -> int:
        """Record a back-fill in batches, the act with the first of them; return how many runs are new.

        `is_alone`: not beside another one of the same due times. Whoever asks next sees the first batch of this one.
        """

        def work(cursor: Cursor, start: int) -> int:
            if start == 0 and is_alone and asked:
                self._refuse_other_backfill(cursor, asked)
            if start == 0:
                journal.note(self._ledger, cursor, Noted.BACKFILL_REQUESTED, about)
            return sum(made.is_new for made in self._record(cursor, asked[start : start + _BATCH]))

        return sum(
            self._ledger.write(lambda cursor, start=start: work(cursor, start))  # type: ignore[misc]
            for start in range(0, max(len(asked), 1), _BATCH)
        )


def _asking_run() -> str | None:
    run = current_run()
    return None if run is None else attempt_of(run).label
