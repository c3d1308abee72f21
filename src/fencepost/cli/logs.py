"""``fencepost logs``: what a run wrote."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.documents import document
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import Json, LedgerUrlOption, RunId, front
from fencepost.cli.messages import complain
from fencepost.cli.output import print_json_list, print_line
from fencepost.core.log_chunks import plain
from fencepost.core.states import TERMINAL
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fencepost.app.operations import Operations
    from fencepost.app.records import LogRecord

_PAGE = 20  # records in one query, each with about a second of lines: a long log is shown as it is read
_EVERY_S = 1.0  # nodes write logs once a second (`engine.logs.writer`)
_WRITTEN_WITHIN = timedelta(seconds=3)
"""After the end of a run, its node has written the rest of its log by then."""


def logs(
    run: RunId,
    *,
    attempt: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only this attempt. Default: all.", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
    tail: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only the last N lines so far.", show_default=False)
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Leave control sequences, such as colours, as they are.")] = False,
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show what a run wrote: its output, and its log records.

    Of each attempt, the first 64 kB and the last 192 kB are kept, as long as the run is. Lines appear here about a
    second after they were written.

    With --json: a list of objects, or with --follow one object per line. Each has a second of lines.

    Exit code 1: there is no such run.

    Example: fencepost logs 42

    Example: fencepost logs 42 --follow --tail 20
    """
    if tail is not None and as_json:
        raise ConfigurationError("--tail counts lines, and --json shows seconds; give one of them")
    with front(ledger) as ops:
        ops.run(run)
        if as_json and not follow:
            print_json_list(document(record) for record in _records(ops, run, attempt))
            return Exit.OK
        shown = _Shown(raw=raw, as_json=as_json)
        _show_beginning(ops, run, attempt, shown, tail)
        if follow:
            _follow(ops, run, attempt, shown)
        elif shown.position is None:
            complain(_without_log(run, attempt))
    return Exit.OK


def _without_log(run: int, attempt: int | None) -> str:
    of = "" if attempt is None else f" of attempt {attempt}, if there was one"
    return (
        f"run {run} has no log{of}: it wrote nothing so far; or its node keeps no logs; or it ran on "
        "threads (--threads, app.start()), of which log records are kept, and not what print() writes"
    )


class _Shown:
    """What was printed so far."""

    def __init__(self, *, raw: bool, as_json: bool) -> None:
        self.position: str | None = None
        self._raw = raw
        self._as_json = as_json
        self._attempt = 1

    def show(self, record: LogRecord, text: str | None = None) -> None:
        """Print lines, and what is missing before them."""
        self.position = record.position
        if self._as_json:
            print_line(document(record))
            return
        if record.attempt != self._attempt:
            print(f"--- attempt {record.attempt}")
            self._attempt = record.attempt
        if record.missing and text is None:
            print(f"--- {record.missing:,} lines are not kept")
        self._write(record.text if text is None else text)

    def _write(self, text: str) -> None:
        sys.stdout.write(text if self._raw else plain(text))
        sys.stdout.flush()


def _records(ops: Operations, run: int, attempt: int | None, after: str | None = None) -> Iterator[LogRecord]:
    while page := ops.log(run, attempt=attempt, after=after, limit=_PAGE):
        yield from page
        after = page[-1].position


def _show_beginning(ops: Operations, run: int, attempt: int | None, shown: _Shown, tail: int | None) -> None:
    """Show what there is; with `tail`, only so many lines at the end of it."""
    if tail is None:
        for record in _records(ops, run, attempt):
            shown.show(record)
        return
    records = list(_records(ops, run, attempt))
    wanted, cut = tail, len(records)
    while cut and wanted > 0:
        cut -= 1
        wanted -= records[cut].text.count("\n")
    for number, record in enumerate(records[cut:]):
        if number == 0 and wanted <= 0:
            shown.show(record, "\n".join(record.text.split("\n")[-wanted:]))
        else:
            shown.show(record)
    if records:
        shown.position = records[-1].position


def _follow(ops: Operations, run: int, attempt: int | None, shown: _Shown) -> None:
    """Show what comes, until the run has ended and the rest of its log is here."""
    seen_over_at: float | None = None
    while True:
        row, now, now_s = ops.run(run), ops.now(), ops.runtime.monotonic()
        if row.state in TERMINAL and seen_over_at is None:
            seen_over_at = now_s
        for record in _records(ops, run, attempt, shown.position):
            shown.show(record)
        if seen_over_at is not None:
            # Our own clock as well: that of the ledger may have been set back since the run ended.
            since = max(now - (row.ended_at or now), timedelta(seconds=now_s - seen_over_at))
            if row.ended_at is None or since > _WRITTEN_WITHIN:
                return
        ops.runtime.sleep(_EVERY_S)
