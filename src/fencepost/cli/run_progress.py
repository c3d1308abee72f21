"""``fencepost show RUN --follow``: how far a run is, until it has ended.

In a terminal it draws a bar, with one more for each running part of a bulk job; elsewhere it prints a line when
something has changed. It shows the progress that the run records in the ledger, about once a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.cli.documents import document
from fencepost.cli.output import console, print_line, visible
from fencepost.core.duration import spelled
from fencepost.core.states import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fencepost.app.operations import Operations
    from fencepost.app.records import PartRecord, RunRecord

    Show = Callable[[RunRecord, Sequence[PartRecord], Operations], None]

_EVERY_S = 0.5  # a run records its progress no more often (`engine.progress.EVERY_S`)
_MOST_PARTS = 20  # lines of running parts; the others are only counted, so that the bars fit on a screen
_BAR = 28  # columns; the label and the numbers share the line with the bar
_BULK = "bulk"


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """The progress that a run of a bulk job records: see `fencepost.bulk.watching`."""

    read: int
    written: int
    skipped: int
    expected: int | None
    partitions: str | None
    rate: int

    @staticmethod
    def of(note: str | None) -> BulkProgress | None:
        """Read a note; None if it has another form."""
        from fencepost.bulk.watching import read_note  # noqa: PLC0415 - few follow

        words = read_note(note)
        try:
            return BulkProgress(
                read=int(words["read"]),
                written=int(words["written"]),
                skipped=int(words["skipped"]),
                expected=int(words["expected"]) if "expected" in words else None,
                partitions=words.get("partitions"),
                rate=int(words.get("rate", 0)),
            )
        except (KeyError, ValueError):
            return None

    @property
    def left_s(self) -> float | None:
        """The remaining time at the present rate."""
        if self.expected is None or self.rate <= 0 or self.read >= self.expected:
            return None
        return (self.expected - self.read) / self.rate

    @property
    def fraction(self) -> float | None:
        """The completed fraction, if the total is known."""
        return None if not self.expected else min(self.read / self.expected, 1.0)

    def __str__(self) -> str:
        of = f" of about {self.expected:,}" if self.expected is not None else ""
        left = "" if self.left_s is None else f"{spelled(max(round(self.left_s), 1))} left"
        words = (
            f"{self.read:,}{of} read",
            f"{self.written:,} written",
            f"{self.skipped:,} skipped" if self.skipped else "",
            f"{self.partitions} partitions" if self.partitions else "",
            f"{self.rate:,}/s" if self.rate else "",
            left,
        )
        return ", ".join(filter(None, words))


class ProgressLine(NamedTuple):
    """The progress of a run or of a part: a label, the completed fraction, and a text."""

    label: str
    fraction: float | None
    text: str

    def __str__(self) -> str:
        shown = f"{self.fraction:.0%} " if self.fraction is not None else ""
        return f"{self.label}: {shown}{self.text}".rstrip()


def follow(ops: Operations, run_id: int, *, as_json: bool) -> RunRecord:
    """Show a run until it has ended, and return it then."""
    with _view(as_json=as_json) as show:
        while True:
            run = ops.run(run_id)
            show(run, ops.parts(run_id) if run.type == _BULK else [], ops)
            if run.state in TERMINAL:
                return run
            ops.runtime.sleep(_EVERY_S)


@contextmanager
def _view(*, as_json: bool) -> Iterator[Show]:
    if as_json:
        yield _Changes(_as_fields)
    elif console().is_terminal:
        with _bars() as show:
            yield show
    else:
        yield _Changes(None)


class _Changes:
    """Writes what has changed since the last write: objects, or a line for each run and part."""

    def __init__(self, fields: Callable[[RunRecord, Sequence[PartRecord]], dict[str, Any]] | None) -> None:
        self._fields = fields
        self._last: dict[str, object] = {}

    def __call__(self, run: RunRecord, parts: Sequence[PartRecord], ops: Operations) -> None:
        if self._fields is not None:
            fields = self._fields(run, parts)
            if self._is_news("run", fields):
                print_line(fields)
            return
        for line in _lines(run, parts, ops):
            if self._is_news(line.label, line):
                print(visible(str(line)), flush=True)

    def _is_news(self, what: str, now: object) -> bool:
        is_news = self._last.get(what) != now
        self._last[what] = now
        return is_news


def _as_fields(run: RunRecord, parts: Sequence[PartRecord]) -> dict[str, Any]:
    return {**document(run), "parts": [document(part) for part in parts]}


@contextmanager
def _bars() -> Iterator[Show]:
    """Draw bars in place. They stay on the screen at the end."""
    from rich.live import Live  # noqa: PLC0415 - only people in terminals need it

    with Live(console=console(), auto_refresh=False) as live:

        def show(run: RunRecord, parts: Sequence[PartRecord], ops: Operations) -> None:
            live.update(_drawn(_lines(run, parts, ops)), refresh=True)

        yield show


def _drawn(lines: Sequence[ProgressLine]) -> Any:
    from rich.progress_bar import ProgressBar  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table.grid(padding=(0, 1))
    for line in lines:
        bar = Text("") if line.fraction is None else ProgressBar(1.0, line.fraction, width=_BAR)
        share = Text("" if line.fraction is None else f"{line.fraction:.0%}")
        table.add_row(Text(visible(line.label)), bar, share, Text(visible(line.text)))
    return table


# -- lines of progress -------------------------------------------------------------------------------------------------


def _lines(run: RunRecord, parts: Sequence[PartRecord], ops: Operations) -> list[ProgressLine]:
    """Return a line for the run, and one for each of its running parts."""
    running = [part for part in parts if part.state == "running"]
    lines = [_line_of_run(run, ops), *map(_line_of_part, running[:_MOST_PARTS])]
    if len(running) > _MOST_PARTS:
        lines.append(ProgressLine("  …", None, f"and {len(running) - _MOST_PARTS} more parts"))
    return lines


def _line_of_run(row: RunRecord, ops: Operations) -> ProgressLine:
    label = f"run {row.id} of {row.job}"
    progress = BulkProgress.of(row.progress_note)
    attempt = f", attempt {row.attempts}" if row.attempts > 1 else ""
    if row.state != "running":
        why = (ops.waits(row.id) if row.state not in TERMINAL else None) or row.why or row.error
        note = str(progress) if progress else row.progress_note
        return ProgressLine(label, row.progress, "; ".join(filter(None, (f"{row.state}{attempt}", why, note))))
    text = str(progress) if progress else row.progress_note or "running"
    return ProgressLine(
        label, row.progress if progress is None else progress.fraction or row.progress, f"{text}{attempt}"
    )


def _line_of_part(part: PartRecord) -> ProgressLine:
    progress = BulkProgress.of(part.progress_note)
    name = "a partition" if part.step is None else f"{part.step} #{part.number}"
    text = str(progress) if progress else part.progress_note or "running"
    return ProgressLine(f"  {name} (run {part.run_id})", progress.fraction if progress else None, text)
