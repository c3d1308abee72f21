"""``fencepost schedules``: when jobs are due, now and when the clocks are changed; and holding one back."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.drawing import print_json
from fencepost.cli.exits import Exit
from fencepost.cli.reaching import Json, LedgerUrlOption

app = typer.Typer(
    help="See when jobs are due; pause and resume schedules.",
    epilog="Exit code 1: there is no such schedule; 2: bad input, or the ledger cannot be reached.",
    no_args_is_help=True,
)


@app.command()
def preview(
    what: Annotated[
        str, typer.Argument(metavar="SCHEDULE", help="A schedule, a job, a cron expression, or 'every 5m'.")
    ],
    ledger: LedgerUrlOption = "",
    tz: Annotated[str, typer.Option(metavar="ZONE", help="The time zone of an expression.")] = "UTC",
    dst: Annotated[
        str, typer.Option(metavar="WORD", help="Of an expression: auto, first, second, both, skip or real.")
    ] = "auto",
    count: Annotated[int, typer.Option(min=0, max=10_000, help="How many due times to show.")] = 5,
    year: Annotated[
        int | None, typer.Option(help="Whose changes of the clock to show; by default this year's.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> int:
    """Show the next due times, and what becomes of them when the clocks of the zone are changed.

    Example: fencepost schedules preview '30 2 * * *' --tz Europe/Berlin --year 2026

    Example: fencepost schedules preview settle
    """
    from fencepost.cli import previews  # noqa: PLC0415 - time zones take their time to load
    from fencepost.threaded import ThreadedRuntime  # noqa: PLC0415

    found = previews.ad_hoc(what, tz=tz, dst=dst)
    named = [(None, found)] if found is not None else []
    now_us = ThreadedRuntime().wall_us()
    outlooks = [
        previews.Outlook.of(schedule, now_us=now_us, count=count, year=year, name=name) for name, schedule in named
    ]
    if as_json:
        print_json([previews.outlook_fields(each) for each in outlooks])
    else:
        for each in outlooks:
            previews.draw_outlook(each)
    return Exit.OK
