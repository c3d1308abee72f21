"""``fencepost why``: what became of a due time."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.documents import document
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import Json, LedgerUrlOption, Tz, front, since_when
from fencepost.cli.messages import complain
from fencepost.cli.output import print_json, say


def why(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job, or the id of one of its schedules.")],
    *,
    when: Annotated[
        str,
        typer.Option(
            "--at", metavar="TIME", help="The due time: 2026-03-29T01:00Z. Default: the latest.", show_default=False
        ),
    ] = "",
    tz: Tz = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show what became of a due time, and why: it ran, misfired, was skipped, is still to come, or never was due.

    Without --at, also what keeps the job from running now: a pause, or no living node that has it.

    If the ledger is held and nodes do nothing, standard error says that first.

    Example: fencepost why settle

    Example: fencepost why settle --at 2026-03-29T01:00Z

    Example: fencepost why settle --at '2026-03-29 03:00' --tz Europe/Berlin
    """
    from fencepost.cli.run_rows import draw_runs  # noqa: PLC0415

    with front(ledger) as ops:
        answers = ops.why(job, since_when(when, ops, what="--at", tz=tz))
        held = ops.held_because()
    if held is not None:
        complain(held)
    if as_json:
        print_json([document(each) for each in answers])
        return Exit.OK
    for each in answers:
        say(each.sentence)
        if each.run is not None:
            draw_runs([each.run])
    for line in dict.fromkeys(line for each in answers for line in each.now or ()):  # None: an older server's
        say(line)
    return Exit.OK
