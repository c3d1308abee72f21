"""Jobs and their schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fencepost.app.records.record import LedgerRecord, WindowRecord, at_or_none, read_json, window_of
from fencepost.core.tick import instant

if TYPE_CHECKING:
    from fencepost.core.runs import Requested
    from fencepost.core.schedule import Schedule
    from fencepost.ledger.jobs import JobRow
    from fencepost.ledger.schedule_rows import StoredSchedule

_MOST_KEPT = 4096  # parsed texts: more than most applications have jobs


@dataclass(frozen=True, slots=True)
class JobRecord(LedgerRecord):
    """A job that a deploy has recorded. `nodes`: how many living nodes have it.

    `strategy` says what keeps its effects from landing twice; `renamed_to` is its present name, if that is another
    one: not while a living node has it under this one, nor after a roll-back. Both are None where they do not apply,
    or where a later release has written the policy.
    """

    name: str
    type: str
    doc: str | None
    policy: Mapping[str, Any] = field(hash=False)
    strategy: str | None
    signature: Mapping[str, Any] = field(hash=False)
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
            policy=_definition(row.policy),
            strategy=_strategy(row.policy),
            signature=_definition(row.signature),
            generation=row.generation,
            seen_at=instant(row.seen_at),
            nodes=nodes,
            renamed_to=renamed_to,
        )


@dataclass(frozen=True, slots=True)
class ScheduleRecord(LedgerRecord):
    """A schedule. `next_due_at` is None while it is paused, and when no due time is left.

    `paused_until`: when its pause ends by itself; None if a person has to resume it.

    `origin` is ``code`` or ``runtime``. `planned_through_at`: all due times up to then have their run. `unserved_at`:
    since when no living node has had its job, for which reason it is not planned.
    """

    id: str
    job: str
    when: str
    spec: Mapping[str, Any] = field(hash=False)
    params: Mapping[str, Any] = field(hash=False)
    origin: str
    generation: int
    next_due_at: datetime | None
    planned_through_at: datetime
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    paused_until: datetime | None
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
            spec=_definition(row.spec),
            params=read_json(row.params),
            origin=row.origin,
            generation=row.generation,
            next_due_at=at_or_none(row.next_due_at),
            planned_through_at=instant(row.planned_through),
            paused_at=at_or_none(row.paused_at),
            paused_by=row.paused_by,
            pause_reason=row.pause_reason,
            paused_until=None if row.paused_at is None else at_or_none(row.paused_until),
            unserved_at=at_or_none(row.no_node_since),
            created_at=instant(row.created_at),
            updated_at=instant(row.updated_at),
        )

    @property
    def schedule(self) -> Schedule:
        """The schedule itself; raises `InvalidSchedule` if only a later release has this kind."""
        from fencepost.core.identity import canonical_json  # noqa: PLC0415 - few records are of schedules
        from fencepost.core.schedule import schedule_from_json  # noqa: PLC0415

        return schedule_from_json(canonical_json(self.spec))

    @property
    def is_in_code(self) -> bool:
        """Whether it is declared in the code of its job."""
        return self.origin == "code"

    def __str__(self) -> str:
        return f"{self.id}: {self.job}, {self.when}{' (paused)' if self.paused_at else ''}"


@dataclass(frozen=True, slots=True)
class DueRecord(LedgerRecord):
    """A past due time that a back-fill would request."""

    schedule: str | None
    due_at: datetime | None
    window: WindowRecord | None

    @staticmethod
    def of(request: Requested) -> DueRecord:
        """Read a request that was planned but not made."""
        return DueRecord(
            request.schedule, at_or_none(request.due_at_us), window_of(request.window_start_us, request.window_end_us)
        )


def _definition(text: str) -> Any:
    """Parse what a deploy has declared. The same texts are read again and again: each is parsed once."""
    read = _parsed(text)
    return dict(read) if isinstance(read, dict) else read


_parsed = lru_cache(maxsize=_MOST_KEPT)(read_json)


@lru_cache(maxsize=_MOST_KEPT)
def _strategy(policy: str) -> str | None:
    from fencepost.core.policy import Policy  # noqa: PLC0415 - few records are of jobs
    from fencepost.core.strategy import strategy  # noqa: PLC0415
    from fencepost.errors import InvalidPolicy  # noqa: PLC0415

    try:
        return strategy(Policy.from_json(policy))
    except InvalidPolicy:  # a newer release may use another format
        return None


@lru_cache(maxsize=_MOST_KEPT)
def _when(spec: str) -> str:
    from fencepost.core.schedule import describe, schedule_from_json  # noqa: PLC0415 - few records are of schedules
    from fencepost.errors import InvalidSchedule  # noqa: PLC0415

    try:
        return describe(schedule_from_json(spec))
    except InvalidSchedule:  # a newer release may have more kinds
        return spec
