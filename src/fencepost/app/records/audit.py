"""What is shown of the audit: entries, anchors, and what a verification found."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fencepost.app.records.record import LedgerRecord, read_json
from fencepost.core.audit import Break
from fencepost.core.tick import instant
from fencepost.ledger.auditing import AuditRow


@dataclass(frozen=True, slots=True)
class AuditRecord(LedgerRecord):
    """An entry of the audit. `how`: how the person was identified; `entry` is the exact text that was hashed."""

    n: int
    at: datetime
    who: str
    how: str | None
    address: str | None
    act: str
    job: str | None
    run_id: int | None
    reason: str | None
    outcome: str | None
    detail: Any = field(hash=False)
    hash: str
    entry: str

    @staticmethod
    def of(row: AuditRow) -> AuditRecord:
        """Return the record of a row."""
        read = read_json(row.entry)
        entry: dict[str, Any] = read if isinstance(read, dict) else {}  # the row may have been edited by hand
        return AuditRecord(
            n=row.n,
            at=instant(row.at),
            who=row.who,
            how=entry.get("how"),
            address=entry.get("from"),
            act=row.act,
            job=row.job,
            run_id=row.run_id,
            reason=entry.get("reason"),
            outcome=entry.get("outcome"),
            detail=entry.get("detail"),
            hash=row.hash,
            entry=row.entry,
        )


@dataclass(frozen=True, slots=True)
class AnchorRecord(LedgerRecord):
    """The end of the chain at one instant. Keep it outside of the database."""

    ledger: str
    n: int
    hash: str
    at: datetime


@dataclass(frozen=True, slots=True)
class VerifiedRecord(LedgerRecord):
    """What a verification found. `breaks` are sentences; the chain is intact if there are none.

    `anchors` counts those that were compared, `pruned_anchors` those of entries that were pruned: they show nothing.
    """

    through_n: int
    from_n: int
    entries: int
    anchors: int
    pruned_anchors: int
    breaks: tuple[str, ...]
    first_break: str | None

    @property
    def is_intact(self) -> bool:
        """Whether the chain has no breaks."""
        return not self.breaks

    @staticmethod
    def of(
        found: list[Break], *, through_n: int, from_n: int, entries: int, anchors: int, pruned_anchors: int
    ) -> VerifiedRecord:
        """Return the record of what was found."""
        return VerifiedRecord(
            through_n,
            from_n,
            entries,
            anchors,
            pruned_anchors,
            tuple(map(str, found)),
            str(found[0].damage) if found else None,
        )
