"""Records as ``--json`` prints them: with the fields of `fencepost.app.records`, and also with their former names.

Scripts that use the former names work until 1.0. New scripts use the present names.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.app.records.record import LedgerRecord

FORMER_NAMES = {
    "BulkAgainRecord": {"run": "run_id", "again": "again_of"},
    "BulkForgottenRecord": {"run": "run_id"},
    "BulkRecord": {"run": "run_id"},
    "JournalRecord": {"run": "run_id"},
    "LetterRecord": {"run": "run_id", "key": "item_key", "attempt": "tries"},
    "LockRecord": {"grant": "grant_id", "since": "acquired_at", "last_tick": "last_tick_at"},
    "PartitionRecord": {"run": "run_id"},
    "PartRecord": {"run": "run_id", "key": "origin_key"},
    "PastLockRecord": {"from": "acquired_at", "until": "ended_at"},
    "ScheduleRecord": {"planned_through": "planned_through_at", "no_node_since": "unserved_at"},
    "WhyRecord": {"nearest": "nearest_at"},
}
"""Former and present names of fields, by the class of the record."""


def document(record: LedgerRecord) -> dict[str, Any]:
    """Return a record, and the records in it, as ``--json`` prints them."""
    shown = record.to_json()
    for field in fields(record):
        if (inner := _inner(getattr(record, field.name))) is not None:
            shown[field.name] = inner
    former = FORMER_NAMES.get(type(record).__name__, {})
    return shown | {old: shown[new] for old, new in former.items()}


def _inner(value: Any) -> Any:
    """Return a nested record, or several, as ``--json`` prints them; None for any other value."""
    from fencepost.app.records.record import LedgerRecord  # noqa: PLC0415 - it loads the ledger; help needs none

    if isinstance(value, LedgerRecord):
        return document(value)
    if isinstance(value, tuple) and any(isinstance(each, LedgerRecord) for each in value):
        return [document(each) for each in value]
    return None
