"""Loads an application and its ledger, for commands that need a job's own code, such as its reader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple, cast

import typer

from fencepost.cli.ledger_options import opened, reached_server
from fencepost.cli.remote.server import chosen_server
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.app import App
    from fencepost.app.bulk import BulkJob
    from fencepost.app.operations import Operations
    from fencepost.ledger.ledger import Ledger

AppSpec = Annotated[
    str,
    typer.Option(
        "--app",
        metavar="APP",
        help="The application, as package.module:app. Default: $FENCEPOST_APP, else app in fencepost.toml.",
        show_default=False,
    ),
]


class Reached(NamedTuple):
    """An application and its ledger. No node is started, and the application opens nothing itself."""

    app: App
    ledger: Ledger

    @property
    def operations(self) -> Operations:
        """The acts and queries of operators."""
        from fencepost.app.operations import Operations  # noqa: PLC0415 - it loads the engine
        from fencepost.core.rights import Scope  # noqa: PLC0415

        return Operations(
            self.ledger,
            Scope.direct(),
            known=self.app.jobs,
            bulks=self.app.bulks,
            generation=self.app.settings.generation,
        )

    def bulk(self, name: str) -> BulkJob:
        """Return a bulk job of the application; refuse any other name with a suggestion."""
        from fencepost.app.letters import bulk_named  # noqa: PLC0415 - it loads the engine

        return bulk_named(name, self.app.bulks, self.app.jobs)


class RemoteBulkJob(NamedTuple):
    """What commands need of a bulk job whose code is on a server."""

    replay_name: str


class RemoteReached(NamedTuple):
    """The operations of a server that has the application."""

    operations: Operations

    def bulk(self, name: str) -> RemoteBulkJob:
        """Return what is known of a bulk job here; the server refuses any other name."""
        from fencepost.app.bulk import REPLAY  # noqa: PLC0415 - it loads the engine

        return RemoteBulkJob(name + REPLAY)


def app_spec(given: str, *, how: str = "with --app") -> str:
    """Return the name of the application: the given one, or that of the settings. `how` says how to give one."""
    from fencepost.config import read_settings  # noqa: PLC0415 - it loads the ledger

    named = given or read_settings({}).app
    if named is None:
        raise ConfigurationError(
            f"which application? This needs its code: name it as package.module:app, {how}, with FENCEPOST_APP, or "
            "with app = in fencepost.toml"
        )
    return named


@contextmanager
def reached(given: str, ledger: str) -> Iterator[Reached]:
    """Import an application and open its ledger, or the given one, which must exist; or ask a server that has both."""
    from fencepost.app import App  # noqa: PLC0415 - it loads the engine
    from fencepost.engine.engines import close_engine  # noqa: PLC0415
    from fencepost.engine.loading import load_app  # noqa: PLC0415

    if not given and (server := chosen_server(ledger)) is not None:
        with reached_server(server) as (_, ops):
            yield cast("Reached", RemoteReached(cast("Operations", ops)))
        return
    spec = app_spec(given)
    app = load_app(spec)
    if not isinstance(app, App):
        raise ConfigurationError(f"{spec!r} is a {type(app).__name__}, and this needs an App")
    with opened(ledger or app.settings.url) as book:
        try:
            yield Reached(app, book)
        finally:
            close_engine(book)
