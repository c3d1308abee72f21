"""Which columns of a table fit into a terminal: times, numbers and tokens stay in one piece, texts are folded.

Where that is still too wide, columns without a value are left out, then the optional ones, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_SHORT = 20  # the length of a formatted time: longer texts may be folded
_NARROWEST = 12  # the minimum of a folded column
_BETWEEN = 2  # blanks between two columns, as the table is drawn


@dataclass(frozen=True, slots=True)
class Fit:
    """The columns that are drawn, by number, and which of them are never folded."""

    kept: Sequence[int]
    whole: frozenset[int]


def fitting(columns: Sequence[str], rows: Sequence[Sequence[str]], *, room: int, spare: Sequence[str]) -> Fit:
    """Choose columns for `room`; nothing is left out where all of them fit. If they fit in no way, all are folded."""
    wanted = _widths(columns, rows)
    kept = list(range(len(columns)))
    for number in [*_empty(rows, len(columns)), *(columns.index(name) for name in spare if name in columns)]:
        if _needed(wanted, kept) <= room:
            break
        if number in kept:
            kept.remove(number)
    fits = _needed(wanted, kept) <= room
    return Fit(kept, frozenset(each for each in kept if fits and wanted[each] <= _SHORT))


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len  # noqa: PLC0415 - only people need tables

    cells = zip(columns, *rows, strict=True)
    return [max(cell_len(line) for cell in column for line in (cell.splitlines() or [""])) for column in cells]


def _empty(rows: Sequence[Sequence[str]], count: int) -> list[int]:
    return [number for number in range(1, count) if not any(row[number] for row in rows)]


def _needed(wanted: Sequence[int], kept: Sequence[int]) -> int:
    narrow = sum(wanted[each] if wanted[each] <= _SHORT else _NARROWEST for each in kept)
    return narrow + _BETWEEN * len(kept)
