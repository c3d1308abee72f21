"""``fencepost effects``: the tables in a database that receives effects, installed, verified and pruned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.databases import effects_at
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import Json, opened
from fencepost.cli.output import counted, print_json, say
from fencepost.core.duration import typed_seconds
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.effects.old_checkpoints import Removed
    from fencepost.effects.pruning import FenceFloor
    from fencepost.effects.verifying import EffectsReport
    from fencepost.ledger.database import Database

app = typer.Typer(
    help="The tables in a database that receives effects: fences, idempotency keys, checkpoints.",
    epilog="URL is written as that of a ledger: postgresql://user@host/database, mysql://…, mariadb://…, "
    "sqlite:///file.db, with ?prefix= and ?schema= of the tables. The ledger's own database has these tables already. "
    "fencepost effects install --help and the like have examples.",
    no_args_is_help=True,
)

_Url = Annotated[str, typer.Argument(metavar="URL", help="The database that receives the effects.")]


@app.command()
def install(
    url: _Url,
    sql: Annotated[bool, typer.Option("--sql", help="Print the statements and change nothing.")] = False,
    contract: Annotated[
        bool, typer.Option("--contract", help="Also remove what no version in use needs; needs --ledger.")
    ] = False,
    ledger: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Of --contract: a ledger whose runs write here; give each of them.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Make the tables, or bring them to this version. A second call does nothing, and two concurrent ones are safe.

    Only this command makes them: jobs only write to them. Nodes of the previous version keep working meanwhile.

    --contract: refused while a living node of any of the given ledgers needs what is removed.

    Example: fencepost effects install postgresql://db/shop

    Example: fencepost effects install --sql 'postgresql://db/shop?schema=jobs' > effects.sql

    Example: fencepost effects install postgresql://db/shop --contract --ledger postgresql://db/jobs
    """
    from fencepost.effects import installing  # noqa: PLC0415 - SQLAlchemy takes its time to load
    from fencepost.ledger.migrations import effects_revision  # noqa: PLC0415

    _check_contract(ledger or [], contract=contract)
    if sql:
        script = installing.install_sql(url).rstrip()
        print_json({"sql": script}) if as_json else print(script)
        return Exit.OK
    with effects_at(url) as database, ExitStack() as books:
        ledgers = [books.enter_context(opened(each)) for each in ledger or ()]
        steps = installing.install(database, contract_for=ledgers)
        revision = effects_revision(database)
    if as_json:
        print_json({"database": str(database.url), "revision": revision, "steps": list(steps)})
    elif steps:
        say(f"made the tables of effects in {database.url}: revision {revision}")
    else:
        say(f"the tables of effects in {database.url} are at revision {revision} already; nothing was done")
    return Exit.OK


@app.command()
def verify(url: _Url, as_json: Json = False) -> int:
    """Check whether effects can land there: which tables and columns are missing, and which rights.

    This changes nothing. Exit code 0: they can; 1: they cannot.

    Example: fencepost effects verify postgresql://db/shop
    """
    from fencepost.effects.verifying import verify as look  # noqa: PLC0415 - as above

    with effects_at(url) as database:
        report = look(database)
    if as_json:
        print_json({"ready": report.is_ready, **asdict(report)})
    else:
        _print_report(report)
    return Exit.OK if report.is_ready else Exit.UNKNOWN


@app.command()
def prune(  # noqa: PLR0917 - typer passes them by name
    url: _Url,
    keys: Annotated[bool, typer.Option("--keys", help="Remove expired idempotency keys: the default.")] = False,
    fences: Annotated[
        bool, typer.Option("--fences", help="Remove fences that no live token needs; needs --ledger.")
    ] = False,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Remove checkpoints of bulk work that is complete; needs --ledger.")
    ] = False,
    letters: Annotated[
        bool, typer.Option("--letters", help="Remove dead letters that were replayed or dropped.")
    ] = False,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Fences whose tokens are older than this, work completed and letters put aside longer ago.",
        ),
    ] = "30d",
    ledger: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Of --fences and --checkpoints: the ledger that knows which tokens and runs are live.",
            show_default=False,
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be removed.")] = False,
    as_json: Json = False,
) -> int:
    """Remove rows that are no longer needed: expired keys, and what other options select.

    --fences: a removed fence still refuses stale tokens: the floor, which is raised with it, replaces it.
    The floor stays below the oldest token of a running run, a held key or a held lock in the ledger.
    If other ledgers or lock stores fence the same database, then
    --older-than must be longer than anything is held there.

    --checkpoints: those of unfinished instances stay, and those of instances with a run that has not ended.
    A repetition of a window, or of a request, whose checkpoints are gone is no longer refused:
    it runs again.
    If steps of a job write to several databases, prune that of its first step last, and all of them with an
    --older-than that is shorter than the ledger keeps runs that succeeded.

    --letters: new ones stay, however old. The age counts from when a letter was written,
    not from when it was replayed or dropped, which is not recorded.

    Example: fencepost effects prune postgresql://db/shop

    Example: fencepost effects prune postgresql://db/shop --fences --ledger postgresql://db/jobs --dry-run

    Example: fencepost effects prune postgresql://db/shop --checkpoints --letters --ledger postgresql://db/jobs
    """
    _check_ledger(ledger, fences=fences, checkpoints=checkpoints)
    age_s = typed_seconds(older_than, what="--older-than")
    is_default = not (fences or checkpoints or letters)
    done = Pruned(dry_run)
    with effects_at(url) as database:
        if keys or is_default:
            done.keys = _prune_keys(database, dry_run=dry_run)
        if fences:
            done.floor, done.fences = _prune_fences(database, ledger, age_s, dry_run=dry_run)
        if checkpoints:
            done.checkpoints = _prune_checkpoints(database, ledger, age_s, dry_run=dry_run)
        if letters:
            done.letters = _prune_letters(database, age_s, dry_run=dry_run)
    if as_json:
        print_json({"database": str(database.url), **done.fields()})
        return Exit.OK
    for line in done.lines():
        say(line)
    if is_default:
        say("fences were left as they are: give --fences and --ledger URL, which knows what tokens are live")
        say("so were checkpoints and dead letters of bulk jobs: see --checkpoints and --letters")
    return Exit.OK


@dataclass(slots=True)
class Pruned:
    """What was removed, or would be; None for what was not selected."""

    dry_run: bool
    keys: int | None = None
    fences: int | None = None
    floor: FenceFloor | None = None
    checkpoints: Removed | None = None
    letters: int | None = None

    def fields(self) -> dict[str, object]:
        """Tell programs."""
        went = self.checkpoints
        return {
            "dry_run": self.dry_run,
            "keys": self.keys,
            "fences": self.fences,
            "floor": self.floor.token if self.floor else None,
            "checkpoints": None if went is None else went.checkpoints,
            "checkpoints_kept": None if went is None else went.kept,
            "letters": self.letters,
        }

    def lines(self) -> Iterator[str]:
        """Tell people."""
        would = "would remove" if self.dry_run else "removed"
        if self.keys is not None:
            yield f"{would} {counted(self.keys, 'expired key')}"
        if self.floor is not None and self.fences is not None:
            yield f"{would} {counted(self.fences, 'fence')} below {self.floor.token} ({self.floor.why})"
        if self.checkpoints is not None:
            went, works, kept = self.checkpoints
            yield f"{would} {counted(went, 'checkpoint')} of {counted(works, 'completed instance')}"
            if kept:
                yield f"{counted(kept, 'checkpoint')} as old stay: they are not known to be of work that is over"
        if self.letters is not None:
            yield f"{would} {counted(self.letters, 'settled dead letter')}"


def _check_contract(ledgers: list[str], *, contract: bool) -> None:
    if contract and not ledgers:
        raise ConfigurationError(
            "nothing is removed without --ledger URL: only the ledger knows which nodes live, and one of an older "
            "version would need it"
        )
    if ledgers and not contract:
        raise ConfigurationError("--ledger says which nodes live when something is removed; add --contract")


def _check_ledger(ledger: str, *, fences: bool, checkpoints: bool) -> None:
    if fences and not ledger:
        raise ConfigurationError(
            "fences are not pruned without --ledger URL: only the ledger knows which tokens are still live, and a "
            "floor above one of them would refuse its holder"
        )
    if checkpoints and not ledger:
        raise ConfigurationError(
            "checkpoints are not pruned without --ledger URL: only the ledger knows which runs have not ended, and "
            "one that stands for the same work would do it again"
        )
    if ledger and not fences and not checkpoints:
        raise ConfigurationError(
            "--ledger says what is live when fences or checkpoints are pruned; add --fences or --checkpoints"
        )


def _prune_keys(database: Database, *, dry_run: bool) -> int:
    from fencepost.effects.pruning import prune_keys  # noqa: PLC0415 - as above

    return prune_keys(database, dry_run=dry_run)


def _prune_fences(database: Database, ledger: str, age_s: float, *, dry_run: bool) -> tuple[FenceFloor, int]:
    from fencepost.effects.pruning import floor_for, prune_fences  # noqa: PLC0415 - as above

    with opened(ledger) as book:
        floor = floor_for(book, older_than_s=age_s)
    return floor, prune_fences(database, floor, dry_run=dry_run)


def _prune_checkpoints(database: Database, ledger: str, age_s: float, *, dry_run: bool) -> Removed:
    from fencepost.bulk.instance import instance_name  # noqa: PLC0415 - it loads the engine
    from fencepost.effects.old_checkpoints import BulkRuns, prune_checkpoints  # noqa: PLC0415

    with opened(ledger) as book:
        return prune_checkpoints(database, BulkRuns(book, instance_name), older_than_s=age_s, dry_run=dry_run)


def _prune_letters(database: Database, age_s: float, *, dry_run: bool) -> int:
    from fencepost.effects.old_letters import prune_letters  # noqa: PLC0415 - as above

    return prune_letters(database, older_than_s=age_s, dry_run=dry_run)


def _print_report(report: EffectsReport) -> None:
    found = "none" if report.found is None else report.found
    say(f"database  {report.database}")
    say(f"revision  {found} (wanted: {report.wanted})")
    say(f"missing   {', '.join(report.missing) or 'nothing'}")
    say(f"denied    {'; '.join(report.denied) or 'nothing'}")
    say("effects can land here" if report.is_ready else "effects cannot land here")
    for advice in report.advice:
        say(advice)
