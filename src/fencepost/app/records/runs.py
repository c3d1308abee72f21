"""Runs, their attempts and parts, and what became of a due time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fencepost.app.records.record import (
    LedgerRecord,
    NodeNames,
    WindowRecord,
    at_or_none,
    read_json,
    seconds_of,
    window_of,
)
from fencepost.core.tick import instant

if TYPE_CHECKING:
    from fencepost.engine.why import Became, Why
    from fencepost.ledger.history import AttemptRow, RunRow
    from fencepost.ledger.parts import Part

ABOUT_TO_BE_CLAIMED = "it is about to be claimed"
"""What a queued run is said to wait for if nodes can take it, and have not had the time to."""


@dataclass(frozen=True, slots=True)
class RunRecord(LedgerRecord):
    """A run. `sla_missed` is None where the job has no SLA; `node_name` is None where the node's record is gone.

    `request_hash` is equal for requests for the same work. `params` are the parameters of the job, by name.
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
    params: Mapping[str, Any] = field(hash=False)
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
    result: Any = field(hash=False)
    progress: float | None
    progress_note: str | None
    sla_at: datetime | None
    sla_missed: bool | None
    retry_of: int | None
    generation: int

    @staticmethod
    def of(row: RunRow, *, nodes: NodeNames, now_us: int) -> RunRecord:
        """Read a row of the ledger. `now_us` is the ledger's time: it decides whether a run is late."""
        return RunRecord(
            id=row.id,
            job=row.job,
            type=row.type,
            state=row.state,
            waits_for=row.waits_for,
            why=row.why,
            schedule=row.schedule,
            origin_key=row.origin_key,
            first_due_at=at_or_none(row.first_due_at),
            due_at=at_or_none(row.due_at),
            ticks=row.ticks,
            window=window_of(row.window_start, row.window_end),
            params=read_json(row.params),
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
            started_at=at_or_none(row.started_at),
            ended_at=at_or_none(row.ended_at),
            cancel_requested_at=at_or_none(row.cancel_requested_at),
            cancel_by=row.cancel_by,
            error_code=row.error_code,
            error=row.error,
            result=read_json(row.result),
            progress=row.progress,
            progress_note=row.progress_note,
            sla_at=at_or_none(row.sla_at),
            sla_missed=None if row.sla_at is None else row.sla_at < (row.ended_at or now_us),
            retry_of=row.retry_of,
            generation=row.generation,
        )


@dataclass(frozen=True, slots=True)
class AttemptRecord(LedgerRecord):
    """An attempt that has ended. `took_s` is None where it is unknown, because the node is gone."""

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
            started_at=at_or_none(row.started_at),
            ended_at=instant(row.ended_at),
            took_s=None if is_unknown else seconds_of(row.took_us),
            error_code=row.error_code,
            error=row.error,
            trace=row.trace,
        )


@dataclass(frozen=True, slots=True)
class PartRecord(LedgerRecord):
    """A run that executes a partition of a bulk job: partition `number`, counted from 0, of a step."""

    run_id: int
    origin_key: str
    step: str | None
    number: int | None
    state: str
    progress_note: str | None

    @staticmethod
    def of(part: Part) -> PartRecord:
        """Read a part from the ledger."""
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
class WhyRecord(LedgerRecord):
    """What became of a due time: in a word, in a sentence, and its run, if there is one.

    `nearest_at` are the due times before and after, if it was not due. `now`: what keeps the job from running now, as
    sentences that say what changes it; empty if a time was asked for.
    """

    job: str
    schedule: str | None
    at: datetime
    became: Became
    sentence: str
    run: RunRecord | None
    nearest_at: Sequence[datetime]
    now: Sequence[str]

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
            now=answer.now,
        )
