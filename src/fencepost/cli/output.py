"""Output of all commands: tables for people, JSON for programs."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fencepost.cli.exits import Exit
from fencepost.core.tick import microseconds, spelled_us

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console
    from rich.table import Table

_WIDE = 1000  # a file or a pipe has no width at which to cut names
# Control characters, lone surrogates, other line ends, and characters that change the direction of text.
_SPEAKS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def print_json(value: object) -> None:
    """Print one JSON document."""
    print(_dumped(value, indent=2))


def answer(value: object, sentence: str, *, as_json: bool) -> int:
    """Print the result of an act: `value` for programs, the sentence for people. Return the exit code."""
    if as_json:
        print_json(value)
    else:
        print(sentence)
    return Exit.OK


def print_json_list(values: Iterable[object]) -> None:
    """Print a JSON list item by item: it may be larger than memory."""
    lead = "[\n"
    for value in values:
        print(lead + textwrap.indent(_dumped(value, indent=2), "  "), end="")
        lead = ",\n"
    print("[]" if lead == "[\n" else "\n]")


def print_line(value: object) -> None:
    """Print one JSON object on one line and flush it: a reader may follow the output."""
    print(_dumped(value), flush=True)


def _dumped(value: object, indent: int | None = None) -> str:
    """Format JSON with characters that the output's encoding has."""
    is_unicode = (getattr(sys.stdout, "encoding", None) or "utf").lower().startswith("utf")
    return json.dumps(value, ensure_ascii=not is_unicode, indent=indent)


def at(at_us: int | None) -> str | None:
    """Format an instant at full precision, for programs."""
    return None if at_us is None else spelled_us(at_us)


def exactly(moment: datetime | None) -> str:
    """Format an instant in UTC at full precision, for people; empty if there is none."""
    return "" if moment is None else spelled_us(microseconds(moment))


def to_the_second(moment: datetime | None) -> str:
    """Format an instant in UTC to the second, for people; empty if there is none."""
    return exactly(None if moment is None else moment.replace(microsecond=0)).replace("T", " ")


def to_the_millisecond(moment: datetime | None) -> str:
    """Format an instant in UTC to the millisecond, for people."""
    return "" if moment is None else f"{exactly(moment.replace(microsecond=0))[:-1]}.{moment.microsecond // 1000:03}Z"


def visible(text: str) -> str:
    """Escape characters that control the terminal. Line feeds stay."""
    return _SPEAKS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def say(text: str) -> None:
    """Print a sentence, or a text of the user's, with control characters escaped."""
    print(visible(text))


def counted(number: int, noun: str, plural: str = "") -> str:
    """Format a count with its noun: 1 run, 2 runs, 3 entries."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def draw_rows(columns: Sequence[str], rows: Iterable[Sequence[str]], *, spare: Sequence[str] = ()) -> None:
    """Draw a table with a head. In a narrow terminal the columns in `spare` are left out, the first ones first."""
    from fencepost.cli.column_widths import fitting  # noqa: PLC0415 - only people need tables

    cells = [tuple(map(visible, row)) for row in rows]
    fit = fitting(columns, cells, room=console().width, spare=spare)
    table = new_table(*(columns[each] for each in fit.kept))
    for number, column in zip(fit.kept, table.columns, strict=True):
        column.no_wrap = number in fit.whole
    for row in cells:
        add(table, *(row[each] for each in fit.kept))
    draw(table)
    left = [name for each, name in enumerate(columns) if each not in fit.kept and any(row[each] for row in cells)]
    if left:
        print(f"(too narrow for: {', '.join(left)})")


def draw_fields(fields: Mapping[str, str]) -> None:
    """Draw one record, a line per field. Fields without a value are left out."""
    table = new_table()
    for name, cell in fields.items():
        if cell:
            add(table, name, cell)
    draw(table)


def new_table(*columns: str) -> Table:
    """Make a table. Without columns it has no head."""
    from rich import box  # noqa: PLC0415 - only people need tables
    from rich.table import Table  # noqa: PLC0415

    table = Table(*columns, box=box.SIMPLE_HEAD, show_header=bool(columns), pad_edge=False, collapse_padding=True)
    for column in table.columns:
        column.overflow = "fold"
    return table


def add(table: Table, *cells: str) -> None:
    """Add a row."""
    from rich.text import Text  # noqa: PLC0415

    table.add_row(*(Text(visible(cell)) for cell in cells))  # plain: a lock may be called "[red]"


def draw(table: Table) -> None:
    """Write a table to standard output, without trailing blanks if that is not a terminal."""
    screen = console()
    if screen.is_terminal:
        screen.print(table)
        return
    with screen.capture() as drawn:
        screen.print(table)
    print("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def console() -> Console:
    """Return standard output as rich sees it."""
    from rich.console import Console  # noqa: PLC0415

    screen = Console()
    if not screen.is_terminal:
        screen.width = _WIDE
    return screen
