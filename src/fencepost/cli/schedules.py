"""``fencepost schedules``: when jobs are due, now and when the clocks are changed; and holding one back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import By, Json, LedgerUrlOption, Reason, know_job, opened, who
from fencepost.cli.output import at, draw_fields, draw_rows, print_json, to_the_second

if TYPE_CHECKING:
    from fencepost.core.schedule import Schedule
    from fencepost.ledger.ledger import Ledger
    from fencepost.ledger.schedule_rows import StoredSchedule

app = typer.Typer(
    help="See when jobs are due; pause, resume and delete schedules.",
    epilog="Exit code 1: there is no such schedule; 2: bad input, or the ledger cannot be reached.",
    no_args_is_help=True,
)

_PAGE = 1000
_Id = Annotated[str, typer.Argument(metavar="SCHEDULE", help="The id of the schedule: often the name of its job.")]


@app.command("list")
def list_(
    *,
    job: Annotated[str, typer.Option(metavar="JOB", help="Only those of this job.", show_default=False)] = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show every schedule: when it is due next, and whether it is paused.

    Example: fencepost schedules list --job settle
    """
    with opened(ledger) as book:
        if job:
            know_job(book, job)
        found = _all(book, job or None)
    if as_json:
        print_json([_fields(each) for each in found])
    elif found:
        columns = ("schedule", "job", "when", "next due", "held back")
        draw_rows(columns, ((e.id, e.job, _when(e), to_the_second(e.next_due_at), _held_back(e)) for e in found))
    else:
        print("there are no schedules yet; a node brings those of its application when it starts")
    return Exit.OK


@app.command()
def show(schedule: _Id, *, ledger: LedgerUrlOption = "", as_json: Json = False) -> int:
    """Show one schedule.

    Example: fencepost schedules show settle --json
    """
    from fencepost.ledger import schedules  # noqa: PLC0415 - SQLAlchemy takes its time to load

    with opened(ledger) as book:
        found = schedules.schedule(book, schedule)
    _print(found, as_json=as_json)
    return Exit.OK


@app.command()
def pause(
    schedule: _Id, *, by: By = "", reason: Reason = "", ledger: LedgerUrlOption = "", as_json: Json = False
) -> int:
    """Plan nothing more until it is resumed; the due times that pass meanwhile are recorded as skipped.

    Example: fencepost schedules pause settle --reason 'the bank is closed'
    """
    from fencepost.ledger import schedules  # noqa: PLC0415 - SQLAlchemy takes its time to load

    with opened(ledger) as book:
        found = schedules.pause(book, schedule, by=who(by), reason=reason or None)
    _print(found, as_json=as_json)
    return Exit.OK


@app.command()
def resume(
    schedule: _Id, *, by: By = "", reason: Reason = "", ledger: LedgerUrlOption = "", as_json: Json = False
) -> int:
    """Plan it again, from now on.

    Example: fencepost schedules resume settle
    """
    from fencepost.ledger import schedules  # noqa: PLC0415 - SQLAlchemy takes its time to load

    with opened(ledger) as book:
        found = schedules.resume(book, schedule, by=who(by), reason=reason or None)
    _print(found, as_json=as_json)
    return Exit.OK


@app.command()
def delete(
    schedule: _Id, *, by: By = "", reason: Reason = "", ledger: LedgerUrlOption = "", as_json: Json = False
) -> int:
    """Delete a schedule: one that was made at run time, or one of a job that no living node has any more.

    What stands in the code of a living node is refused: it would come back.

    Example: fencepost schedules delete report:42 --reason 'the customer has left'
    """
    from fencepost.ledger import schedules  # noqa: PLC0415 - SQLAlchemy takes its time to load
    from fencepost.ledger.removing import delete_schedule  # noqa: PLC0415

    with opened(ledger) as book:
        found = schedules.schedule(book, schedule)
        delete_schedule(book, schedule, by=who(by), reason=reason or None)
    if as_json:
        print_json({"id": found.id, "job": found.job, "deleted": True})
    else:
        print(
            f"schedule {found.id} of job {found.job} is deleted; what became of its due times: fencepost why {found.id}"
        )
    return Exit.OK


@app.command()
def preview(
    what: Annotated[
        str, typer.Argument(metavar="SCHEDULE", help="A schedule, a job, a cron expression, or 'every 5m'.")
    ],
    *,
    tz: Annotated[str, typer.Option(metavar="ZONE", help="The time zone of an expression.")] = "UTC",
    dst: Annotated[
        str, typer.Option(metavar="WORD", help="Of an expression: auto, first, second, both, skip or real.")
    ] = "auto",
    count: Annotated[int, typer.Option(min=0, max=10_000, help="How many due times to show.")] = 5,
    year: Annotated[
        int | None, typer.Option(help="Whose changes of the clock to show; by default this year's.", show_default=False)
    ] = None,
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show the next due times, and what becomes of them when the clocks of the zone are changed.

    Example: fencepost schedules preview '30 2 * * *' --tz Europe/Berlin --year 2026

    Example: fencepost schedules preview settle
    """
    from fencepost.cli import previews  # noqa: PLC0415 - time zones take their time to load
    from fencepost.threaded import ThreadedRuntime  # noqa: PLC0415

    typed = previews.ad_hoc(what, tz=tz, dst=dst)
    named = _named(what, ledger) if typed is None else [(None, typed)]
    now_us = ThreadedRuntime().wall_us()
    outlooks = [
        previews.Outlook.of(schedule, now_us=now_us, count=count, year=year, name=name) for name, schedule in named
    ]
    if as_json:
        print_json([previews.outlook_fields(each) for each in outlooks])
    else:
        for each in outlooks:
            previews.draw_outlook(each)
    return Exit.OK


def _named(what: str, ledger: str) -> list[tuple[str | None, Schedule]]:
    """Return the schedules of this id, or of the job of this name."""
    from fencepost.core.schedule import schedule_from_json  # noqa: PLC0415
    from fencepost.errors import NoSuchSchedule  # noqa: PLC0415
    from fencepost.ledger import schedules  # noqa: PLC0415

    with opened(ledger) as book:
        of_job = _all(book, what)
        try:
            found = of_job or [schedules.schedule(book, what)]
        except NoSuchSchedule as error:
            raise NoSuchSchedule(what) from error
    return [(each.id, schedule_from_json(each.spec)) for each in found]


def _all(book: Ledger, job: str | None) -> list[StoredSchedule]:
    from fencepost.ledger import schedules  # noqa: PLC0415 - SQLAlchemy takes its time to load

    found: list[StoredSchedule] = []
    while page := schedules.schedules(book, job=job, after_id=found[-1].id if found else "", limit=_PAGE):
        found += page
    return found


def _print(found: StoredSchedule, *, as_json: bool) -> None:
    if as_json:
        print_json(_fields(found))
        return
    draw_fields(
        {
            "schedule": found.id,
            "job": found.job,
            "when": _when(found),
            "parameters": "" if found.params == "{}" else found.params,
            "stands in": "the code" if found.origin == "code" else "the ledger alone: it was made at run time",
            "next due": to_the_second(found.next_due_at) or _never(found),
            "planned through": to_the_second(found.planned_through),
            "paused": _pause(found),
            "not planned": _no_node(found),
            "created": to_the_second(found.created_at),
            "updated": to_the_second(found.updated_at),
        }
    )


def _fields(found: StoredSchedule) -> dict[str, object]:
    return {
        "id": found.id,
        "job": found.job,
        "when": _when(found),
        "spec": json.loads(found.spec),
        "params": json.loads(found.params),
        "origin": found.origin,
        "generation": found.generation,
        "next_due_at": at(found.next_due_at),
        "planned_through": at(found.planned_through),
        "paused_at": at(found.paused_at),
        "paused_by": found.paused_by,
        "pause_reason": found.pause_reason,
        "no_node_since": at(found.no_node_since),
        "created_at": at(found.created_at),
        "updated_at": at(found.updated_at),
    }


def _when(found: StoredSchedule) -> str:
    from fencepost.core.schedule import describe  # noqa: PLC0415

    known = _schedule(found)
    return found.spec if known is None else describe(known)


def _schedule(found: StoredSchedule) -> Schedule | None:
    from fencepost.core.schedule import schedule_from_json  # noqa: PLC0415
    from fencepost.errors import InvalidSchedule  # noqa: PLC0415

    try:
        return schedule_from_json(found.spec)
    except InvalidSchedule:  # a newer release may know more kinds
        return None


def _never(found: StoredSchedule) -> str:
    from fencepost.core.schedules.at import At  # noqa: PLC0415

    if found.paused_at is not None:
        return "not while it is paused"
    if isinstance(_schedule(found), At):
        return f"never again: all its times have passed; see: fencepost runs --job {found.job}"
    return "never, as it stands"


def _held_back(found: StoredSchedule) -> str:
    pause = _pause(found)
    return f"paused {pause}" if pause else _no_node(found)


def _no_node(found: StoredSchedule) -> str:
    if found.no_node_since is None:
        return ""
    return f"no living node has its job since {to_the_second(found.no_node_since)}"


def _pause(found: StoredSchedule) -> str:
    if found.paused_at is None:
        return ""
    by = f" by {found.paused_by}" if found.paused_by else ""
    return f"since {to_the_second(found.paused_at)}{by}" + (f": {found.pause_reason}" if found.pause_reason else "")
