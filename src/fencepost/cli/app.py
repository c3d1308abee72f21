"""The command tree for typer. ``exec`` is listed here; `fencepost.cli.exec` parses it."""

from __future__ import annotations

from copy import copy
from typing import Annotated, Any

import typer

import fencepost
from fencepost.cli import (
    acts,
    api_tokens,
    audit,
    bulk,
    chaos,
    demo,
    effects,
    figures,
    jobs,
    journal,
    letters,
    locks,
    logs,
    messages,
    migrate,
    nodes,
    now,
    pauses,
    permissions,
    restored,
    run,
    runs,
    schedules,
    serve,
    tune,
    users,
    why,
)
from fencepost.cli.exits import Exit
from fencepost.cli.remote.server import chosen_by, place_of, server_words
from fencepost.errors import ConfigurationError

# Click's own classes, or those of the copy that newer typers carry: they are exported under no other name.
_UsageError: type[Any] = typer.BadParameter.__mro__[1]
_ClickError: type[Any] = typer.BadParameter.__mro__[2]

_SUMMARY = "Scheduled and batch jobs on many instances: each due time once, and no stale writes."

app = typer.Typer(
    name="fencepost",
    help=_SUMMARY,
    epilog="Every command has --help with an example; those that show something have --json. The ledger is --ledger "
    "URL, $FENCEPOST_URL, url in fencepost.toml, or sqlite:///fencepost.db; or a server is asked in its place: "
    "fencepost --server URL COMMAND. Commands that need your code (run APP, "
    "tune, bulk, letters) find it by --app, $FENCEPOST_APP, or app in fencepost.toml.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # typer's tracebacks show local variables, such as a URL with its password
    context_settings={"help_option_names": ["-h", "--help"]},
)
RUN, LOOK, ACT, BULK, LOCKS, ACCESS = "Run jobs", "Look", "Act", "Bulk jobs", "Locks", "Access"
app.command("run", rich_help_panel=RUN)(run.run)
app.command("serve", rich_help_panel=RUN)(serve.serve)
app.command("demo", rich_help_panel=RUN)(demo.demo)
app.command("chaos", rich_help_panel=RUN)(chaos.chaos)
app.command("now", rich_help_panel=LOOK)(now.now)
app.add_typer(jobs.app, name="jobs", rich_help_panel=LOOK)
app.add_typer(schedules.app, name="schedules", rich_help_panel=LOOK)
app.command("runs", rich_help_panel=LOOK)(runs.runs)
app.command("show", rich_help_panel=LOOK)(runs.show)
app.command("figures", rich_help_panel=LOOK)(figures.figures)
app.command("logs", rich_help_panel=LOOK)(logs.logs)
app.command("why", rich_help_panel=LOOK)(why.why)
app.add_typer(nodes.app, name="nodes", rich_help_panel=LOOK)
app.command("leader", rich_help_panel=LOOK)(nodes.leader)
app.command("pauses", rich_help_panel=LOOK)(pauses.pauses)
app.command("journal", rich_help_panel=LOOK)(journal.journal)
app.add_typer(audit.app, name="audit", rich_help_panel=LOOK)
app.command("trigger", rich_help_panel=ACT)(acts.trigger)
app.command("retry", rich_help_panel=ACT)(acts.retry)
app.command("cancel", rich_help_panel=ACT)(acts.cancel)
app.command("release", rich_help_panel=ACT)(acts.release)
app.command("acknowledge", rich_help_panel=ACT)(now.acknowledge)
app.command("unacknowledge", rich_help_panel=ACT)(now.unacknowledge)
app.command("reprocess", rich_help_panel=ACT)(acts.reprocess)
app.command("backfill", rich_help_panel=ACT)(acts.backfill)
app.command("pause", rich_help_panel=ACT)(pauses.pause)
app.command("resume", rich_help_panel=ACT)(pauses.resume)
app.command("migrate", rich_help_panel=ACT)(migrate.migrate)
app.command("restored", rich_help_panel=ACT)(restored.restored)
app.add_typer(effects.app, name="effects", rich_help_panel=ACT)
app.add_typer(bulk.app, name="bulk", rich_help_panel=BULK)
app.add_typer(letters.app, name="letters", rich_help_panel=BULK)
app.add_typer(letters.app, name="dead", hidden=True)  # the former name; until 1.0
app.command("tune", rich_help_panel=BULK)(tune.tune)
app.add_typer(locks.app, name="locks", rich_help_panel=LOCKS)
app.add_typer(users.app, name="users", rich_help_panel=ACCESS)
app.add_typer(permissions.app, name="permissions", rich_help_panel=ACCESS)
app.add_typer(api_tokens.app, name="api-tokens", rich_help_panel=ACCESS)


def main(words: list[str]) -> int:
    """Run the tree and return the exit code; wrong usage is a `ConfigurationError`."""
    messages.configure(log_format="text", verbosity=-1)
    given, rest = server_words(words)
    with chosen_by(given, rest[0] if rest else ""):
        return _called(rest)


def _called(words: list[str]) -> int:
    try:
        outcome = _tree(words)(words, prog_name="fencepost", standalone_mode=False)
    except typer.Abort:
        return Exit.INTERRUPTED
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # the reader closed the pipe, which is not a failure
            raise end.__context__ from None
        raise
    except Exception as error:
        if not isinstance(error, _ClickError):
            raise
        if not error.format_message():  # no command was given: the help has been shown
            return Exit.BAD_INPUT
        raise ConfigurationError(_sentence(error)) from None
    return outcome if isinstance(outcome, int) else Exit.OK


def _tree(words: list[str]) -> typer.Typer:
    """Return the tree with only the requested branch: building all 50 commands takes longer than most calls."""
    commands = [each for each in app.registered_commands if words[:1] == [each.name]]
    groups = [each for each in app.registered_groups if words[:1] == [each.name]]
    if not (commands or groups):  # help, or an unknown command
        return app
    tree = copy(app)
    tree.registered_commands, tree.registered_groups = commands, groups
    return tree


_AFTER_THE_COMMAND = {"--ledger": "--ledger URL", "--json": "--json", "--app": "--app MODULE:APP"}


def _sentence(error: Any) -> str:
    where = error.ctx.command_path if isinstance(error, _UsageError) and error.ctx else "fencepost"
    if type(error).__name__ == "NoSuchOption":
        name, command = error.option_name, where.removeprefix("fencepost").strip()
        if command and (place := place_of(name, command)):
            return place
        if not command and name in _AFTER_THE_COMMAND:
            return f"{name} stands after the command: fencepost COMMAND {_AFTER_THE_COMMAND[name]}"
    return f"{error.format_message()} (see {where} --help)"


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"fencepost {fencepost.__version__}")
        raise typer.Exit


@app.callback(help=_SUMMARY)
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    server: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Ask this server (fencepost serve). Default: $FENCEPOST_SERVER.", show_default=False
        ),
    ] = "",
    token_file: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Read the API token for it from FILE, instead of from the variable FENCEPOST_TOKEN.",
            show_default=False,
        ),
    ] = "",
    insecure_http: Annotated[
        bool,
        typer.Option("--insecure-http", help="Allow http:// to other machines: the API token can be read on the way."),
    ] = False,
) -> None:
    """Declare the options before the command. `server_words` has read those of the server."""


@app.command(name="exec", add_help_option=False, rich_help_panel=LOCKS)
def _exec() -> None:
    """Run a program while holding a lock; stop it before another holder can get the lock."""
    raise AssertionError("fencepost.cli.exec parses exec")
