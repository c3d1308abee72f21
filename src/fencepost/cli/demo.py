"""``fencepost demo``: a demonstration with three nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.ledger_options import Json
from fencepost.cli.output import print_json
from fencepost.core.duration import seconds, typed_seconds
from fencepost.errors import ConfigurationError


def demo(
    *,
    duration: Annotated[
        str, typer.Option("--seconds", metavar="SECONDS", envvar="DEMO_SECONDS", help="For how long; at least 10.")
    ] = "25",
    web: Annotated[
        bool,
        typer.Option("--web", help="Serve the pages, and kill and start nodes until Ctrl-C. Needs fencepost[web]."),
    ] = False,
    lasts: Annotated[
        str,
        typer.Option("--for", metavar="DURATION", help="With --web: for how long, such as 60s.", show_default=False),
    ] = "",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="With --web: the port on 127.0.0.1; 0 for any free one.")
    ] = 0,
    as_json: Json = False,
) -> int:
    """Start three nodes on SQLite, kill the busiest with -9, watch the takeover, and verify all counts.

    Needs no setup and leaves nothing behind. Ctrl-C ends it. In a terminal, the pages of what happened are then served
    until Ctrl-C. With --web, they are served from the beginning, and nodes are killed and started all the time.

    Exit code 1: a due time has no end or two, or a write was lost or done twice.

    Example: fencepost demo --seconds 40

    Example: fencepost demo --web --for 60s
    """
    if web:
        return _live(lasts, port, as_json=as_json)
    if lasts or port:
        raise ConfigurationError("--for and --port belong to --web; without it, --seconds says for how long")
    from fencepost.demo.screen import console_for, screen_for  # noqa: PLC0415 - only this needs them
    from fencepost.demo.show import show  # noqa: PLC0415
    from fencepost.threaded import ThreadedRuntime  # noqa: PLC0415

    seconds_ = seconds(duration, what="--seconds")
    console = console_for(as_json=as_json)
    stays = console.is_terminal and not as_json
    code, count = show(ThreadedRuntime(), seconds=seconds_, console=console, screen=screen_for(console), stays=stays)
    if as_json:
        print_json(count)
    return code


def _live(lasts: str, port: int, *, as_json: bool) -> int:
    if as_json:
        raise ConfigurationError("--web counts nothing, so it has no --json")
    import fencepost.web  # noqa: F401, PLC0415 - an extra; says so before anything is started
    from fencepost.demo.live import show_live  # noqa: PLC0415 - only this needs them
    from fencepost.demo.screen import console_for  # noqa: PLC0415
    from fencepost.threaded import ThreadedRuntime  # noqa: PLC0415

    for_s = typed_seconds(lasts, what="--for") if lasts else None
    return show_live(ThreadedRuntime(), seconds=for_s, port=port, console=console_for(as_json=False))
