"""What the commands about accounts, permissions and API tokens share: opening the ledger, and reading a password."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from fencepost.cli.ledger_options import opened, reached_server, who
from fencepost.cli.messages import complain
from fencepost.cli.remote.server import chosen_server
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fencepost.access import Access

PasswordFile = Annotated[
    str,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Read the password from FILE, or with - from standard input. Default: ask at the terminal.",
        show_default=False,
    ),
]
JobNames = Annotated[
    list[str] | None,
    typer.Option(
        "--job", metavar="JOB", help="On this job. Can be repeated. Default: on all jobs.", show_default=False
    ),
]
RoleName = Annotated[str, typer.Argument(metavar="ROLE", help="viewer, operator or admin.")]
PrincipalName = Annotated[
    str, typer.Argument(metavar="PRINCIPAL", help="user:NAME, token:ID, proxy:NAME or host:NAME.")
]


@contextmanager
def access(ledger: str, by: str = "") -> Iterator[Access]:
    """Open a ledger that is there, or ask a server. Whoever has the database's password may change access."""
    from fencepost.access import Access  # noqa: PLC0415 - it loads the engine
    from fencepost.core.rights import Scope  # noqa: PLC0415

    if (server := chosen_server(ledger)) is not None:
        from fencepost.cli.remote.access import RemoteAccess  # noqa: PLC0415 - few have a server

        with reached_server(server) as (exchange, ops):
            who(by)  # refuses a name
            yield cast("Access", RemoteAccess(exchange, ops.jobs))  # it has the methods that commands use
        return
    with opened(ledger) as book:
        yield Access(book, Scope.direct(who(by)))


def read_password(file: str, *, name: str) -> str:
    """Read a new password: from a file, from standard input, or at the terminal, where it is not shown."""
    if file == "-":
        return _one_line(sys.stdin.read(), "standard input")
    if file:
        try:
            return _one_line(Path(file).read_text(encoding="utf-8"), file)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{file} cannot be read: {error}") from None
    if not sys.stdin.isatty():
        raise ConfigurationError("there is no terminal to ask for the password at: give --password-file FILE, or -")
    typed = getpass.getpass(f"New password for {name}: ")
    if getpass.getpass("Once more: ") != typed:
        raise ConfigurationError("the two passwords differ; nothing was changed")
    return typed


def _one_line(text: str, place: str) -> str:
    password = text.removesuffix("\n").removesuffix("\r")
    if "\n" in password:
        raise ConfigurationError(f"{place} has more than one line; a password is one line")
    return password


def warn_of_unknown(access: Access, jobs: Sequence[str]) -> None:
    """Print which of these jobs no node has registered. Names are compared whole: a mistyped one gives nothing."""
    for name in access.jobs_not_on_record(jobs):
        complain(f"no node has registered a job {name!r} so far; the permission counts once one does")
