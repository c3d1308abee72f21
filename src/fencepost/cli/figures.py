"""``fencepost figures``: how the attempts of jobs ended, and how long they took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.documents import document
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import Json, LedgerUrlOption, Tz, front, since_when
from fencepost.cli.output import counted, draw_rows, print_json, say, to_the_second
from fencepost.core.duration import spelled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fencepost.app.records import FiguresRecord, OutcomesRecord, RunTimesRecord

_WORDS = ("succeeded", "failed", "timed_out", "lost", "interrupted", "cancelled", "skipped", "misfired", "dead")
_COLUMNS = (*(word.replace("_", " ") for word in _WORDS), "p50", "p95", "p99")
_SPARE = ("interrupted", "misfired", "cancelled", "skipped", "lost")


def figures(
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="One job, hour by hour.", show_default=False)] = None,
    *,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Since then: 7d, or 2026-03-29T00:00Z. Default: a day ago.")
    ] = "",
    tz: Tz = "",
    after: Annotated[str, typer.Option(metavar="JOB", help="Only jobs after this one.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many jobs.")] = 100,
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show how the attempts of each job ended, and run times of which 50, 95 and 99 % were not longer.

    Nodes count by hour, and write every ten seconds. Run times differ from the true ones by 5 % at most.

    Example: fencepost figures --since 7d

    Example: fencepost figures settle --json
    """
    with front(ledger) as ops:
        found = ops.figures(job, since=since_when(since, ops, tz=tz), after=after, limit=limit)
    if as_json:
        documents = [document(each) for each in found]
        print_json(documents if job is None else documents[0])
        return Exit.OK
    if job is not None:
        _draw_hours(found[0])
    elif found:
        rows = [(each.job, *_cells(each.outcomes, each.run_times)) for each in found]
        draw_rows(("job", *_COLUMNS), rows, spare=_SPARE)
    else:
        say("there are no jobs yet; a node brings those of its application when it starts: fencepost run APP")
    _say_what_is_missing(found)
    return Exit.OK


def _draw_hours(found: FiguresRecord) -> None:
    if not found.hours:
        say(f"nothing of job {found.job} has ended since {to_the_second(found.since_at)}")
        return
    rows = [(to_the_second(each.at), *_cells(each.outcomes, each.run_times)) for each in found.hours]
    draw_rows(("hour", *_COLUMNS), [*rows, ("all", *_cells(found.outcomes, found.run_times))], spare=_SPARE)


def _cells(outcomes: OutcomesRecord, times: RunTimesRecord | None) -> tuple[str, ...]:
    counts = (str(getattr(outcomes, word) or "") for word in _WORDS)
    found = () if times is None else (times.p50_s, times.p95_s, times.p99_s)
    return (*counts, *("" if each is None else spelled(each) for each in found))


def _say_what_is_missing(found: Sequence[FiguresRecord]) -> None:
    most = max((each.not_counting for each in found), default=0)
    if most:
        nodes = counted(most, "living node")
        say(f"(for one of these jobs, {nodes} of an older release did not count: those runs are missing here)")
