"""What needs a person, who knows of it, and what changed lately."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from fencepost.app.records.record import LedgerRecord, at_or_none
from fencepost.app.records.runs import RunRecord
from fencepost.core.tick import instant

if TYPE_CHECKING:
    from fencepost.ledger.acknowledging import Acknowledgement


@dataclass(frozen=True, slots=True)
class AcknowledgedRecord(LedgerRecord):
    """Who knows of something, since when, and until when at most. `id` is that of the latest that was seen."""

    id: str
    by: str
    at: datetime
    until_at: datetime | None
    note: str | None

    @staticmethod
    def of(row: Acknowledgement) -> AcknowledgedRecord:
        """Read a row of the ledger."""
        return AcknowledgedRecord(row.id, row.by, instant(row.at), at_or_none(row.until), row.note)


@dataclass(frozen=True, slots=True)
class ConcernRecord(LedgerRecord):
    """Something that needs a person, or that one knows of (`acknowledged`). `what` and `id` name it.

    `level` is ``bad`` or ``warn``. `act` is the one thing that can be done at once: ``retry`` or ``release`` of the
    run, or ``look``; `command` does it, and `consequence` says what that does. `run` is the run that `act` is done to.
    """

    what: str
    id: str
    level: str
    sentence: str
    since_at: datetime | None
    job: str | None
    run_id: int | None
    run: RunRecord | None
    schedule: str | None
    node: str | None
    act: str
    command: str
    consequence: str
    acknowledged: AcknowledgedRecord | None = None


@dataclass(frozen=True, slots=True)
class ChangeRecord(LedgerRecord):
    """Something that changed: a deploy, a schedule, or an act of a person."""

    at: datetime
    what: str
    job: str | None
    run_id: int | None
    schedule: str | None
    by: str | None
    reason: str | None
