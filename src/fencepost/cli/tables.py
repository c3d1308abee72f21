"""Locks and their history, as tables for people and as fields for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fencepost.core.duration import spelled
from fencepost.core.grants import LeaseRecord, PastGrant
from fencepost.core.tick import spelled_us

if TYPE_CHECKING:
    from rich.table import Table

_WIDE = 1000  # a file or a pipe has no edge at which to cut names


def record_fields(record: LeaseRecord) -> dict[str, object]:
    """Return what is known of a lock, as JSON can say it."""
    return {
        "name": record.name,
        "held": record.is_held,
        "holder": record.holder,
        "token": record.token,
        "grant": record.grant_id,
        "since": _at(record.acquired_at_us) if record.is_held else None,
        "free_in_s": record.free_in_s,
        "last_tick": _at(record.last_tick_us),
    }


def past_fields(grant: PastGrant) -> dict[str, object]:
    """Return a row of history, as JSON can say it."""
    return {
        "name": grant.name,
        "holder": grant.holder,
        "token": grant.token,
        "from": _at(grant.acquired_at_us),
        "until": _at(grant.ended_at_us),
        "why": grant.why,
    }


def holder_of(record: LeaseRecord) -> str:
    """Name the holder, or say that there is none."""
    return (record.holder or "somebody") if record.is_held else "nobody"


def print_json(value: object) -> None:
    """Write `value` for programs."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_records(records: Sequence[LeaseRecord]) -> None:
    """Draw one row per lock."""
    table = _table("name", "holder", "token", "since", "free in", "last tick")
    for record in records:
        _add(table, *_cells(record).values())
    _draw(table)


def print_record(record: LeaseRecord) -> None:
    """Draw one lock, one line per field."""
    table = _table()
    for name, cell in (_cells(record) | {"grant": record.grant_id or ""}).items():
        _add(table, name, cell)
    _draw(table)


def print_history(past: Sequence[PastGrant]) -> None:
    """Draw one row per ended grant."""
    table = _table("name", "holder", "token", "from", "until", "why")
    for grant in past:
        from_to = (_to_the_second(grant.acquired_at_us), _to_the_second(grant.ended_at_us))
        _add(table, grant.name, grant.holder, str(grant.token), *from_to, grant.why)
    _draw(table)


def _cells(record: LeaseRecord) -> dict[str, str]:
    return {
        "name": record.name,
        "holder": holder_of(record),
        "token": str(record.token),
        "since": _to_the_second(record.acquired_at_us if record.is_held else None),
        "free in": _free_in(record),
        "last tick": _at(record.last_tick_us) or "",
    }


def _free_in(record: LeaseRecord) -> str:
    if record.free_in_s is None:
        return "unknown" if record.is_held else "free"
    return spelled(round(max(record.free_in_s, 0.0), 1)) if record.free_in_s > 0 else "free"


def _at(at_us: int | None) -> str | None:
    return None if at_us is None else spelled_us(at_us)


def _to_the_second(at_us: int | None) -> str:
    return "" if at_us is None else spelled_us(at_us - at_us % 1_000_000)


def _table(*columns: str) -> Table:
    from rich import box  # noqa: PLC0415 - only people need tables
    from rich.table import Table  # noqa: PLC0415

    table = Table(*columns, box=box.SIMPLE_HEAD, show_header=bool(columns), pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    return table


def _add(table: Table, *cells: str) -> None:
    from rich.text import Text  # noqa: PLC0415

    table.add_row(*(Text(cell) for cell in cells))  # plain: a lock may be called "[red]"


def _draw(table: Table) -> None:
    from rich.console import Console  # noqa: PLC0415

    console = Console()
    if not console.is_terminal:
        console.width = _WIDE
    console.print(table)
