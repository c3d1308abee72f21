"""Locks and their history, as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fencepost.cli.output import draw_fields, draw_rows, exactly, to_the_second
from fencepost.core.duration import spelled

if TYPE_CHECKING:
    from fencepost.app.records import LockRecord, PastLockRecord


def holder_of(record: LockRecord) -> str:
    """Return the holder, or that there is none."""
    return (record.holder or "somebody") if record.held else "nobody"


def print_records(records: Sequence[LockRecord]) -> None:
    """Draw one row per lock."""
    columns = ("name", "holder", "token", "since", "free in", "last tick")
    draw_rows(columns, (list(_cells(record).values()) for record in records))


def print_record(record: LockRecord) -> None:
    """Draw one lock, one line per field."""
    draw_fields(_cells(record) | {"grant": record.grant_id or ""})


def print_history(past: Sequence[PastLockRecord]) -> None:
    """Draw one row per ended grant."""
    draw_rows(("name", "holder", "token", "from", "until", "why"), (_past_cells(grant) for grant in past))


def _past_cells(grant: PastLockRecord) -> tuple[str, ...]:
    from_to = (to_the_second(grant.acquired_at), to_the_second(grant.ended_at))
    return (grant.name, grant.holder, str(grant.token), *from_to, grant.why)


def _cells(record: LockRecord) -> dict[str, str]:
    return {
        "name": record.name,
        "holder": holder_of(record),
        "token": str(record.token),
        "since": to_the_second(record.acquired_at),
        "free in": _free_in(record),
        "last tick": exactly(record.last_tick_at),
    }


def _free_in(record: LockRecord) -> str:
    if record.free_in_s is None:
        return "unknown" if record.held else "free"
    return spelled(round(max(record.free_in_s, 0.0), 1)) if record.free_in_s > 0 else "free"
