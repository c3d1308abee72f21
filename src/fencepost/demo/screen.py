"""How the demo is shown: live in a terminal, line by line elsewhere."""

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

_RECENT = 12
_WIDE = 200  # a file or a pipe has no edge


class Screen(Protocol):
    """Where the demo is shown."""

    def say(self, line: str) -> None:
        """Show something that happened."""
        ...

    def show(self, view: View) -> None:
        """Show how things stand."""
        ...

    def close(self) -> None:
        """Leave what was shown last."""
        ...


def screen_for(console: Console) -> Screen:
    """Return what suits the console."""
    return LiveScreen(console) if console.is_terminal else PlainScreen(console)


class PlainScreen:
    """One line for everything that happens."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, line: str) -> None:
        """Write the line, at once."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._console.file.flush()

    def show(self, view: View) -> None:
        """Write what is new."""
        for line in (*view.turns, *view.lines):
            self.say(f"  {line}")

    def close(self) -> None:
        """There is nothing to leave."""


class LiveScreen:
    """The nodes and what each has in hand, above the latest of what happened."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live  # noqa: PLC0415 - only terminals need it

        self._recent: deque[str] = deque(maxlen=_RECENT)
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=True)
        self._live.start()

    def say(self, line: str) -> None:
        """Write it above the picture, where it stays."""
        self._live.console.print(line, markup=False, highlight=False)

    def show(self, view: View) -> None:
        """Draw the picture anew; what the demo is about stays above it."""
        for line in view.turns:
            self.say(f"          {line}")
        self._recent.extend(view.lines)
        self._live.update(self._picture(view))

    def close(self) -> None:
        """Take the picture away."""
        self._live.stop()

    def _picture(self, view: View) -> RenderableType:
        from rich.console import Group  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = _table("node", "state", "runs, with the token it writes under")
        for name, state in view.nodes.items():
            table.add_row(name, state, "\n".join(run.at_work for run in view.running(name)))
        recent = Text("\n".join(f"  {line}" for line in self._recent), no_wrap=True, overflow="ellipsis")
        return Group(table, recent)


def _table(*columns: str) -> Table:
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)


def table_of(tallies: Sequence[Tally]) -> Table:
    """Draw the count; what failed or is still open has a column only if there is any."""
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
    """Return where to show it: with JSON on standard output, the rest goes to standard error."""
    from rich.console import Console  # noqa: PLC0415

    console = Console(file=sys.stderr if as_json else sys.stdout)
    if not console.is_terminal:
        console.width = _WIDE
    return console
