"""``fencepost why``: what became of a due time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import Json, LedgerUrlOption, Tz, opened, operations
from fencepost.cli.messages import complain
from fencepost.cli.output import at, print_json, say

if TYPE_CHECKING:
    from fencepost.cli.run_rows import RunListContext
    from fencepost.engine.why import Why


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
    """Say what became of a due time, and why: it ran, misfired, was skipped, is still to come, or never was due.

    If nodes do nothing because somebody has to decide what the ledger is, standard error says that first.

    Example: fencepost why settle

    Example: fencepost why settle --at 2026-03-29T01:00Z

    Example: fencepost why settle --at '2026-03-29 03:00' --tz Europe/Berlin
    """
    from fencepost.cli.restored import held_because  # noqa: PLC0415
    from fencepost.cli.run_rows import RunListContext, draw_runs  # noqa: PLC0415
    from fencepost.cli.times import instant_us  # noqa: PLC0415 - time zones take their time to load
    from fencepost.core.tick import instant  # noqa: PLC0415

    with opened(ledger) as book:
        at_us = instant_us(when, what="--at", now_us=book.now_us(), tz=tz or None) if when else None
        answers = operations(book).why(job, None if at_us is None else instant(at_us))
        seen = RunListContext.of(book)
        held = held_because(book)
    if held is not None:
        complain(held)
    if as_json:
        print_json([_fields(each, seen) for each in answers])
        return Exit.OK
    for each in answers:
        say(each.sentence)
        if each.run is not None:
            draw_runs([each.run], seen)
    return Exit.OK


def _fields(each: Why, seen: RunListContext) -> dict[str, object]:
    from fencepost.cli.run_rows import run_fields  # noqa: PLC0415

    return {
        "job": each.job,
        "schedule": each.schedule,
        "at": at(each.at_us),
        "became": str(each.became),
        "sentence": each.sentence,
        "run": None if each.run is None else run_fields(each.run, seen),
        "nearest": [at(near) for near in each.nearest_us],
    }
