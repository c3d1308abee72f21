"""What needs a person, who knows of it, and what changed lately."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fencepost.app.records.pauses import PauseRecord
from fencepost.app.records.record import LedgerRecord, at_or_none
from fencepost.app.records.runs import RunRecord
from fencepost.core.noted import Noted
from fencepost.core.tick import instant

if TYPE_CHECKING:
    from fencepost.ledger.acknowledging import Acknowledgement

_WITH_DETAILS = frozenset(
    {
        Noted.ALL_PAUSED,
        Noted.ALL_RESUMED,
        Noted.QUEUE_PAUSED,
        Noted.QUEUE_RESUMED,
        Noted.SCHEDULE_PAUSED,
        Noted.NODE_DRAINED,
    }
)


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
    run, ``resume`` of the pause, or ``look``; `command` does it, and `consequence` says what that does. `run` is the
    run, and `pause` the pause, that `act` is done to.
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
    pause: PauseRecord | None = None


@dataclass(frozen=True, slots=True)
class ChangeRecord(LedgerRecord):
    """Something that changed: a deploy, a schedule, or an act of a person.

    `details`: the queue and the end of a pause, or the node that was asked to drain.
    """

    at: datetime
    what: str
    job: str | None
    run_id: int | None
    schedule: str | None
    by: str | None
    reason: str | None
    details: str | None = None


def details_of(what: str, detail: Mapping[str, Any] | None) -> str | None:
    """Return what an act on pauses or nodes was done to, and until when; None of all others."""
    if what not in _WITH_DETAILS or not isinstance(detail, Mapping):  # somebody may have damaged it
        return None
    said = {"queue": "queue {}", "until": "until {}", "name": "node {}"}
    return ", ".join(words.format(detail[name]) for name, words in said.items() if name in detail) or None
