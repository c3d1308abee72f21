"""Records as ``--json`` prints them: as `fencepost.app.records` spells them, and under the names they had before.

Scripts that were written for the former names go on until 1.0; whatever is new reads the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.app.records import LedgerRecord

FORMER_NAMES = {
    "JournalRecord": {"run": "run_id"},
    "LetterRecord": {"run": "run_id", "key": "item_key", "attempt": "tries"},
    "LockRecord": {"grant": "grant_id", "since": "acquired_at", "last_tick": "last_tick_at"},
    "PartRecord": {"run": "run_id", "key": "origin_key"},
    "PastLockRecord": {"from": "acquired_at", "until": "ended_at"},
    "ScheduleRecord": {"planned_through": "planned_through_at", "no_node_since": "unserved_at"},
    "WhyRecord": {"nearest": "nearest_at"},
}
"""By the class of a record, what fields were called before, and what they are called now."""


def document(record: LedgerRecord) -> dict[str, Any]:
    """Return a record as ``--json`` prints it."""
    fields = record.to_json()
    former = FORMER_NAMES.get(type(record).__name__, {})
    return fields | {old: fields[new] for old, new in former.items()}
