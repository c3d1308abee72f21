"""``fencepost journal``: acts of people, and failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.documents import document
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import Json, LedgerUrlOption, Tz, front, since_when
from fencepost.cli.output import draw_rows, print_json, to_the_second
from fencepost.cli.run_rows import beginning, shown_node

if TYPE_CHECKING:
    from fencepost.app.records import JournalRecord


def journal(
    *,
    job: Annotated[str, typer.Option(metavar="JOB", help="Only about this job.", show_default=False)] = "",
    run: Annotated[int | None, typer.Option(metavar="RUN", help="Only about this run.", show_default=False)] = None,
    what: Annotated[
        str, typer.Option(metavar="WORDS", help="Only this kind, such as 'node died'.", show_default=False)
    ] = "",
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Only since then: 24h, or 2026-03-29T00:00Z.", show_default=False)
    ] = "",
    tz: Tz = "",
    limit: Annotated[int, typer.Option(min=1, help="How many.")] = 50,
    before: Annotated[
        int | None, typer.Option(metavar="ID", help="Only entries older than this one.", show_default=False)
    ] = None,
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show acts of operators, lost attempts, refused writes, dead nodes and clock jumps; newest first.

    Example: fencepost journal --since 24h

    Example: fencepost journal --run 42 --json
    """
    with front(ledger) as ops:
        if job:
            ops.job(job)
        found = ops.journal(
            job=job or None,
            run_id=run,
            what=what or None,
            since=since_when(since, ops, tz=tz),
            before_id=before,
            limit=limit,
        )
    if as_json:
        print_json([document(entry) for entry in found])
    elif found:
        columns = ("id", "at", "what", "job", "run", "schedule", "node", "token", "by", "reason")
        draw_rows(columns, map(_cells, found), spare=("token", "schedule", "node", "id"))
    else:
        print("there are no such entries")
    return Exit.OK


def _cells(entry: JournalRecord) -> tuple[str, ...]:
    from fencepost.app.records.concerns import details_of  # noqa: PLC0415 - it loads the ledger

    return (
        str(entry.id),
        to_the_second(entry.at),
        entry.what,
        entry.job or "",
        str(entry.run_id or ""),
        entry.schedule or "",
        shown_node(entry),
        str(entry.token or ""),
        entry.by or "",
        beginning("; ".join(filter(None, (details_of(entry.what, entry.detail), entry.reason)))),
    )
