"""``fencepost schedules``: when jobs are due, also near clock changes; making, pausing and deleting schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.acts import Params, typed_params
from fencepost.cli.documents import document
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import By, Json, LedgerUrlOption, PauseFor, PauseUntil, Reason, front, who
from fencepost.cli.output import answer, draw_fields, draw_rows, print_json, to_the_second
from fencepost.core.duration import typed_duration
from fencepost.core.identity import canonical_json
from fencepost.errors import InvalidSchedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fencepost.app.records import OutlookRecord, ScheduleRecord
    from fencepost.core.schedule import Schedule

app = typer.Typer(
    help="See when jobs are due; make, pause, resume and delete schedules.",
    epilog="Exit code 1: there is no such schedule; 2: bad input, or the ledger cannot be reached.",
    no_args_is_help=True,
)

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
    with front(ledger) as ops:
        if job:
            ops.job(job)
        found = list(ops.schedules.iterate(job=job or None))
    if as_json:
        print_json([document(each) for each in found])
    elif found:
        columns = ("schedule", "job", "when", "next due", "held back")
        draw_rows(columns, ((e.id, e.job, e.when, to_the_second(e.next_due_at), _held_back(e)) for e in found))
    else:
        print("there are no schedules yet; a node brings those of its application when it starts")
    return Exit.OK


@app.command()
def show(schedule: _Id, *, ledger: LedgerUrlOption = "", as_json: Json = False) -> int:
    """Show one schedule.

    Example: fencepost schedules show settle --json
    """
    with front(ledger) as ops:
        found = ops.schedules.get(schedule)
    return _print(found, as_json=as_json)


@app.command()
def put(
    schedule: _Id,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job that it is for.")],
    when: Annotated[str, typer.Argument(metavar="WHEN", help="A cron expression, or 'every 5m'.")],
    *,
    params: Params = None,
    tz: Annotated[str, typer.Option(metavar="ZONE", help="The time zone of WHEN.")] = "UTC",
    dst: Annotated[
        str, typer.Option(metavar="WORD", help="When the clocks are changed: auto, first, second, both, skip or real.")
    ] = "auto",
    new: Annotated[bool, typer.Option("--new", help="Only make it: refuse to change one of this id.")] = False,
    by: By = "",
    reason: Reason = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Make a schedule at run time, or change one that was made so; it is planned from now on.

    A schedule that is declared in the code is changed there. Use 'schedules preview' to see its due times before.

    Example: fencepost schedules put report:42 report '0 7 * * 1-5' --tz Asia/Seoul -p customer=42
    """
    from fencepost.core.schedules.written import written  # noqa: PLC0415 - time zones take their time to load

    due, typed = written(when, tz=tz, dst=dst), typed_params(params or [])
    if due is None:
        raise InvalidSchedule(f"{when!r} is neither a cron expression nor an interval such as 'every 5m'")
    with front(ledger) as ops:
        ops.job(job)
        read = ops.read_params(job, typed)
        found = ops.schedules.put(schedule, job, due, params=read, by=who(by), reason=reason or None, is_new=new)
    return _print(found, as_json=as_json)


@app.command()
def pause(
    schedule: _Id,
    *,
    until: PauseUntil = "",
    for_: PauseFor = "",
    by: By = "",
    reason: Reason = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Plan nothing more until it is resumed, or until the end; due times that pass meanwhile are recorded as skipped.

    Example: fencepost schedules pause settle --for 2h --reason 'the bank is closed'
    """
    lasts = typed_duration(for_, what="--for")
    with front(ledger) as ops:
        found = ops.schedules.pause(
            schedule,
            by=who(by),
            reason=reason or None,
            until=until or None,
            duration=lasts,
        )
    return _print(found, as_json=as_json)


@app.command()
def resume(
    schedule: _Id, *, by: By = "", reason: Reason = "", ledger: LedgerUrlOption = "", as_json: Json = False
) -> int:
    """Plan it again, from now on.

    Example: fencepost schedules resume settle
    """
    with front(ledger) as ops:
        found = ops.schedules.resume(schedule, by=who(by), reason=reason or None)
    return _print(found, as_json=as_json)


@app.command()
def delete(
    schedule: _Id, *, by: By = "", reason: Reason = "", ledger: LedgerUrlOption = "", as_json: Json = False
) -> int:
    """Delete a schedule that was made at run time, or one of a job that no living node has any more.

    Refused for a schedule in the code of a living node: it would come back.

    Example: fencepost schedules delete report:42 --reason 'the customer has left'
    """
    with front(ledger) as ops:
        found = ops.schedules.get(schedule)
        ops.schedules.delete(schedule, by=who(by), reason=reason or None, even_of_code=True)
    return answer(
        {"id": found.id, "job": found.job, "deleted": True},
        f"schedule {found.id} of job {found.job} is deleted; what became of its due times: fencepost why {found.id}",
        as_json=as_json,
    )


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
        int | None,
        typer.Option(help="Show the clock changes of this year; by default the next two.", show_default=False),
    ] = None,
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show the next due times, and what becomes of them when the clocks of the zone are changed.

    Example: fencepost schedules preview '30 2 * * *' --tz Europe/Berlin --year 2026

    Example: fencepost schedules preview settle
    """
    from fencepost.cli.previews import draw_outlook  # noqa: PLC0415 - time zones take their time to load
    from fencepost.core.schedules.written import written  # noqa: PLC0415

    typed = written(what, tz=tz, dst=dst)
    outlooks = _outlooks(what, ledger, count, year) if typed is None else [_outlook(typed, count, year)]
    if as_json:
        print_json([document(each) for each in outlooks])
    else:
        for each in outlooks:
            draw_outlook(each)
    return Exit.OK


def _outlook(typed: Schedule, count: int, year: int | None) -> OutlookRecord:
    """Preview an expression. This needs no ledger."""
    from fencepost.app.records import OutlookRecord  # noqa: PLC0415 - as above
    from fencepost.threaded import ThreadedRuntime  # noqa: PLC0415

    return OutlookRecord.of(typed, now_us=ThreadedRuntime().wall_us(), count=count, year=year)


def _outlooks(what: str, ledger: str, count: int, year: int | None) -> Sequence[OutlookRecord]:
    with front(ledger) as ops:
        return ops.schedules.preview(what, count=count, year=year)


def _print(found: ScheduleRecord, *, as_json: bool) -> int:
    if as_json:
        print_json(document(found))
        return Exit.OK
    draw_fields(
        {
            "schedule": found.id,
            "job": found.job,
            "when": found.when,
            "parameters": canonical_json(found.params) if found.params else "",
            "stands in": "the code" if found.is_in_code else "the ledger alone: it was made at run time",
            "next due": to_the_second(found.next_due_at) or _never(found),
            "planned through": to_the_second(found.planned_through_at),
            "paused": _pause(found),
            "not planned": _no_node(found),
            "created": to_the_second(found.created_at),
            "updated": to_the_second(found.updated_at),
        }
    )
    return Exit.OK


def _is_of_named_times(found: ScheduleRecord) -> bool:
    from fencepost.core.schedules.at import At  # noqa: PLC0415
    from fencepost.errors import InvalidSchedule  # noqa: PLC0415

    try:
        return isinstance(found.schedule, At)
    except InvalidSchedule:  # a newer release may have more kinds
        return False


def _never(found: ScheduleRecord) -> str:
    if found.paused_at is not None:
        return "not while it is paused"
    if _is_of_named_times(found):
        return f"never again: all its times have passed; see: fencepost runs --job {found.job}"
    return "never, as it stands"


def _held_back(found: ScheduleRecord) -> str:
    pause = _pause(found)
    return f"paused {pause}" if pause else _no_node(found)


def _no_node(found: ScheduleRecord) -> str:
    if found.unserved_at is None:
        return ""
    return f"no living node has its job since {to_the_second(found.unserved_at)}"


def _pause(found: ScheduleRecord) -> str:
    if found.paused_at is None:
        return ""
    by = f" by {found.paused_by}" if found.paused_by else ""
    until = f", until {to_the_second(found.paused_until)}" if found.paused_until is not None else ""
    reason = f": {found.pause_reason}" if found.pause_reason else ""
    return f"since {to_the_second(found.paused_at)}{by}{until}{reason}"
