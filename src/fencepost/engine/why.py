"""What happened to a due time, and why: ``fencepost why settle --at 2026-01-01T03:00Z``.

There is always an answer: it ran, it misfired, it was skipped, it is still to come, no node has its job, it never was
due, or it was so long ago that the record is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fencepost.core.nearest import nearest, suggestion
from fencepost.core.overlap import was_kept_out
from fencepost.core.rights import ANOTHER_JOB, Scope
from fencepost.core.schedule import describe, schedule_from_json
from fencepost.core.states import RunState, WaitsFor
from fencepost.core.tick import spelled_us
from fencepost.engine.why_now import is_due_in, obstacles, policy_queue, schedule_pause
from fencepost.errors import NoSuchJob
from fencepost.ledger import history, jobs, nodes, schedules
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import statements_for
from fencepost.ledger.history import RunFilter, RunRow
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.queue_pauses import pause_of
from fencepost.ledger.schedule_rows import StoredSchedule, every_row
from fencepost.ledger.serving import last_served_us, served_now

_LOOK_BACK = 200  # the run that held the key is among the latest of that key
_MOST_NAMED = 1000  # schedules among which a similar name is looked for
_MOST_NODES = 1000  # a name that is not found among these is shown as its id
_MOST_SCHEDULES = 100  # of one job; if it has more, use the id of a schedule instead


class Became(StrEnum):
    """What happened to a due time."""

    RAN = "ran"
    RUNS = "runs"
    PLANNED = "planned"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    MISFIRED = "misfired"
    TO_COME = "to come"
    PAUSED = "paused"
    NO_NODE = "no node"  # no living node has its job, so it is not planned
    NOT_DUE = "not due"
    BEFORE = "before its time"  # the schedule was made later, or had been deleted
    FORGOTTEN = "forgotten"  # there is no record: retention has removed it, or the schedule was different then
    NO_SCHEDULE = "no schedule"


@dataclass(frozen=True, slots=True)
class Why:
    """The answer: a word, a sentence, and the run that covers the due time, if there is one."""

    job: str
    at_us: int
    became: Became
    sentence: str
    schedule: str | None = None
    run: RunRow | None = None
    nearest_us: tuple[int, ...] = ()  # due times before and after, if it was not due
    now: tuple[str, ...] = ()  # what keeps the job from running now, if no time was asked for


def why(ledger: Ledger, job: str, at_us: int | None = None, *, scope: Scope) -> list[Why]:
    """Answer for every schedule of a job, or for the schedule with that id. If any was due, only those are returned.

    Without a time, answer for the latest due time of each schedule that is not deleted, or for the next if it has had
    none, and say in `now` what keeps the job from running. A job outside of `scope` is answered like one that does not
    exist.
    """
    allowed = scope.visible
    found = schedules.schedules(ledger, job=job, jobs=allowed, with_deleted=True, limit=_MOST_SCHEDULES)
    found = found or [each for each in _by_id(ledger, job) if scope.sees(each.job)]
    if not found:
        if not scope.sees(job) or not jobs.jobs(ledger, names=[job]):
            raise _unknown(ledger, job, scope)
        asked_us = ledger.now_us() if at_us is None else at_us
        answer = Why(job, asked_us, Became.NO_SCHEDULE, f"{job!r} has no schedule: it runs on request only")
        return [_with_now(ledger, answer, None) if at_us is None else answer]
    if at_us is None:
        now_us = ledger.now_us()
        present = [each for each in found if each.deleted_at is None] or found
        latest = [(each, _Question(ledger, each, _latest_us(each, now_us), scope).answer()) for each in present]
        return [_with_now(ledger, answer, each) for each, answer in latest]
    answers = [_Question(ledger, each, at_us, scope).answer() for each in found]
    return [each for each in answers if each.became is not Became.NOT_DUE] or answers


def _unknown(ledger: Ledger, name: str, scope: Scope) -> NoSuchJob:
    """Return the error for a name that no job and no schedule has; it suggests what the caller may see."""
    found = schedules.schedules(ledger, jobs=scope.visible, limit=_MOST_NAMED)
    names = [row.name for row in jobs.jobs(ledger, names=scope.visible)]
    return unknown_job(name, names, scope=scope, schedules=[row.id for row in found])


def unknown_job(name: str, jobs: Sequence[str], *, scope: Scope, schedules: Sequence[str] = ()) -> NoSuchJob:
    """Return the error for a name that none of these jobs and schedules has: those that the caller may see."""
    where = "in the ledger" if scope.visible is None else "that you may see"
    near = nearest(name, [*jobs, *schedules])
    hint = suggestion(name, jobs) if near is None and jobs else f"did you mean {near!r}?" if near else ""
    return NoSuchJob(name, hint, where=where)


def _with_now(ledger: Ledger, answer: Why, row: StoredSchedule | None) -> Why:
    """Add what keeps the job from running now."""
    return replace(answer, now=obstacles(ledger, answer.job, row, answer.sentence))


def _latest_us(row: StoredSchedule, now_us: int) -> int:
    """Return the last due time of a schedule, the next if it has had none, or now if it is never due."""
    schedule = schedule_from_json(row.spec)
    latest_us = schedule.due_before(now_us + 1)
    if latest_us is not None and latest_us > row.created_at:
        return latest_us
    following_us = schedule.due_after(now_us)
    return next((each for each in (following_us, latest_us) if each is not None), now_us)


def _by_id(ledger: Ledger, schedule_id: str) -> list[StoredSchedule]:
    """Return the schedule of this id, also if it was deleted."""
    query = every_row(ledger).where(ledger.tables.schedule.c.id == schedule_id)
    return ledger.read(lambda cursor: [StoredSchedule(*row) for row in ledger.rows(cursor, query)])


class _Question:
    """One schedule and one time."""

    def __init__(self, ledger: Ledger, row: StoredSchedule, at_us: int, scope: Scope) -> None:
        self._ledger = ledger
        self._scope = scope
        self._row = row
        self._at_us = at_us

    def answer(self) -> Why:
        runs = history.why(self._ledger, self._row.id, self._at_us, jobs=self._scope.visible)
        if runs:
            return self._of_run(runs[0])
        return self._not_due() or self._unplanned()

    def _of_run(self, run: RunRow) -> Why:
        became, words = _described(self._ledger, run, self._scope)
        if run.due_at != self._at_us or run.ticks > 1:
            stretch = f"{run.ticks} due times from {_at(run.first_due_at)} to {_at(run.due_at)}"
            words = f"it was put together with others ({stretch}) into one: {words}"
        return self._why(became, words, run=run)

    def _not_due(self) -> Why | None:
        schedule = schedule_from_json(self._row.spec)
        before, after = schedule.due_before(self._at_us), schedule.due_after(self._at_us)
        if schedule.due_before(self._at_us + 1) == self._at_us:
            return None
        nearest = tuple(each for each in (before, after) if each is not None)
        named = " and ".join(spelled_us(each) for each in nearest)
        words = f"it was not due then ({describe(schedule)}); the nearest due times are {named}"
        return self._why(
            Became.NOT_DUE, words if nearest else f"it is never due ({describe(schedule)})", nearest=nearest
        )

    def _unplanned(self) -> Why:
        row = self._row
        if row.deleted_at is not None and self._at_us > row.planned_through:
            return self._why(Became.BEFORE, f"the schedule was deleted at {_at(row.deleted_at)}")
        if row.paused_at is not None and self._at_us > row.planned_through:
            return self._paused(row)
        if row.no_node_since is not None and self._at_us > row.planned_through:
            return self._why(Became.NO_NODE, f"{_unserved(row.job, row.no_node_since)}; {_HELP.format(job=row.job)}")
        if self._at_us > row.planned_through:
            return self._to_come(row)
        if self._at_us <= row.created_at:
            return self._why(Became.BEFORE, f"the schedule was made later, at {_at(row.created_at)}")
        words = (
            f"the schedule is planned through {_at(row.planned_through)}, but there is no record of it: retention has "
            f"removed it, or the schedule was another one then (it was changed last at {_at(row.updated_at)})"
        )
        return self._why(Became.FORGOTTEN, words)

    def _to_come(self, row: StoredSchedule, pause: str = "") -> Why:
        """It is not planned yet. If its time has passed, say whether there is anyone who would plan it."""
        wait_us = self._at_us - self._ledger.now_us()
        if wait_us > 0:
            words = is_due_in(self._ledger, row.job, wait_us)
            return self._why(Became.TO_COME, f"{words}; the schedule is {pause}" if pause else words)
        since_us = _unserved_since(self._ledger, row.job, policy_queue(self._ledger, row.job))
        if since_us is not None:
            return self._why(Became.NO_NODE, f"{_unserved(row.job, since_us)}; {_HELP.format(job=row.job)}")
        words = f"it is not planned yet: the schedule is {pause or f'planned through {_at(row.planned_through)}'}"
        return self._why(
            Became.TO_COME, f"{words}, and its time has passed: look whether a node runs (fencepost nodes)"
        )

    def _paused(self, row: StoredSchedule) -> Why:
        if row.paused_until is not None and self._at_us > row.paused_until:
            by = f" by {row.paused_by}" if row.paused_by else ""
            reason = f": {row.pause_reason}" if row.pause_reason else ""
            return self._to_come(row, f"paused{by} until {_at(row.paused_until)}{reason}")
        return self._why(Became.PAUSED, schedule_pause(row))

    def _why(self, became: Became, words: str, *, run: RunRow | None = None, nearest: tuple[int, ...] = ()) -> Why:
        sentence = f"{self._row.id} at {spelled_us(self._at_us)}: {words}"
        return Why(self._row.job, self._at_us, became, sentence, schedule=self._row.id, run=run, nearest_us=nearest)


def _described(ledger: Ledger, run: RunRow, scope: Scope) -> tuple[Became, str]:
    became, describe_run = _DESCRIPTIONS.get(run.state, (Became.PLANNED, _queued))
    words = f"run {run.id} {describe_run(run._replace(node=_name_of(ledger, run.node)))}"
    if run.state == RunState.QUEUED or run.waits_for == WaitsFor.NODE:
        words += _paused(ledger, run) + _without_node(ledger, run)
    return became, words + (_held_by(ledger, run, scope) if became is Became.SKIPPED else "")


_HELP = (
    "start a node that has both (fencepost nodes shows queues), or, if the job is gone: "
    "fencepost jobs forget {job} --reason '…'"
)


def _unserved(job: str, since_us: int) -> str:
    return f"since {_at(since_us)} no living node has job {job!r} and takes runs from its queue: it is not planned"


def _paused(ledger: Ledger, run: RunRow) -> str:
    """Return the pause of its queue, or of everything, for which this run waits, or an empty text."""
    pause = pause_of(ledger, run.queue)
    return "" if pause is None else f"; {pause}"


def _without_node(ledger: Ledger, run: RunRow) -> str:
    """Return since when no living node can take this run, or an empty text."""
    since_us = _unserved_since(ledger, run.job, run.queue)
    if since_us is None:
        return ""
    return f"; but no living node has its job and takes runs from queue {run.queue!r} since {_at(since_us)}"


def _unserved_since(ledger: Ledger, job: str, queue: str) -> int | None:
    """Return since when no living node has a job and takes runs from a queue; None if one does."""
    statements = statements_for(ledger.connect("words"))

    def ask(cursor: Cursor) -> int | None:
        if served_now(cursor, statements).has(job, queue):
            return None
        pair = (job, queue)
        return last_served_us(cursor, statements, [pair], now_us=statements.now_us(cursor))[pair]

    return ledger.read(ask)


def _name_of(ledger: Ledger, node_id: str | None) -> str | None:
    """Return the name of a node, or its id if its record is gone."""
    if node_id is None:
        return None
    return next((node.name for node in nodes.nodes(ledger, limit=_MOST_NODES) if node.id == node_id), node_id)


def _succeeded(run: RunRow) -> str:
    return f"succeeded{_where(run)}, from {_at(run.started_at)} to {_at(run.ended_at)}"


def _running(run: RunRow) -> str:
    return f"runs{_where(run)} since {_at(run.started_at)}"


def _dead(run: RunRow) -> str:
    tries = f"{run.attempts} attempt{'' if run.attempts == 1 else 's'}"
    return f"was given up after {tries}{f': {run.error_code}: {run.error}' if run.error_code else ''}"


def _cancelled(run: RunRow) -> str:
    return f"was cancelled{f' by {run.cancel_by}' if run.cancel_by else ''}{_because(run)}"


def _waiting(run: RunRow) -> str:
    match run.waits_for:
        case WaitsFor.PERSON:
            how = "is held for a person"
        case WaitsFor.NODE:
            how = "waits for a node that has its job"
        case _:
            how = f"waits for its {run.waits_for}"
    return f"{how}{_because(run)}"


def _queued(run: RunRow) -> str:
    return f"is queued, and may start from {_at(run.available_at)} on{_because(run)}"


_DESCRIPTIONS: Mapping[str, tuple[Became, Callable[[RunRow], str]]] = {
    RunState.SUCCEEDED: (Became.RAN, _succeeded),
    RunState.RUNNING: (Became.RUNS, _running),
    RunState.DEAD: (Became.FAILED, _dead),
    RunState.CANCELLED: (Became.CANCELLED, _cancelled),
    RunState.SKIPPED: (Became.SKIPPED, lambda run: f"was skipped{_because(run)}"),
    RunState.MISFIRED: (Became.MISFIRED, lambda run: f"says that it misfired{_because(run)}"),
    RunState.WAITING: (Became.PLANNED, _waiting),
    RunState.QUEUED: (Became.PLANNED, _queued),
}


def _held_by(ledger: Ledger, run: RunRow, scope: Scope) -> str:
    """Name the run that had the exclusive key, if this one was skipped because of that."""
    if run.exclusive_key is None or run.ended_at is None or not was_kept_out(run.why):
        return ""
    others = history.runs(ledger, RunFilter(exclusive_key=run.exclusive_key), before_id=run.id, limit=_LOOK_BACK)
    for other in others:
        if other.started_at is not None and other.started_at <= run.ended_at <= (other.ended_at or run.ended_at):
            holder = f"run {other.id}" if scope.sees(other.job) else f"a run of {ANOTHER_JOB}"
            return f"; {holder} held {run.exclusive_key!r}"
    return ""


def _because(run: RunRow) -> str:
    return f": {run.why}" if run.why else ""


def _where(run: RunRow) -> str:
    return f"{f' on node {run.node}' if run.node else ''} (attempt {run.attempts}, token {run.token})"


def _at(at_us: int | None) -> str:
    return "?" if at_us is None else spelled_us(at_us)
