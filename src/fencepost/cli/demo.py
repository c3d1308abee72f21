"""``fencepost demo``: a demonstration with three nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.ledger_options import Json
from fencepost.cli.output import print_json
from fencepost.core.duration import seconds


def demo(
    *,
    duration: Annotated[
        str, typer.Option("--seconds", metavar="SECONDS", envvar="DEMO_SECONDS", help="For how long; at least 10.")
    ] = "25",
    as_json: Json = False,
) -> int:
    """Start three nodes on SQLite, kill the busiest with -9, watch the takeover, and verify all counts.

    Needs no setup and leaves nothing behind. Ctrl-C ends it.

    Exit code 1: a due time has no end or two, or a write was lost or done twice.

    Example: fencepost demo --seconds 40
    """
    from fencepost.demo.screen import console_for, screen_for  # noqa: PLC0415 - only this needs them
    from fencepost.demo.show import show  # noqa: PLC0415
    from fencepost.threaded import ThreadedRuntime  # noqa: PLC0415

    seconds_ = seconds(duration, what="--seconds")
    console = console_for(as_json=as_json)
    code, count = show(ThreadedRuntime(), seconds=seconds_, console=console, screen=screen_for(console))
    if as_json:
        print_json(count)
    return code
