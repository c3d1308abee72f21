"""``fencepost dead``: items of bulk jobs that could not be processed, looked at, replayed and dropped.

Letters are in the databases that jobs write to, and only the code knows which these are: so the application is loaded.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fencepost.cli.acts import Again
from fencepost.cli.applications import AppSpec, Reached, reached
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import By, JobName, Json, LedgerUrlOption, NeededReason, needed_reason, who
from fencepost.cli.output import at, counted, draw_fields, draw_rows, print_json, print_json_list, to_the_second
from fencepost.cli.run_rows import beginning
from fencepost.core.nearest import suggestion
from fencepost.core.noted import Noted
from fencepost.errors import ConfigurationError, NoSuchLetter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fencepost.bulk.letters import StoredLetter

app = typer.Typer(
    help="Items of bulk jobs that failed: look at them, replay or drop them.",
    epilog="Letters are kept in the databases that jobs write to, and only the code knows which these are: name it "
    "with --app, $FENCEPOST_APP or app in fencepost.toml. Exit code 1: there is no such letter; 2: bad input, or a "
    "database cannot be reached.",
    no_args_is_help=True,
)

_PAGE = 200
_FOR_PEOPLE = 50
_STATES = ("new", "replayed", "dropped")
_Ids = Annotated[list[int] | None, typer.Argument(metavar="ID", help="The numbers of the letters.", show_default=False)]
_All = Annotated[bool, typer.Option("--all", help="All that are new.")]
_Step = Annotated[str, typer.Option(metavar="STEP", help="Only letters of this step.", show_default=False)]


class Shelf(NamedTuple):
    """A database, and the jobs whose letters are in it: under their names, and those of their parts."""

    target: Any
    jobs: tuple[str, ...]

    def __str__(self) -> str:
        url: Any = getattr(self.target, "url", None)
        return str(url.render_as_string(hide_password=True)) if hasattr(url, "render_as_string") else "a database"


class Found(NamedTuple):
    """A letter, and where it is."""

    letter: StoredLetter
    shelf: Shelf


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

    Example: fencepost dead list settle --state new
    """
    _check_state(state)
    with reached(spec, ledger) as here:
        found = _listed(here, job, state or None, step, before=before)
        if as_json:
            print_json_list(_fields(each) for each in _first(found, limit))
            return Exit.OK
        rows = list(_first(found, limit or _FOR_PEOPLE))
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

    Letters are numbered in each database by itself; if jobs write to several, --job says which one is meant.

    Example: fencepost dead show 17
    """
    with reached(spec, ledger) as here:
        [found] = _by_id(here, job or None, [letter], step=step)
    if as_json:
        print_json(_fields(found))
        return Exit.OK
    one = found.letter
    draw_fields(
        {
            "letter": f"{one.id} in {found.shelf}",
            "job": _job_of(one),
            "step": one.step,
            "instance": one.instance,
            "run": str(one.run_id or ""),
            "state": one.state,
            "item": one.item_key,
            "put aside": to_the_second(one.created_at),
            "tries": str(one.attempt),
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
    """Have letters processed again, in a run of its own: written and marked in one transaction each.

    A letter that fails again stays new, with its new error. Two replays of a letter write it once.
    Exit code 4: the same is being replayed already.

    Example: fencepost dead replay settle 17 18 --reason 'the account is there now'

    Example: fencepost dead replay settle --all --reason 'release 1.4 can read them'
    """
    why = needed_reason(reason)
    with reached(spec, ledger) as here:
        bulk = here.bulk(job)
        wanted = _chosen(ids, every=every)
        if wanted:
            _refuse_unfit(_by_id(here, job, wanted, step=step))
            params: dict[str, Any] = {"letters": wanted, "step": step}
        else:
            newest = _newest(here, job, step)
            params = {"letters": [], "upto": newest, "step": step}
            if not newest:
                print_json({"run": None, "job": bulk.replay_name}) if as_json else print("there is nothing to replay")
                return Exit.OK
        made = here.operations.trigger(bulk.replay_name, params, by=who(by), reason=why, again=again)
    if as_json:
        print_json({"run": made.run_id, "job": bulk.replay_name})
    else:
        what = counted(len(wanted), "letter") if wanted else "all letters that are new"
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
    """Mark letters as dropped: nobody wants them any more. They stay on record.

    Example: fencepost dead drop settle 17 --reason 'a test order'
    """
    why = needed_reason(reason)
    with reached(spec, ledger) as here:
        here.bulk(job)
        wanted = _chosen(ids, every=every)
        if wanted:
            known = _by_id(here, job, wanted, step=step)
            _refuse_settled(known)
        chosen = iter(known) if wanted else _listed(here, job, "new", step)
        dropped = sum(_dropped(here, job, page, by=who(by), reason=why) for page in _pages_of(chosen))
    if as_json:
        print_json({"job": job, "dropped": dropped})
    else:
        late = len(wanted) - dropped if wanted else 0
        print(f"{counted(dropped, 'letter')} dropped" + (f"; {late} had been settled meanwhile" if late else ""))
    return Exit.OK


# -- which letters -----------------------------------------------------------------------------------------------------


def _chosen(ids: Sequence[int] | None, *, every: bool) -> list[int]:
    """Return the ids that were given; none stands for all, which has to be said."""
    if every and ids:
        raise ConfigurationError("give the numbers of letters, or --all; not both")
    if not every and not ids:
        raise ConfigurationError("which letters? Give their numbers, or --all for all that are new")
    return sorted(set(ids or ()))


def _check_state(state: str) -> None:
    if state and state not in _STATES:
        raise ConfigurationError(f"there is no state {state!r}; {suggestion(state, _STATES)}")


def _shelves(here: Reached, job: str | None, step: str) -> list[Shelf]:
    """Return the databases that the jobs write to, each once."""
    from fencepost.bulk.places import database_of, targets_of  # noqa: PLC0415 - it loads the engine

    bulks = list(here.app.bulks.values()) if job is None else [here.bulk(job)]
    found: dict[Any, Shelf] = {}
    for each in bulks:
        outline = each.declared.outline()
        if step and job is None and step not in [one.name for one in outline.steps]:
            continue
        for target in targets_of(outline, here.ledger, step=step):
            shelf = found.setdefault(database_of(target), Shelf(target, ()))
            found[database_of(target)] = shelf._replace(jobs=(*shelf.jobs, *each.names))
    return list(found.values())


def _ledger(here: Reached) -> str:
    """Return what letters of this ledger are told by: those of another one that shares the database are not shown."""
    from fencepost.ledger.identity import identity  # noqa: PLC0415 - as above
    from fencepost.ledger.naming import short  # noqa: PLC0415

    return short(identity(here.ledger))


def _listed(
    here: Reached, job: str | None, state: str | None, step: str, *, before: int | None = None
) -> Iterator[Found]:
    """Yield letters, newest first in each database, page by page."""
    from fencepost.bulk.letters import LetterFilter, letters  # noqa: PLC0415 - as above
    from fencepost.bulk.visits import visiting, visitor  # noqa: PLC0415

    writer, ledger = visitor(here.ledger), _ledger(here)
    for shelf in _shelves(here, job, step):
        last, wanted = before, LetterFilter(shelf.jobs, state)
        while True:
            with visiting(shelf.target) as tx:
                page = letters(tx, writer, wanted, before_id=last, limit=_PAGE)
            yield from (Found(each, shelf) for each in page if step in ("", each.step) and each.is_of(ledger))
            if len(page) < _PAGE:
                break
            last = page[-1].id


def _newest(here: Reached, job: str, step: str) -> int:
    """Return the highest number that a new letter of any of the databases has; 0 if there is none."""
    from fencepost.bulk.letters import NEW, LetterFilter, letters  # noqa: PLC0415 - as above
    from fencepost.bulk.visits import visiting, visitor  # noqa: PLC0415

    writer, found = visitor(here.ledger), [0]
    for shelf in _shelves(here, job, step):
        with visiting(shelf.target) as tx:
            found += [each.id for each in letters(tx, writer, LetterFilter(shelf.jobs, NEW), limit=1)]
    return max(found)


def _by_id(here: Reached, job: str | None, ids: Sequence[int], *, step: str) -> list[Found]:
    """Return these letters; refuse if one is not there, or if a number means two."""
    from fencepost.bulk.letters import letters_by_id  # noqa: PLC0415 - as above
    from fencepost.bulk.visits import visiting, visitor  # noqa: PLC0415

    writer, ledger, found = visitor(here.ledger), _ledger(here), list[Found]()
    for shelf in _shelves(here, job, step):
        with visiting(shelf.target) as tx:
            some = letters_by_id(tx, writer, shelf.jobs, ids)
        found += [Found(each, shelf) for each in some if step in ("", each.step) and each.is_of(ledger)]
    known = [each.letter.id for each in found]
    missing = [number for number in ids if number not in known]
    if missing:
        whose = f"job {job!r}" if job else "the bulk jobs of this application"
        raise NoSuchLetter(f"there is no dead letter {', '.join(map(str, missing))} of {whose}; nothing was done")
    twice = sorted({number for number in known if known.count(number) > 1})
    if twice:
        raise ConfigurationError(
            f"number {twice[0]} means a letter in each of several databases; say which job's by "
            f"{'--step' if job else '--job, and if need be --step'}"
        )
    return found


def _first(found: Iterator[Found], limit: int | None) -> Iterator[Found]:
    for number, each in enumerate(found):
        if limit is not None and number >= limit:
            return
        yield each


def _refuse_settled(found: Sequence[Found]) -> None:
    settled = [each.letter for each in found if each.letter.state != "new"]
    if settled:
        told = ", ".join(f"{each.id} was {each.state}" for each in settled[:5])
        raise ConfigurationError(f"only letters that are new can be replayed or dropped: {told}; nothing was done")


def _refuse_unfit(found: Sequence[Found]) -> None:
    _refuse_settled(found)
    for each in found:
        if not each.letter.can_be_replayed:
            each.letter.item()  # raises, and says why


# -- what is done to them ----------------------------------------------------------------------------------------------


def _pages_of(found: Iterator[Found]) -> Iterator[list[Found]]:
    """Put together what is in one database, so many at a time."""
    page: list[Found] = []
    for each in found:
        if page and (len(page) == _PAGE or page[0].shelf is not each.shelf):
            yield page
            page = []
        page.append(each)
    if page:
        yield page


def _dropped(here: Reached, job: str, page: Sequence[Found], *, by: str, reason: str) -> int:
    """Drop letters of one database; the journal has it first, for it may be in another one, and nothing is silent."""
    from fencepost.bulk.letters import DROPPED, settle  # noqa: PLC0415 - as above
    from fencepost.bulk.visits import visiting, visitor  # noqa: PLC0415
    from fencepost.ledger.journal import journal  # noqa: PLC0415

    ids = [each.letter.id for each in page]
    journal(here.ledger, what=Noted.LETTERS_DROPPED, job=job, by=by, reason=reason, detail={"letters": ids})
    writer = visitor(here.ledger)
    with visiting(page[0].shelf.target) as tx:
        return sum(settle(tx, writer, number, DROPPED) for number in ids)


# -- how they are shown ------------------------------------------------------------------------------------------------


def _job_of(letter: StoredLetter) -> str:
    """Return the job; a letter of a partition has the name of the job's parts."""
    return letter.job.removesuffix("/part")


def _cells(found: Found) -> tuple[str, ...]:
    one = found.letter
    why = beginning(f"{one.error_code}: {one.error}")
    tries, at_ = str(one.attempt), to_the_second(one.created_at)
    return (str(one.id), _job_of(one), one.step, one.state, str(one.run_id or ""), one.item_key, tries, at_, why)


def _fields(found: Found) -> dict[str, object]:
    one = found.letter
    return {
        "id": one.id,
        "job": _job_of(one),
        "step": one.step,
        "instance": one.instance,
        "run": one.run_id,
        "state": one.state,
        "key": one.item_key,
        "item": json.loads(one.shown) if one.can_be_replayed else None,
        "shown": one.shown,
        "error_code": one.error_code,
        "error": one.error,
        "attempt": one.attempt,
        "created_at": at(one.created_at),
        "can_be_replayed": one.can_be_replayed,
        "database": str(found.shelf),
    }
