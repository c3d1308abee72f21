"""The pages of the demo's ledger, on the loopback: what was shown can be looked at in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from fencepost.core.rights import Scope
from fencepost.core.runtime import Runtime
from fencepost.demo.stage import DemoStage
from fencepost.errors import MissingExtra

if TYPE_CHECKING:
    from rich.console import Console

    from fencepost.app.operations import Operations

_KEPT_FOR_S = 600.0  # as long as the link can be used


class DemoLedger(NamedTuple):
    """What the pages show: the ledger, without the code of its jobs."""

    runtime: Runtime
    operations: Operations


@contextmanager
def pages_of(stage: DemoStage, runtime: Runtime, *, port: int = 0) -> Iterator[str]:
    """Serve the pages of the demo; yield the one-time link. Raises `MissingExtra` without the extra ``web``."""
    from fencepost.app.operations import Operations  # noqa: PLC0415 - SQLAlchemy is slow to import
    from fencepost.ledger.ledger import open_ledger  # noqa: PLC0415
    from fencepost.web.serving import ListenOn, pages_in_background  # noqa: PLC0415 - an extra

    ledger = open_ledger(stage.url, runtime)
    try:
        shown = DemoLedger(runtime, Operations(ledger, Scope.direct("demo")))
        with pages_in_background(shown, ListenOn("127.0.0.1", port), link_for="demo") as link:
            yield link
    finally:
        ledger.close()


def offer_pages(stage: DemoStage, runtime: Runtime, console: Console, *, serves: bool) -> None:
    """Say how to open the pages; with `serves`, serve those of this demo until Ctrl-C, or for ten minutes."""
    command = "Watch nodes die and take over in a browser: fencepost demo --web. Your own jobs: fencepost serve APP"
    if not serves:
        _print(console, command)
        return
    try:
        with pages_of(stage, runtime) as link:
            _print(console, f"The pages of this demo, until Ctrl-C: {link}")
            _print(console, command)
            runtime.sleep(_KEPT_FOR_S)
    except KeyboardInterrupt:
        pass
    except MissingExtra as error:
        _print(console, f"{command}. But {error}")


def _print(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
