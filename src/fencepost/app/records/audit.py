"""What is shown of the audit: entries, anchors, and what a verification found."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fencepost.app.records.record import LedgerRecord, read_json
from fencepost.core.audit import Break
from fencepost.core.tick import instant, microseconds
from fencepost.ledger.auditing import AuditRow


@dataclass(frozen=True, slots=True)
class AuditRecord(LedgerRecord):
    """An entry of the audit. `how`: how the person was identified; `entry` is the exact text that was hashed.

    `damaged`: the row was edited by hand into something that cannot be read. `at` is None if that is no date.
    """

    n: int
    at: datetime | None
    who: str
    how: str | None
    address: str | None
    act: str
    job: str | None
    run_id: int | None
    schedule: str | None
    reason: str | None
    outcome: str | None
    detail: Any = field(hash=False)
    hash: str
    entry: str
    damaged: bool

    @staticmethod
    def of(row: AuditRow) -> AuditRecord:
        """Return the record of a row, which may have been edited by hand."""
        at, read = _instant(row.at), read_json(row.entry)
        entry: dict[str, Any] = read if isinstance(read, dict) else {}
        texts = {name: entry.get(name) for name in ("how", "from", "schedule", "reason", "outcome")}
        is_readable = row.is_readable and at is not None and isinstance(read, dict)
        return AuditRecord(
            n=row.n,
            at=at,
            who=row.who,
            how=_text(texts["how"]),
            address=_text(texts["from"]),
            act=row.act,
            job=row.job,
            run_id=row.run_id,
            schedule=_text(texts["schedule"]),
            reason=_text(texts["reason"]),
            outcome=_text(texts["outcome"]),
            detail=entry.get("detail"),
            hash=row.hash,
            entry=row.entry,
            damaged=not is_readable or any(not isinstance(each, str | None) for each in texts.values()),
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


def _instant(at_us: Any) -> datetime | None:
    """Return the instant; None if a manual edit made it something that is no date."""
    try:
        at = instant(at_us)
        return at if microseconds(at) == round(at_us) else None
    except (OverflowError, TypeError, ValueError):
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str | None) else json.dumps(value)
