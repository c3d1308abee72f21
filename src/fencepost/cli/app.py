"""The command tree, as typer draws and reads it. ``exec`` is listed here and read elsewhere."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import fencepost
from fencepost.cli import locks, migrate, schedules, speech
from fencepost.cli.exits import Exit
from fencepost.errors import ConfigurationError

# Click's own classes, or those of the copy that newer typers carry: they are exported under no other name.
_UsageError: type[Any] = typer.BadParameter.__mro__[1]
_ClickError: type[Any] = typer.BadParameter.__mro__[2]

_SUMMARY = "Locks and leases with fencing tokens, on nine stores: one of many runs it."

app = typer.Typer(
    name="fencepost",
    help=_SUMMARY,
    epilog="fencepost exec --help and fencepost locks list --help, for example, say more.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # its tracebacks may show what a variable holds, such as a URL with its password
    context_settings={"help_option_names": ["-h", "--help"]},
)
LOOK, ACT, LOCKS = "Look", "Act", "Locks"
app.add_typer(schedules.app, name="schedules", rich_help_panel=LOOK)
app.command("migrate", rich_help_panel=ACT)(migrate.migrate)
app.add_typer(locks.app, name="locks", rich_help_panel=LOCKS)


def main(words: list[str]) -> int:
    """Run the tree and return the exit code; wrong usage is a `ConfigurationError`."""
    speech.configure(log_format="text", verbosity=-1)
    try:
        outcome = app(words, prog_name="fencepost", standalone_mode=False)
    except typer.Abort:
        return Exit.INTERRUPTED
    except Exception as error:
        if not isinstance(error, _ClickError):
            raise
        if not error.format_message():  # no command at all: the help has been shown
            return Exit.BAD_INPUT
        raise ConfigurationError(_sentence(error)) from None
    return outcome if isinstance(outcome, int) else Exit.OK


def _sentence(error: Any) -> str:
    where = error.ctx.command_path if isinstance(error, _UsageError) and error.ctx else "fencepost"
    return f"{error.format_message()} (see {where} --help)"


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"fencepost {fencepost.__version__}")
        raise typer.Exit


@app.callback(help=_SUMMARY)
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    """Stand for the options before the command; its help is that of the app."""


@app.command(name="exec", add_help_option=False, rich_help_panel=LOCKS)
def _exec() -> None:
    """Run a program while holding a lock; it is stopped before anybody else can have the lock."""
    raise AssertionError("exec is read by fencepost.cli.exec")
