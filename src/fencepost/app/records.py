"""What people and programs are shown of a ledger: runs, attempts, jobs, schedules, nodes, locks, letters, the journal.

Each is a frozen value, and `to_json` is the same as JSON: a field has one name in both, and they come in one order. The
command line prints these, and whatever else shows a ledger does too, so the names are kept stable:

- instants are aware datetimes in UTC, in JSON texts such as ``2026-03-29T01:00:00Z``; their names end in ``_at``, or
  are ``at`` alone where there is one. A window is the one exception: it has a `start` and an `end`, as a run has it.
- durations are seconds as numbers; their names end in ``_s``.
- runs, letters and lines of the journal are numbered (`id`, `run_id`). Jobs and schedules have names, nodes have ids
  that are texts, beside the name that is meant for people.
- states, outcomes and types are the words of the documentation.

A policy has the words of ``@app.job(…)``, a schedule's `spec` and a job's `signature` are as the ledger keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from fencepost.core.tick import instant

if TYPE_CHECKING:
    from fencepost.bulk.letters import StoredLetter
    from fencepost.core.grants import LeaseRecord, PastGrant
    from fencepost.core.runs import Requested
    from fencepost.core.schedule import Schedule
    from fencepost.engine.why import Became, Why
    from fencepost.ledger.history import AttemptRow, RunRow
    from fencepost.ledger.jobs import JobRow
    from fencepost.ledger.journal import JournalEntry
    from fencepost.ledger.nodes import NodeRow
    from fencepost.ledger.parts import Part
    from fencepost.ledger.schedule_rows import StoredSchedule

NodeNames = Mapping[str, str]
"""What nodes are called, by their ids."""


@dataclass(frozen=True, slots=True)
class Record:
    """Something on record, as a value and as JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return all of it, as JSON can say it."""
        return {field.name: _as_json(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class WindowRecord(Record):
    """The stretch of time that a run answers for. `start` is None where it goes back to the beginning."""

    start: datetime | None
    end: datetime


@dataclass(frozen=True, slots=True)
class RunRecord(Record):
    """A run. `sla_missed` is None where nothing was promised; `node_name` where the node's record is gone.

    `request_hash`: requests that ask for the same have the same. `params` is what the job is called with, by name.
    """

    id: int
    job: str
    type: str
    state: str
    waits_for: str | None
    why: str | None
    schedule: str | None
    origin_key: str | None
    first_due_at: datetime | None
    due_at: datetime | None
    ticks: int
    window: WindowRecord | None
    params: Mapping[str, Any]
    request_hash: str | None
    requested_by: str | None
    reason: str | None
    priority: int
    queue: str
    exclusive_key: str | None
    attempts: int
    failures: int
    crashes: int
    node: str | None
    node_name: str | None
    token: int | None
    created_at: datetime
    available_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    cancel_requested_at: datetime | None
    cancel_by: str | None
    error_code: str | None
    error: str | None
    result: Any
    progress: float | None
    progress_note: str | None
    sla_at: datetime | None
    sla_missed: bool | None
    retry_of: int | None
    generation: int

    @staticmethod
    def of(row: RunRow, *, nodes: NodeNames, now_us: int) -> RunRecord:
        """Read a row of the ledger. `now_us` is the ledger's time: whether a run is late depends on it."""
        return RunRecord(
            id=row.id,
            job=row.job,
            type=row.type,
            state=row.state,
            waits_for=row.waits_for,
            why=row.why,
            schedule=row.schedule,
            origin_key=row.origin_key,
            first_due_at=_at(row.first_due_at),
            due_at=_at(row.due_at),
            ticks=row.ticks,
            window=_window(row.window_start, row.window_end),
            params=_read(row.params),
            request_hash=row.params_hash or None,
            requested_by=row.requested_by,
            reason=row.reason,
            priority=row.priority,
            queue=row.queue,
            exclusive_key=row.exclusive_key,
            attempts=row.attempts,
            failures=row.failures,
            crashes=row.crashes,
            node=row.node,
            node_name=nodes.get(row.node or ""),
            token=row.token or None,
            created_at=instant(row.created_at),
            available_at=instant(row.available_at),
            started_at=_at(row.started_at),
            ended_at=_at(row.ended_at),
            cancel_requested_at=_at(row.cancel_requested_at),
            cancel_by=row.cancel_by,
            error_code=row.error_code,
            error=row.error,
            result=_read(row.result),
            progress=row.progress,
            progress_note=row.progress_note,
            sla_at=_at(row.sla_at),
            sla_missed=None if row.sla_at is None else row.sla_at < (row.ended_at or now_us),
            retry_of=row.retry_of,
            generation=row.generation,
        )


@dataclass(frozen=True, slots=True)
class AttemptRecord(Record):
    """An attempt that has ended. `took_s` is None where nobody knows: its node is gone."""

    run_id: int
    number: int
    outcome: str
    node: str | None
    node_name: str | None
    token: int
    started_at: datetime | None
    ended_at: datetime
    took_s: float | None
    error_code: str | None
    error: str | None
    trace: str | None

    @staticmethod
    def of(row: AttemptRow, *, nodes: NodeNames) -> AttemptRecord:
        """Read a row of the ledger."""
        is_unknown = row.took_us is None or (row.outcome == "lost" and not row.took_us)
        return AttemptRecord(
            run_id=row.run_id,
            number=row.number,
            outcome=row.outcome,
            node=row.node,
            node_name=nodes.get(row.node or ""),
            token=row.token,
            started_at=_at(row.started_at),
            ended_at=instant(row.ended_at),
            took_s=None if is_unknown else _s(row.took_us),
            error_code=row.error_code,
            error=row.error,
            trace=row.trace,
        )


@dataclass(frozen=True, slots=True)
class PartRecord(Record):
    """A run that executes a partition of a bulk job: the one that is counted `number`, from 0, of a step."""

    run_id: int
    origin_key: str
    step: str | None
    number: int | None
    state: str
    progress_note: str | None

    @staticmethod
    def of(part: Part) -> PartRecord:
        """Read what the ledger knows of it."""
        from fencepost.ledger.parts import part_place  # noqa: PLC0415 - few records are of parts

        step, number = part_place(part.origin_key) or (None, None)
        return PartRecord(
            run_id=part.run_id,
            origin_key=part.origin_key,
            step=step,
            number=number,
            state=part.state,
            progress_note=part.progress_note,
        )


@dataclass(frozen=True, slots=True)
class JobRecord(Record):
    """A job that a deploy has put on record. `nodes`: on how many living nodes it is.

    `strategy` says what keeps its effects from landing twice; `renamed_to` what it is called now, if it has been
    renamed. Both are None where there is nothing to say, or where a later release has written the policy.
    """

    name: str
    type: str
    doc: str | None
    policy: Mapping[str, Any]
    strategy: str | None
    signature: Mapping[str, Any]
    generation: int
    seen_at: datetime
    nodes: int
    renamed_to: str | None

    @staticmethod
    def of(row: JobRow, *, nodes: int, renamed_to: str | None) -> JobRecord:
        """Read a row of the ledger."""
        return JobRecord(
            name=row.name,
            type=row.type,
            doc=row.doc,
            policy=json.loads(row.policy),
            strategy=_strategy(row.policy),
            signature=json.loads(row.signature),
            generation=row.generation,
            seen_at=instant(row.seen_at),
            nodes=nodes,
            renamed_to=renamed_to,
        )


@dataclass(frozen=True, slots=True)
class ScheduleRecord(Record):
    """A schedule. `next_due_at` is None while it is paused, and when no due time is left.

    `origin` is ``code`` or ``runtime``. `planned_through_at`: all due times up to then have their run. `unserved_at`:
    since when no living node has had its job, for which reason it is not planned.
    """

    id: str
    job: str
    when: str
    spec: Mapping[str, Any]
    params: Mapping[str, Any]
    origin: str
    generation: int
    next_due_at: datetime | None
    planned_through_at: datetime
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    unserved_at: datetime | None
    created_at: datetime
    updated_at: datetime

    @staticmethod
    def of(row: StoredSchedule) -> ScheduleRecord:
        """Read a row of the ledger."""
        return ScheduleRecord(
            id=row.id,
            job=row.job,
            when=_when(row.spec),
            spec=json.loads(row.spec),
            params=json.loads(row.params),
            origin=row.origin,
            generation=row.generation,
            next_due_at=_at(row.next_due_at),
            planned_through_at=instant(row.planned_through),
            paused_at=_at(row.paused_at),
            paused_by=row.paused_by,
            pause_reason=row.pause_reason,
            unserved_at=_at(row.no_node_since),
            created_at=instant(row.created_at),
            updated_at=instant(row.updated_at),
        )

    @property
    def schedule(self) -> Schedule:
        """The schedule itself; `InvalidSchedule` if it is of a kind that only a later release knows."""
        from fencepost.core.identity import canonical_json  # noqa: PLC0415 - few records are of schedules
        from fencepost.core.schedule import schedule_from_json  # noqa: PLC0415

        return schedule_from_json(canonical_json(self.spec))

    @property
    def is_in_code(self) -> bool:
        """Whether it stands in the code of its job."""
        return self.origin == "code"

    def __str__(self) -> str:
        return f"{self.id}: {self.job}, {self.when}{' (paused)' if self.paused_at else ''}"


@dataclass(frozen=True, slots=True)
class DueRecord(Record):
    """A due time of the past that a back-fill would ask for."""

    schedule: str | None
    due_at: datetime | None
    window: WindowRecord | None

    @staticmethod
    def of(asked: Requested) -> DueRecord:
        """Read a request that was not made."""
        return DueRecord(asked.schedule, _at(asked.due_at_us), _window(asked.window_start_us, asked.window_end_us))


@dataclass(frozen=True, slots=True)
class NodeRecord(Record):
    """A node. `running`: how many runs it has in hand; `state`: ``living``, ``draining``, ``left`` or ``dead``."""

    id: str
    name: str
    state: str
    running: int
    slots: int
    queues: Sequence[str]
    jobs: Sequence[str]
    generation: int
    version: str
    token: int
    started_at: datetime
    draining_at: datetime | None
    left_at: datetime | None
    dead_at: datetime | None
    dead_why: str | None
    longest_pause_s: float | None

    @staticmethod
    def of(row: NodeRow, *, running: int) -> NodeRecord:
        """Read a row of the ledger."""
        return NodeRecord(
            id=row.id,
            name=row.name,
            state=_node_state(row),
            running=running,
            slots=row.slots,
            queues=tuple(row.queues),
            jobs=tuple(row.jobs),
            generation=row.generation,
            version=row.version,
            token=row.token,
            started_at=instant(row.started_at),
            draining_at=_at(row.draining_at),
            left_at=_at(row.left_at),
            dead_at=_at(row.dead_at),
            dead_why=row.dead_why,
            longest_pause_s=_s(row.longest_pause_us),
        )

    @property
    def is_living(self) -> bool:
        """Whether nobody has noted its end."""
        return self.left_at is None and self.dead_at is None


@dataclass(frozen=True, slots=True)
class LockRecord(Record):
    """A lock, also one that nobody holds now. `holder` is then who had it last.

    `free_in_s`: when it is worth asking again at the latest, where the store knows. `last_tick_at`: the last due time
    that was done under it.
    """

    name: str
    held: bool
    holder: str | None
    token: int
    grant_id: str | None
    acquired_at: datetime | None
    free_in_s: float | None
    last_tick_at: datetime | None

    @staticmethod
    def of(record: LeaseRecord) -> LockRecord:
        """Read what a lease store has told."""
        return LockRecord(
            name=record.name,
            held=record.is_held,
            holder=record.holder,
            token=record.token,
            grant_id=record.grant_id,
            acquired_at=_at(record.acquired_at_us) if record.is_held else None,
            free_in_s=record.free_in_s,
            last_tick_at=_at(record.last_tick_us),
        )


@dataclass(frozen=True, slots=True)
class PastLockRecord(Record):
    """Who held a lock, from when until when, and why that ended."""

    name: str
    holder: str
    token: int
    acquired_at: datetime
    ended_at: datetime
    why: str

    @staticmethod
    def of(grant: PastGrant) -> PastLockRecord:
        """Read what a lease store has told."""
        return PastLockRecord(
            name=grant.name,
            holder=grant.holder,
            token=grant.token,
            acquired_at=instant(grant.acquired_at_us),
            ended_at=instant(grant.ended_at_us),
            why=grant.why,
        )


@dataclass(frozen=True, slots=True)
class LetterRecord(Record):
    """A dead letter: an item of a bulk job that could not be processed. Ids are counted in each `database` by itself.

    `item` is the item as JSON, None where only a description was kept, which is `shown`; `tries` how often it was
    processed in vain; `state` is ``new``, ``replayed`` or ``dropped``.
    """

    id: int
    job: str
    step: str
    instance: str
    run_id: int | None
    state: str
    item_key: str
    item: Any
    shown: str
    error_code: str
    error: str
    tries: int
    created_at: datetime
    can_be_replayed: bool
    database: str

    @staticmethod
    def of(letter: StoredLetter, *, job: str, database: str) -> LetterRecord:
        """Read a row of the database it is in."""
        return LetterRecord(
            id=letter.id,
            job=job,
            step=letter.step,
            instance=letter.instance,
            run_id=letter.run_id,
            state=letter.state,
            item_key=letter.item_key,
            item=json.loads(letter.shown) if letter.can_be_replayed else None,
            shown=letter.shown,
            error_code=letter.error_code,
            error=letter.error,
            tries=letter.attempt,
            created_at=instant(letter.created_at),
            can_be_replayed=letter.can_be_replayed,
            database=database,
        )


@dataclass(frozen=True, slots=True)
class JournalRecord(Record):
    """A line of the journal: what somebody did, or what went wrong."""

    id: int
    at: datetime
    what: str
    job: str | None
    run_id: int | None
    schedule: str | None
    node: str | None
    node_name: str | None
    token: int | None
    by: str | None
    reason: str | None
    detail: Mapping[str, Any] | None

    @staticmethod
    def of(entry: JournalEntry, *, nodes: NodeNames) -> JournalRecord:
        """Read a row of the ledger."""
        return JournalRecord(
            id=entry.id,
            at=instant(entry.at),
            what=entry.what,
            job=entry.job,
            run_id=entry.run_id,
            schedule=entry.schedule,
            node=entry.node,
            node_name=nodes.get(entry.node or ""),
            token=entry.token,
            by=entry.by,
            reason=entry.reason,
            detail=None if entry.detail is None else json.loads(entry.detail),
        )


@dataclass(frozen=True, slots=True)
class WhyRecord(Record):
    """What became of a due time: in a word, in a sentence, and the run that stands for it, if there is one.

    `nearest_at` are the due times before and after, if it was not due.
    """

    job: str
    schedule: str | None
    at: datetime
    became: Became
    sentence: str
    run: RunRecord | None
    nearest_at: Sequence[datetime]

    @staticmethod
    def of(answer: Why, *, run: RunRecord | None) -> WhyRecord:
        """Read an answer; `run` is the one in it."""
        return WhyRecord(
            job=answer.job,
            schedule=answer.schedule,
            at=instant(answer.at_us),
            became=answer.became,
            sentence=answer.sentence,
            run=run,
            nearest_at=tuple(instant(each) for each in answer.nearest_us),
        )


# -- small things ------------------------------------------------------------------------------------------------------


def spelled(at: datetime) -> str:
    """Spell an instant in UTC as JSON has it: exactly, and ending in Z."""
    return at.isoformat().replace("+00:00", "Z")


def _as_json(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, datetime):
        return spelled(value)
    if isinstance(value, StrEnum):
        return str(value)
    return [_as_json(each) for each in value] if isinstance(value, tuple) else value


def _at(at_us: int | None) -> datetime | None:
    return None if at_us is None else instant(at_us)


def _window(start_us: int | None, end_us: int | None) -> WindowRecord | None:
    return None if end_us is None else WindowRecord(_at(start_us), instant(end_us))


def _s(duration_us: int | None) -> float | None:
    return None if duration_us is None else duration_us / 1_000_000


def _read(text: str | None) -> Any:
    """Return stored JSON as JSON; what somebody wrote into the table by hand stays a text."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _node_state(row: NodeRow) -> str:
    if row.is_living:
        return "living" if row.draining_at is None else "draining"
    return "dead" if row.dead_at is not None else "left"


def _strategy(policy: str) -> str | None:
    from fencepost.core.policy import Policy  # noqa: PLC0415 - few records are of jobs
    from fencepost.core.strategy import strategy  # noqa: PLC0415
    from fencepost.errors import InvalidPolicy  # noqa: PLC0415

    try:
        return strategy(Policy.from_json(policy))
    except InvalidPolicy:  # a newer release may spell it otherwise
        return None


def _when(spec: str) -> str:
    from fencepost.core.schedule import describe, schedule_from_json  # noqa: PLC0415 - few records are of schedules
    from fencepost.errors import InvalidSchedule  # noqa: PLC0415

    try:
        return describe(schedule_from_json(spec))
    except InvalidSchedule:  # a newer release may know more kinds
        return spec
