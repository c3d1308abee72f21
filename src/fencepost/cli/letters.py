"""``fencepost letters``: list, show, replay and drop items of bulk jobs that could not be processed.

Letters are in the databases that jobs write to. Only the code knows which these are, so the application is loaded.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.acts import Again
from fencepost.cli.applications import AppSpec, reached
from fencepost.cli.documents import document
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import By, JobName, Json, LedgerUrlOption, NeededReason, needed_reason, who
from fencepost.cli.output import answer, counted, draw_fields, draw_rows, print_json, print_json_list, to_the_second
from fencepost.cli.run_rows import beginning
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fencepost.app.records import LetterRecord

app = typer.Typer(
    help="Items of bulk jobs that failed: list, show, replay or drop them.",
    epilog="Letters are in the databases that jobs write to, and only the code knows which these are: name it "
    "with --app, $FENCEPOST_APP or app in fencepost.toml. Exit code 1: there is no such letter; 2: bad input, or a "
    "database cannot be reached.",
    no_args_is_help=True,
)

_FOR_PEOPLE = 50  # as the help of --limit says; --json is for programs, and has all of them
_Ids = Annotated[list[int] | None, typer.Argument(metavar="ID", help="The numbers of the letters.", show_default=False)]
_All = Annotated[bool, typer.Option("--all", help="All that are new.")]
_Step = Annotated[str, typer.Option(metavar="STEP", help="Only letters of this step.", show_default=False)]


@app.command("list")
def list_(
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Only those of this job.")] = None,
    *,
    state: Annotated[
        str, typer.Option(metavar="STATE", help="Only those that are new, replayed or dropped.", show_default=False)
    ] = "",
    step: _Step = "",
    limit: Annotated[
        int | None, typer.Option(min=1, help="How many. Default: 50; with --json all of them.", show_default=False)
    ] = None,
    before: Annotated[
        int | None, typer.Option(metavar="ID", help="Only letters older than this one.", show_default=False)
    ] = None,
    spec: AppSpec = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show dead letters, newest first: which item, why it failed, after how many tries.

    Example: fencepost letters list settle --state new
    """
    with reached(spec, ledger) as here:
        found = here.operations.letters.iterate(job, state=state or None, step=step, before_id=before)
        if as_json:
            print_json_list(document(each) for each in islice(found, limit))
            return Exit.OK
        rows = list(islice(found, limit or _FOR_PEOPLE))
    if rows:
        columns = ("id", "job", "step", "state", "run", "item", "tries", "at", "why")
        draw_rows(columns, map(_cells, rows), spare=("at", "tries", "step"))
    else:
        print("there are no such letters")
    return Exit.OK


@app.command()
def show(
    letter: Annotated[int, typer.Argument(metavar="ID", min=1, help="The number of the letter.")],
    *,
    job: Annotated[str, typer.Option(metavar="JOB", help="The job it is of.", show_default=False)] = "",
    step: _Step = "",
    spec: AppSpec = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show one dead letter, with its item.

    Each database numbers its letters separately; if jobs write to several databases, --job selects one.

    Example: fencepost letters show 17
    """
    with reached(spec, ledger) as here:
        one = here.operations.letters.show(letter, job=job or None, step=step)
    if as_json:
        print_json(document(one))
        return Exit.OK
    draw_fields(
        {
            "letter": f"{one.id} in {one.database}",
            "job": one.job,
            "step": one.step,
            "instance": one.instance,
            "run": str(one.run_id or ""),
            "state": one.state,
            "item": one.item_key,
            "put aside": to_the_second(one.created_at),
            "tries": str(one.tries),
            "error": f"{one.error_code}: {one.error}",
            "content": one.shown,
            "replay": "" if one.can_be_replayed else "impossible: only a description of the item was kept",
        }
    )
    return Exit.OK


@app.command()
def replay(
    job: JobName,
    ids: _Ids = None,
    *,
    every: _All = False,
    step: _Step = "",
    reason: NeededReason = "",
    by: By = "",
    again: Again = False,
    spec: AppSpec = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Process letters again in a separate run: each is written and marked in one transaction.

    A letter that fails again stays new, with its new error. Two replays of a letter write it once.
    Exit code 4: the same is being replayed already.

    Example: fencepost letters replay settle 17 18 --reason 'the account is there now'

    Example: fencepost letters replay settle --all --reason 'release 1.4 can read them'
    """
    why = needed_reason(reason)
    with reached(spec, ledger) as here:
        bulk, wanted = here.bulk(job), _given(ids, every=every)
        made = here.operations.letters.replay(
            job, wanted, all_new=every, step=step, by=who(by), reason=why, again=again
        )
    if as_json:
        print_json({"run": None if made is None else made.run_id, "job": bulk.replay_name})
    elif made is None:
        print("there is nothing to replay")
    else:
        what = counted(len(set(wanted)), "letter") if wanted else "all letters that are new"
        print(f"run {made.run_id} replays {what}; see: fencepost show {made.run_id} --follow")
    return Exit.OK


@app.command()
def drop(
    job: JobName,
    ids: _Ids = None,
    *,
    every: _All = False,
    step: _Step = "",
    reason: NeededReason = "",
    by: By = "",
    spec: AppSpec = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Mark letters as dropped: they are no longer needed. They stay on record.

    Example: fencepost letters drop settle 17 --reason 'a test order'
    """
    why = needed_reason(reason)
    with reached(spec, ledger) as here:
        here.bulk(job)
        wanted = _given(ids, every=every)
        dropped = here.operations.letters.drop(job, wanted, all_new=every, step=step, by=who(by), reason=why)
    late = len(set(wanted)) - dropped if wanted else 0
    sentence = f"{counted(dropped, 'letter')} dropped" + (f"; {late} had been settled meanwhile" if late else "")
    return answer({"job": job, "dropped": dropped}, sentence, as_json=as_json)


def _given(ids: Sequence[int] | None, *, every: bool) -> Sequence[int]:
    """Return the given ids; an empty list stands for all, which needs --all."""
    if every and ids:
        raise ConfigurationError("give the numbers of letters, or --all; not both")
    if not every and not ids:
        raise ConfigurationError("which letters? Give their numbers, or --all for all that are new")
    return ids or ()


def _cells(one: LetterRecord) -> tuple[str, ...]:
    why = beginning(f"{one.error_code}: {one.error}")
    tries, at_ = str(one.tries), to_the_second(one.created_at)
    return (str(one.id), one.job, one.step, one.state, str(one.run_id or ""), one.item_key, tries, at_, why)
