"""The output of the demo: live in a terminal, line by line elsewhere."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from fencepost.demo.recount import Tally, total
from fencepost.demo.watching import View

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_RECENT = 12  # the latest endings of runs, below the table of nodes
_WIDE = 200  # columns, for a file or a pipe, which have no width of their own


class Screen(Protocol):
    """Where the demo is shown."""

    def say(self, line: str) -> None:
        """Show a line about something that happened."""
        ...

    def show(self, view: View) -> None:
        """Show the current state."""
        ...

    def close(self) -> None:
        """End the output."""
        ...


def screen_for(console: Console) -> Screen:
    """Return the screen that fits the console."""
    return LiveScreen(console) if console.is_terminal else PlainScreen(console)


class PlainScreen:
    """One line for everything that happens."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, line: str) -> None:
        """Write the line, without buffering."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._console.file.flush()

    def show(self, view: View) -> None:
        """Write the new lines."""
        for line in (*view.turns, *view.lines):
            self.say(f"  {line}")

    def close(self) -> None:
        """Do nothing."""


class LiveScreen:
    """The nodes and their runs, above the latest lines."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live  # noqa: PLC0415 - only terminals need it

        self._recent: deque[str] = deque(maxlen=_RECENT)
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=True)
        self._live.start()

    def say(self, line: str) -> None:
        """Write a line above the table, where it stays."""
        self._live.console.print(line, markup=False, highlight=False)

    def show(self, view: View) -> None:
        """Redraw the table. Lines about the takeover stay above it."""
        for line in view.turns:
            self.say(f"          {line}")
        self._recent.extend(view.lines)
        self._live.update(self._picture(view))

    def close(self) -> None:
        """Remove the table."""
        self._live.stop()

    def _picture(self, view: View) -> RenderableType:
        from rich.console import Group  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = _table("node", "state", "runs, with their tokens")
        for name, state in view.nodes.items():
            table.add_row(name, state, "\n".join(run.at_work for run in view.running(name)))
        recent = Text("\n".join(f"  {line}" for line in self._recent), no_wrap=True, overflow="ellipsis")
        return Group(table, recent)


def _table(*columns: str) -> Table:
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)


def table_of(tallies: Sequence[Tally]) -> Table:
    """Return the count as a table. Failed and open runs have a column only if there are any."""
    whole = total(tallies)
    troubles = [name for name in ("failed", "open") if getattr(whole, name)]
    names = ["due", "ran", "misfired", "skipped", *troubles, "missing", "duplicates", "lost_writes"]
    table = _table("job", *(name.replace("_", " ") for name in names))
    for tally in (*tallies, whole):
        table.add_row(tally.job, *(str(getattr(tally, name)) for name in names))
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def console_for(*, as_json: bool) -> Console:
    """Return the console for the output: standard error if standard output is for JSON."""
    from rich.console import Console  # noqa: PLC0415

    console = Console(file=sys.stderr if as_json else sys.stdout)
    if not console.is_terminal:
        console.width = _WIDE
    return console
