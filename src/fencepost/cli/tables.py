"""Locks and their history, as tables for people and as fields for programs."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.cli.output import at, draw_fields, draw_rows, to_the_second
from fencepost.core.duration import spelled
from fencepost.core.grants import LeaseRecord, PastGrant


def record_fields(record: LeaseRecord) -> dict[str, object]:
    """Return what is known of a lock, as JSON can say it."""
    return {
        "name": record.name,
        "held": record.is_held,
        "holder": record.holder,
        "token": record.token,
        "grant": record.grant_id,
        "since": at(record.acquired_at_us) if record.is_held else None,
        "free_in_s": record.free_in_s,
        "last_tick": at(record.last_tick_us),
    }


def past_fields(grant: PastGrant) -> dict[str, object]:
    """Return a row of history, as JSON can say it."""
    return {
        "name": grant.name,
        "holder": grant.holder,
        "token": grant.token,
        "from": at(grant.acquired_at_us),
        "until": at(grant.ended_at_us),
        "why": grant.why,
    }


def holder_of(record: LeaseRecord) -> str:
    """Name the holder, or say that there is none."""
    return (record.holder or "somebody") if record.is_held else "nobody"


def print_records(records: Sequence[LeaseRecord]) -> None:
    """Draw one row per lock."""
    columns = ("name", "holder", "token", "since", "free in", "last tick")
    draw_rows(columns, (list(_cells(record).values()) for record in records))


def print_record(record: LeaseRecord) -> None:
    """Draw one lock, one line per field."""
    draw_fields(_cells(record) | {"grant": record.grant_id or ""})


def print_history(past: Sequence[PastGrant]) -> None:
    """Draw one row per ended grant."""
    draw_rows(("name", "holder", "token", "from", "until", "why"), (_past_cells(grant) for grant in past))


def _past_cells(grant: PastGrant) -> tuple[str, ...]:
    from_to = (to_the_second(grant.acquired_at_us), to_the_second(grant.ended_at_us))
    return (grant.name, grant.holder, str(grant.token), *from_to, grant.why)


def _cells(record: LeaseRecord) -> dict[str, str]:
    return {
        "name": record.name,
        "holder": holder_of(record),
        "token": str(record.token),
        "since": to_the_second(record.acquired_at_us if record.is_held else None),
        "free in": _free_in(record),
        "last tick": at(record.last_tick_us) or "",
    }


def _free_in(record: LeaseRecord) -> str:
    if record.free_in_s is None:
        return "unknown" if record.is_held else "free"
    return spelled(round(max(record.free_in_s, 0.0), 1)) if record.free_in_s > 0 else "free"
