"""Finds what needs a person: each with its sentence, since when, and the one act that is safe, with its consequence.

**Promises.** Every question is bounded, and asked within the caller's scope. **Not promised.** That it is all: of each
kind the worst or newest are looked at, and a row says how many more there are.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fencepost.app.queue_pauses import QueuePauses
from fencepost.app.records import JobRecord, NodeRecord, PauseRecord, RunRecord
from fencepost.app.records import spelled as spelled_at
from fencepost.core.concerns import HASHED, ConcernKind, Occurrence
from fencepost.core.duration import spelled
from fencepost.core.identity import canonical_json
from fencepost.core.noted import Noted
from fencepost.core.tick import microseconds
from fencepost.ledger import attention

if TYPE_CHECKING:
    from fencepost.app.looking import Looking
    from fencepost.core.rights import Scope
    from fencepost.ledger.history import RunRow
    from fencepost.ledger.journal import JournalEntry
    from fencepost.ledger.ledger import Ledger
    from fencepost.ledger.schedule_rows import StoredSchedule

DAY_US = 86_400_000_000
_WEEK_US = 7 * DAY_US  # runs that were given up are shown for so long
_LATE_US = 60_000_000  # nodes look every few seconds: what has waited for a minute has another reason
_LONG_DRAIN_US = 3_600_000_000  # longer than most runs take
MOST = 200  # of one kind that are read: there may be more
_ROWS = 20  # of one kind
_NODES = 100  # living and ended ones; if nearly all of them live, all living are read
_NEAR = 0.9  # of the timeout
_LATE_RENEWAL = 0.66  # of the ttl: two renewals in a row have failed
_HASH = 40  # of the names of the caller's jobs
_LOOKS = "it only shows more, and changes nothing"


Shown = Callable[[Sequence["RunRow"]], list[RunRecord]]


@dataclass(frozen=True, slots=True)
class FoundConcern:
    """One occurrence. Those of one kind and subject may be shown as one row, which is then that of the latest.

    `words` are made when it is shown: they may need another question.
    """

    kind: ConcernKind
    subject: str
    occurrence: Occurrence
    words: Callable[[], str]
    job: str | None = None
    run: RunRecord | None = None
    run_id: int | None = None
    schedule: str | None = None
    node: str | None = None
    pause: PauseRecord | None = None
    since_us: int | None = None  # if the occurrence counts by another clock than the ledger's
    act: str = "look"
    command: str = ""
    consequence: str = _LOOKS


class ConcernFinder:
    """Looks for what needs a person."""

    def __init__(self, ledger: Ledger, scope: Scope, ask: Looking, shown: Shown) -> None:
        """Look at `ledger` within `scope`; `ask` answers what has a question of its own, `shown` makes records."""
        self._ledger = ledger
        self._seen = scope.visible
        self._pauses = QueuePauses(ledger, scope, wake=lambda: None)
        self._ask = ask
        self._shown = shown
        self.now_us = ledger.now_us()
        self._jobs: Mapping[str, JobRecord] = {each.name: each for each in ask.jobs()}

    def found(self) -> Iterator[FoundConcern]:
        """Yield all occurrences, in the order of their kinds."""
        yield from self._ledger_held()
        yield from self._nodes()
        yield from self._paused()
        yield from self._schedules()
        yield from self._held()
        yield from self._given_up()
        yield from self._late()
        yield from self._near_timeout()
        yield from self._noted()

    # -- the ledger and the nodes ------------------------------------------------------------------------------------

    def _ledger_held(self) -> Iterator[FoundConcern]:
        because = self._ask.held_because()
        if because is None:
            return
        number = int(hashlib.sha256(because.encode()).hexdigest()[:12], 16)
        yield FoundConcern(
            ConcernKind.LEDGER_HELD,
            "",
            Occurrence(0, number),
            lambda: because,
            command="fencepost restored",
            consequence="it shows what has changed, and the two decisions that a person can make",
        )

    def _nodes(self) -> Iterator[FoundConcern]:
        found = self._ask.nodes(limit=_NODES)  # the living first
        living = [each for each in found if each.is_living]
        if len(living) > _NODES - _ROWS:
            found = self._ask.nodes(limit=len(self._ask.nodes(living=True)) + _ROWS)
        ended = [each for each in found if not each.is_living]
        if self._jobs and not living:
            yield self._no_node(ended)
        elif self._jobs and all(each.state == "overdue" for each in living):
            yield self._none_renews(living)
        for each in living:
            yield from self._renewing_late(each)
            yield from self._draining(each)
        for each in ended[:_ROWS]:
            if each.dead_at is not None and microseconds(each.dead_at) > self.now_us - DAY_US:
                yield self._died(each)

    def _no_node(self, ended: Sequence[NodeRecord]) -> FoundConcern:
        nobody = "no node takes part, so nothing runs"
        if self._seen is not None:
            nobody = "no living node has one of your jobs, so none of them runs"
        ends = [microseconds(at) for each in ended if (at := each.dead_at or each.left_at) is not None]
        since_us = max(ends, default=0)
        return self._nothing_runs(Occurrence(since_us, 0), since_us, f"{nobody}: fencepost run APP starts one")

    def _none_renews(self, overdue: Sequence[NodeRecord]) -> FoundConcern:
        """Return that all nodes seem dead: as long as none is left to notice it, their ends are not recorded."""
        last = max(overdue, key=_renewed_us)
        which, what = "no node", "nothing runs"
        if self._seen is not None:
            which, what = "no node that has one of your jobs", "none of them runs"
        age = "it has no lease any more" if last.lease_age_s is None else f"{_time(last.lease_age_s)} ago"
        ttl = "" if last.lease_ttl_s is None else f", ttl {_time(last.lease_ttl_s)}"
        return self._nothing_runs(
            Occurrence(_renewed_us(last), 1),  # the end of a node is never the same as this
            self._renewed_at_us(last),
            f"{which} has renewed its lease (the last one, {last.name}, {age}{ttl}), so {what}: if its process is "
            "gone, start one: fencepost run APP",
        )

    def _renewed_at_us(self, node: NodeRecord) -> int:
        """Return the time of the last renewal by the ledger's clock, about; 0 if nothing is known of it."""
        return 0 if node.lease_age_s is None else self.now_us - round(node.lease_age_s * 1_000_000)

    def _nothing_runs(self, occurrence: Occurrence, since_us: int, words: str) -> FoundConcern:
        subject = ""
        if self._seen is not None:
            # What others know is of other jobs: it is neither this, nor for this caller to read.
            subject = HASHED + hashlib.sha256(canonical_json(sorted(self._jobs)).encode()).hexdigest()[:_HASH]
        return FoundConcern(
            ConcernKind.NO_NODE,
            subject,
            occurrence,
            lambda: words,
            since_us=since_us,
            command="fencepost nodes --all",
            consequence="it shows which nodes took part before, and how they ended",
        )

    def _paused(self) -> Iterator[FoundConcern]:
        """Yield every pause of a queue, or of everything: it may have been forgotten."""
        for each in self._pauses.list():
            what = "everything" if each.queue is None else f"queue {each.queue}"
            flag = "--all" if each.queue is None else f"--queue {shlex.quote(each.queue)}"
            ends = "until it is resumed" if each.paused_until is None else f"until {spelled_at(each.paused_until)}"
            words = f"{what} is paused by {each.paused_by}, {ends}: {each.reason or 'no reason was given'}"
            yield FoundConcern(
                ConcernKind.PAUSED,
                each.queue or "",
                Occurrence(microseconds(each.paused_at), 0),
                lambda words=words: words,  # type: ignore[misc]
                pause=each,
                act="resume",
                command=f"fencepost resume {flag}",
                consequence="nodes claim what waits, in its order",
            )

    def _draining(self, node: NodeRecord) -> Iterator[FoundConcern]:
        """Yield a node that was asked to drain long ago."""
        asked_us = None if node.drain_asked_at is None else microseconds(node.drain_asked_at)
        if asked_us is None or asked_us > self.now_us - _LONG_DRAIN_US:
            return
        words = f"node {node.name} has drained for {self._ago(asked_us)}, asked by {node.drain_by}: it waits for"
        yield FoundConcern(
            ConcernKind.NODE_DRAINS,
            node.id,
            Occurrence(asked_us, 0),
            lambda: f"{words} {node.running} of its runs",
            node=node.id,
            command="fencepost runs --state running",
            consequence="it shows the runs; the node leaves when they have ended",
        )

    def _renewing_late(self, node: NodeRecord) -> Iterator[FoundConcern]:
        """Yield a node whose lease is old; nothing where the lease store does not show ages."""
        age_s, ttl_s = node.lease_age_s, node.lease_ttl_s
        if node.state == "overdue":
            words = f"node {node.name} has not renewed its lease for its ttl; the next node that has watched it for"
            words = f"{words} a ttl takes over its runs"
        elif age_s and ttl_s and age_s >= _LATE_RENEWAL * ttl_s:
            words = f"node {node.name} has not renewed its lease for {_time(age_s)}, and loses it after {_time(ttl_s)}"
            words = f"{words}: others then take over its runs"
        else:
            return
        yield FoundConcern(
            ConcernKind.NODE_LATE,
            node.id,
            Occurrence(_renewed_us(node), 0),  # it is the same lateness until the next renewal
            lambda: words,
            node=node.id,
            since_us=self._renewed_at_us(node),
            command="fencepost nodes",
            consequence="it shows how old each lease is: one old lease is that node's trouble, many are the database's",
        )

    def _died(self, node: NodeRecord) -> FoundConcern:
        why = f": {node.dead_why}" if node.dead_why else ""
        left = "its runs, if it had any, are left to living nodes"
        return FoundConcern(
            ConcernKind.NODE_DIED,
            node.id,
            Occurrence(microseconds(node.dead_at), 0) if node.dead_at else Occurrence(0, 0),
            lambda: f"node {node.name} ended without leaving, and was found dead{why}; {left}",
            node=node.id,
            command="fencepost journal --what 'run lost' --since 24h",
            consequence="it shows which attempts were lost with nodes",
        )

    # -- schedules ---------------------------------------------------------------------------------------------------

    def _schedules(self) -> Iterator[FoundConcern]:
        late = attention.unplanned(self._ledger, self._seen, before_us=self.now_us - _LATE_US, limit=_ROWS)
        for row in late:
            due_us = row.next_due_at or 0
            words = f"schedule {row.id} of {row.job} was due {self._ago(due_us)} ago, and no node has planned it"
            yield self._of_schedule(ConcernKind.NOT_PLANNED, row, due_us, words)
        for row in attention.unserved(self._ledger, self._seen, limit=_ROWS):
            since_us = row.no_node_since or 0
            words = (
                f"no living node has job {row.job} and takes runs from its queue: its schedule {row.id} is not planned"
            )
            yield self._of_schedule(ConcernKind.JOB_WITHOUT_NODE, row, since_us, words)
        for row in attention.paused_long(self._ledger, self._seen, before_us=self.now_us - DAY_US, limit=_ROWS):
            paused_us = row.paused_at or 0
            by = f" by {row.paused_by}" if row.paused_by else ""
            words = (
                f"schedule {row.id} of {row.job} has been paused for {self._ago(paused_us)}{by}, until it is resumed"
            )
            words += f": {row.pause_reason or 'no reason was given'}"
            found = self._of_schedule(ConcernKind.SCHEDULE_PAUSED, row, paused_us, words)
            end = f"fencepost schedules resume {shlex.quote(row.id)} ends the pause"
            yield replace(
                found,
                command=f"fencepost schedules show {shlex.quote(row.id)}",
                consequence=f"it shows the schedule and its pause, and changes nothing; {end}",
            )

    def _of_schedule(self, kind: ConcernKind, row: StoredSchedule, since_us: int, words: str) -> FoundConcern:
        return FoundConcern(
            kind,
            row.id,
            Occurrence(since_us, 0),
            lambda: words,
            job=row.job,
            schedule=row.id,
            command=f"fencepost why {row.id}",
            consequence="it shows what became of the due time, and changes nothing",
        )

    # -- runs --------------------------------------------------------------------------------------------------------

    def _held(self) -> Iterator[FoundConcern]:
        for run in self._ask.runs(states=("waiting",), waits_for="person", after_id=0, limit=_ROWS):
            words = f"run {run.id} of {run.job} is held for a person" + (f": {run.why}" if run.why else "")
            consequence = f"lets the run go on; {self._strategy(run.job)}"
            found = self._of_run(ConcernKind.HELD, run, run.created_at, words, act="release", consequence=consequence)
            yield _alone(found, run)

    def _given_up(self) -> Iterator[FoundConcern]:
        rows = attention.given_up(self._ledger, self._seen, limit=MOST)
        # The later of the two: the clock may have gone back in between.
        dead = [row for row in rows if max(row.ended_at or 0, row.created_at) > self.now_us - _WEEK_US]
        repeated = attention.repeated(self._ledger, [row.id for row in dead])
        for run in self._shown(dead):
            if run.id not in repeated:
                error = ": ".join(filter(None, (run.error_code, _first_line(run.error))))
                attempts = f"{run.attempts} attempt{'' if run.attempts == 1 else 's'}"
                words = f"run {run.id} of {run.job} was given up after {attempts}" + (f": {error}" if error else "")
                consequence = f"makes a new run with the same parameters; {self._strategy(run.job)}"
                since = run.ended_at or run.created_at
                yield self._of_run(ConcernKind.GIVEN_UP, run, since, words, act="retry", consequence=consequence)

    def _late(self) -> Iterator[FoundConcern]:
        before_us = self.now_us - _LATE_US
        late = attention.late_in_queue(self._ledger, self._seen, before_us=before_us, limit=MOST)
        waiting = self._shown(late) + self._ask.runs(states=("waiting",), waits_for="node", limit=MOST)
        whys = self._ask.waits_of([run.id for run in waiting]) if waiting else {}
        for run in waiting:
            waited = self._ago(microseconds(run.available_at))
            words = f"run {run.id} of {run.job} has waited for {waited}: {whys.get(run.id, 'it has not begun')}"
            yield self._of_run(ConcernKind.LATE, run, run.available_at, words)

    def _near_timeout(self) -> Iterator[FoundConcern]:
        limits = {name: limit for name, job in self._jobs.items() if (limit := _timeout_us(job))}
        if not limits:
            return
        before_us = self.now_us - round(_NEAR * min(limits.values()))
        for run in attention.long_running(self._ledger, self._seen, started_before_us=before_us, limit=MOST):
            limit_us, taken_us = limits.get(run.job), self.now_us - (run.started_at or self.now_us)
            if limit_us and taken_us > _NEAR * limit_us:
                used = f"{taken_us / limit_us:.0%} of its timeout of {_time(limit_us / 1_000_000)}"
                words = f"run {run.id} of {run.job} has used {used}, and is stopped then"
                [shown] = self._shown([run])
                since = shown.started_at or shown.created_at
                yield _alone(self._of_run(ConcernKind.NEAR_TIMEOUT, shown, since, words), shown)

    def _of_run(
        self,
        kind: ConcernKind,
        run: RunRecord,
        since: datetime,
        words: str | Callable[[], str],
        *,
        act: str = "look",
        consequence: str = _LOOKS,
    ) -> FoundConcern:
        said = (lambda: words) if isinstance(words, str) else words
        verb = "show" if act == "look" else act
        return FoundConcern(
            kind,
            run.job,
            Occurrence(microseconds(since), run.id),
            said,
            job=run.job,
            run=run,
            run_id=run.id,
            act=act,
            command=f"fencepost {verb} {run.id}",
            consequence=consequence,
        )

    # -- the journal -------------------------------------------------------------------------------------------------

    def _noted(self) -> Iterator[FoundConcern]:
        kinds = {
            str(Noted.SLA_MISSED): ConcernKind.SLA_MISSED,
            str(Noted.REFUSED_WRITE): ConcernKind.REFUSED_WRITE,
            str(Noted.CLOCK_LEAPT): ConcernKind.CLOCK_LEAPT,
        }
        since_us = self.now_us - DAY_US
        for line in attention.noted(self._ledger, self._seen, list(kinds), since_us=since_us, limit=len(kinds) * MOST):
            yield self._of_line(kinds[line.what], line)

    def _of_line(self, kind: ConcernKind, line: JournalEntry) -> FoundConcern:
        is_sla = kind is ConcernKind.SLA_MISSED
        return FoundConcern(
            kind,
            line.job or "",
            Occurrence(line.at, (line.run_id or 0) if is_sla else line.id),
            (lambda: self._lateness(line)) if is_sla else (lambda: _line_words(line)),
            job=line.job,
            run_id=line.run_id,
            command=f"fencepost show {line.run_id}" if line.run_id else f"fencepost journal --what '{line.what}'",
        )

    def _lateness(self, line: JournalEntry) -> str:
        """Say how late a run is now, or was at its end."""
        name = f"run {line.run_id} of {line.job}"
        found = self._ask.runs(ids=[line.run_id or 0])
        if not found or found[0].sla_at is None:
            return f"{name} is late: {line.reason}"
        [run] = found
        sla_us = microseconds(found[0].sla_at)
        if run.ended_at is not None:
            return f"{name} ended {_time((microseconds(run.ended_at) - sla_us) / 1_000_000)} late, and is {run.state}"
        return f"{name} should have ended {self._ago(sla_us)} ago, and is still {run.state}"

    # -- words -------------------------------------------------------------------------------------------------------

    def _ago(self, at_us: int) -> str:
        return _time((self.now_us - at_us) / 1_000_000)

    def _strategy(self, job: str) -> str:
        known = self._jobs.get(job)
        return (known and known.strategy) or "nothing is known of what keeps its effects from landing twice"


def _alone(found: FoundConcern, run: RunRecord) -> FoundConcern:
    """Return what is about one run by itself: another attempt of it is another occurrence."""
    return replace(found, subject=str(run.id), occurrence=Occurrence(found.occurrence.since_us, run.attempts))


def _line_words(line: JournalEntry) -> str:
    of = f" of {line.job}" if line.job else ""
    by = f" by run {line.run_id}{of}" if line.run_id else of
    return f"{line.what}{by}" + (f": {line.reason}" if line.reason else "")


def grouped(found: Iterable[FoundConcern]) -> dict[tuple[ConcernKind, str], list[FoundConcern]]:
    """Return the occurrences by kind and subject, each group with its latest first."""
    groups: dict[tuple[ConcernKind, str], list[FoundConcern]] = {}
    for each in found:
        groups.setdefault((each.kind, each.subject), []).append(each)
    return {key: sorted(group, key=lambda each: each.occurrence, reverse=True) for key, group in groups.items()}


def _timeout_us(job: JobRecord) -> int | None:
    policy: Any = job.policy  # somebody may have damaged it
    value: Any = policy.get("timeout") if isinstance(policy, Mapping) else None
    return round(value * 1_000_000) if isinstance(value, int | float) and value > 0 else None


def _renewed_us(node: NodeRecord) -> int:
    """Return when a node renewed its lease last, by the lease store's clock; 0 if the store has no such lease."""
    return max(node.lease_mark or 0, 0)


def _time(duration_s: float) -> str:
    positive = max(duration_s, 0.0)
    return spelled(round(positive, 3) if positive < 10 else round(positive))


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
