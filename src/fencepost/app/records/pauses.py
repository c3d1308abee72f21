"""Pauses of a queue, or of everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from fencepost.app.records.record import LedgerRecord, at_or_none
from fencepost.app.records.versions import pause_version
from fencepost.core.tick import instant, microseconds

if TYPE_CHECKING:
    from fencepost.ledger.queue_pauses import QueuePause


@dataclass(frozen=True, slots=True)
class PauseRecord(LedgerRecord):
    """A pause. `queue` is None for a pause of everything.

    `ignored_by`: living nodes of older versions, which do not know pauses and go on. `version` is another one after
    each change of the pause: what REST takes as ``If-Match``.
    """

    queue: str | None
    paused_at: datetime
    paused_by: str
    paused_until: datetime | None
    reason: str | None
    ignored_by: Sequence[str] = ()
    version: str = ""

    @property
    def sentence(self) -> str:
        """What is paused, since when, by whom, until when and why."""
        from fencepost.ledger.queue_pauses import QueuePause  # noqa: PLC0415 - SQLAlchemy takes its time to load

        until_us = None if self.paused_until is None else microseconds(self.paused_until)
        return str(QueuePause(self.queue or "", microseconds(self.paused_at), until_us, self.paused_by, self.reason))

    def concerns(self, queue: str) -> bool:
        """Whether runs of this queue wait for it."""
        return self.queue in (None, queue)

    @staticmethod
    def of(row: QueuePause, *, ignored_by: Sequence[str] = ()) -> PauseRecord:
        """Read a row of the ledger."""
        made = PauseRecord(
            queue=row.queue or None,
            paused_at=instant(row.paused_at),
            paused_by=row.by,
            paused_until=at_or_none(row.until),
            reason=row.reason,
            ignored_by=tuple(ignored_by),
        )
        return replace(made, version=pause_version(made))


@dataclass(frozen=True, slots=True)
class ResumedRecord(LedgerRecord):
    """What a request to resume did. `was_paused`: False if there was nothing to resume; `left`: the pauses that last.

    A queue is claimed from only if neither it nor everything is paused.
    """

    queue: str | None
    was_paused: bool
    left: Sequence[PauseRecord]
