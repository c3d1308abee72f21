"""Options of commands that use the ledger: which one, opening it, and who acts."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, cast

import typer

from fencepost.cli.messages import complain
from fencepost.cli.remote.server import Server, asking, chosen_server, refuse_by, refuse_server
from fencepost.errors import ConfigurationError, SchemaMismatch

if TYPE_CHECKING:
    from datetime import datetime

    from fencepost.app.operations import Operations
    from fencepost.cli.remote.connection import ServerConnection
    from fencepost.cli.remote.operations import RemoteOperations
    from fencepost.ledger.ledger import Ledger

LedgerUrlOption = Annotated[
    str,
    typer.Option(
        "--ledger",
        metavar="URL",
        help="The ledger's database. Default: $FENCEPOST_URL, else url in fencepost.toml, else sqlite:///fencepost.db.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, for programs.")]
By = Annotated[
    str,
    typer.Option("--by", metavar="WHO", help="Who acts, for the record. Default: the login name.", show_default=False),
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.", show_default=False)]
NeededReason = Annotated[  # `needed_reason` checks it, with its own message
    str, typer.Option("--reason", metavar="TEXT", help="Why, for the record. Required.", show_default=False)
]
PauseUntil = Annotated[
    str,
    typer.Option(
        "--until", metavar="TIME", help="When it ends by itself, such as 2026-03-29T06:00Z.", show_default=False
    ),
]
PauseFor = Annotated[
    str,
    typer.Option(
        "--for", metavar="DURATION", help="After what time it ends by itself, such as 2h.", show_default=False
    ),
]

Tz = Annotated[
    str, typer.Option("--tz", metavar="ZONE", help="The zone of times written without one.", show_default=False)
]


_MOST_DIGITS = 100  # far more than an id has: those that are too large are simply not on record


def run_number(text: str) -> int:
    """Read the number of a run as it was typed."""
    if not text.isdecimal() or len(text) > _MOST_DIGITS or not int(text):
        raise typer.BadParameter(f"{text[:40]!r} is not the number of a run; fencepost runs lists them")
    return int(text)


RunId = Annotated[int, typer.Argument(metavar="RUN", parser=run_number, help="The number of the run.")]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="The name of the job.")]


def ledger_url(given: str) -> str:
    """Return the URL of the ledger: the given one, or that of the settings."""
    if given:
        return given
    from fencepost.config import read_settings, unknown_variables  # noqa: PLC0415 - `exec` has no ledger

    for sentence in unknown_variables(os.environ):
        complain(sentence)
    return read_settings({}).url


@contextmanager
def opened(given: str) -> Iterator[Ledger]:
    """Open an existing ledger; raise `SchemaMismatch` with advice if it does not exist."""
    refuse_server(given)
    from fencepost.ledger.ledger import open_ledger  # noqa: PLC0415 - SQLAlchemy takes its time to load
    from fencepost.ledger.migrations import check_schema  # noqa: PLC0415
    from fencepost.threaded import ThreadedRuntime  # noqa: PLC0415

    ledger = open_ledger(ledger_url(given), ThreadedRuntime())
    if ledger.url.is_file and not ledger.url.path.exists():  # otherwise opening it would create an empty file
        raise SchemaMismatch(
            f"there is no ledger at {ledger.url.path}; name one with --ledger URL or FENCEPOST_URL, or start a node, "
            "which makes it: fencepost run APP"
        )
    try:
        check_schema(ledger)
        yield ledger
    finally:
        ledger.close()


@contextmanager
def front(given: str) -> Iterator[Operations]:
    """Open an existing ledger for the acts and queries of operators, or ask the server that was chosen."""
    from fencepost.app.operations import Operations  # noqa: PLC0415 - it loads the engine
    from fencepost.core.rights import Scope  # noqa: PLC0415

    if (server := chosen_server(given)) is not None:
        with reached_server(server) as (_, remote):
            yield cast("Operations", remote)  # it has the methods that commands use; a test compares them
        return
    with opened(given) as ledger:
        yield Operations(ledger, Scope.direct())


@contextmanager
def reached_server(server: Server) -> Iterator[tuple[ServerConnection, RemoteOperations]]:
    """Ask a server, which knows who acts."""
    from fencepost.cli.remote.connection import ServerConnection  # noqa: PLC0415 - few have a server
    from fencepost.cli.remote.operations import RemoteOperations  # noqa: PLC0415
    from fencepost.threaded import ThreadedRuntime  # noqa: PLC0415

    runtime = ThreadedRuntime()
    exchange = ServerConnection(server, runtime)
    try:
        with asking():
            yield exchange, RemoteOperations(exchange, runtime)
    finally:
        exchange.close()


def since_when(given: str, ops: Operations, *, what: str = "--since", tz: str = "") -> datetime | None:
    """Read a time of the command line, by the ledger's clock; None if none was given."""
    return needed_time(given, what=what, now=ops.now(), tz=tz) if given else None


def needed_time(given: str, *, what: str, now: datetime, tz: str) -> datetime:
    """Read a time of the command line."""
    from fencepost.cli.times import instant_us  # noqa: PLC0415 - time zones take their time to load
    from fencepost.core.tick import instant, microseconds  # noqa: PLC0415

    return instant(instant_us(given, what=what, now_us=microseconds(now), tz=tz or None))


def needed_reason(given: str) -> str:
    """Return the reason; refuse an empty one."""
    if not given.strip():
        raise ConfigurationError("say why, with --reason '…': the journal keeps it")
    return given.strip()


def who(by: str) -> str:
    """Return who acts: the given name, else the login name."""
    if by:
        refuse_by()
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as containers have
        return "unknown"
