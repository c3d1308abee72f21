"""``fencepost runs`` and ``fencepost show``: lists runs, and shows one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.acts import typed_params
from fencepost.cli.documents import document
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import Json, LedgerUrlOption, RunId, Tz, front, run_number, since_when
from fencepost.cli.messages import complain
from fencepost.cli.output import print_json, print_json_list, to_the_second
from fencepost.core.nearest import suggestion
from fencepost.core.states import RunState, WaitsFor
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fencepost.app.operations import Operations
    from fencepost.app.records import RunRecord, RunsFound

_PAGE = 1000  # runs of one query: bounds memory when --json writes all history
_FOR_PEOPLE = 50  # as the help of --limit says; --json is for programs, and has all of them


def runs(
    *,
    job: Annotated[str, typer.Option(metavar="JOB", help="Only runs of this job.", show_default=False)] = "",
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help=f"Only runs that are {', '.join(RunState)}. May be repeated."),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only runs that were given up: --state dead.")] = False,
    held: Annotated[bool, typer.Option("--held", help="Only runs that wait for a person: --waits person.")] = False,
    waits: Annotated[
        str, typer.Option(metavar="FOR", help=f"Only runs that wait for {', '.join(WaitsFor)}.", show_default=False)
    ] = "",
    schedule: Annotated[str, typer.Option(metavar="ID", help="Only runs of this schedule.", show_default=False)] = "",
    queue: Annotated[str, typer.Option(metavar="QUEUE", help="Only runs of this queue.", show_default=False)] = "",
    node: Annotated[
        str, typer.Option(metavar="ID", help="Only runs that this node had last, by its id.", show_default=False)
    ] = "",
    by: Annotated[str, typer.Option(metavar="WHO", help="Only runs that WHO asked for.", show_default=False)] = "",
    key: Annotated[str, typer.Option(metavar="KEY", help="Only runs of this exclusive key.", show_default=False)] = "",
    retry_of: Annotated[
        int | None, typer.Option(metavar="RUN", parser=run_number, help="Only repetitions of this run.")
    ] = None,
    ids: Annotated[
        list[int] | None,
        typer.Option("--id", metavar="RUN", parser=run_number, help="Only this run. May be repeated."),
    ] = None,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Only runs made since then: 24h, or 2026-03-29T00:00Z.")
    ] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="Only runs made before then.", show_default=False)] = "",
    tz: Tz = "",
    limit: Annotated[
        int | None, typer.Option(min=1, help="How many. Default: 50; with --json all of them.", show_default=False)
    ] = None,
    before: Annotated[int | None, typer.Option(metavar="ID", help="Only runs older than this one.")] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("-p", "--param", metavar="NAME=VALUE", help="Only runs with this parameter. May be repeated."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep running, and show changes as they happen.")
    ] = False,
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show runs, newest first.

    With --json: a list of objects, or with --follow one object per line, oldest first,
    and a run again whenever its state changes. Times are in UTC.

    A parameter that its job declares for search (search=) is looked for in all history. Where no index helps, a search
    looks through 100,000 runs or for 150 ms, then says how far it came and how to go on; with --json and without
    --limit, it goes on to the end.

    Example: fencepost runs --job settle --failed --since 24h

    Example: fencepost runs -p customer=7

    Example: fencepost runs --follow --json
    """
    from fencepost.cli.run_rows import draw_runs  # noqa: PLC0415

    params = typed_params(param or [])
    if follow:
        _refuse_to_follow({"--before": before, "--until": until, "--id": ids}, params)
    whose = {"schedule": schedule, "queue": queue, "node": node, "requested_by": by, "exclusive_key": key}
    whose |= _waiting(_states(state or [], failed=failed), "person" if held else waits.strip().lower())
    with front(ledger) as ops:
        if job:
            ops.job(job)  # otherwise a misspelt name would look like a job that never ran
        times = {"since": since_when(since, ops, tz=tz), "until": since_when(until, ops, what="--until", tz=tz)}
        asked = {"job": job, **whose, **times, "retry_of": retry_of, "ids": ids}
        wanted = {name: value for name, value in asked.items() if value}
        if follow:
            from fencepost.cli.following import Following  # noqa: PLC0415 - few follow

            Following(ops, wanted, as_json=as_json).run(limit or _FOR_PEOPLE)
            return Exit.OK
        search = _RunPages(ops, wanted | {"params": params}, goes_on=as_json and limit is None)
        if as_json:
            print_json_list(document(run) for run in search.pages(before, limit or sys.maxsize))
        else:
            rows = list(search.pages(before, limit or _FOR_PEOPLE))
    if not as_json and rows:
        draw_runs(rows)
    elif not as_json and search.ended is None:
        print("there are no such runs")
    if search.ended is not None:
        complain(_how_far(search.ended))
    return Exit.OK


def show(
    run: RunId,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show the progress until it ends.")] = False,
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show one run: its times, its attempts, where it ran under which token, and what it waits for.

    With --follow it first shows the progress: a bar, and one for each running part of a bulk job. Without a
    terminal, it prints a line when something has changed; with --json one object per line, the last one for the end.

    Exit code 1: there is no such run; 3: with --follow, the run has ended without success.

    Example: fencepost show 42

    Example: fencepost show 42 --follow
    """
    from fencepost.cli.run_rows import draw_run  # noqa: PLC0415

    with front(ledger) as ops:
        found = _followed(ops, run, as_json=as_json) if follow else ops.run(run)
        if follow and as_json:
            return _code(found)
        attempts, waits, now = ops.attempts(run), ops.waits(run), ops.now()
    if as_json:
        print_json({**document(found), "waits": waits, "ended_attempts": [document(each) for each in attempts]})
    else:
        draw_run(found, attempts, waits=waits, now=now)
    return _code(found) if follow else Exit.OK


def _followed(ops: Operations, run_id: int, *, as_json: bool) -> RunRecord:
    from fencepost.cli.run_progress import follow  # noqa: PLC0415 - few follow

    try:
        return follow(ops, run_id, as_json=as_json)
    except KeyboardInterrupt:
        complain(f"no longer following; run {run_id} continues")
        raise


def _code(row: RunRecord) -> int:
    return Exit.OK if row.state == "succeeded" else Exit.NOT_WELL


def _states(given: list[str], *, failed: bool) -> tuple[str, ...]:
    words = [word.strip().lower() for each in given for word in each.split(",") if word.strip()]
    for word in words:
        if word not in tuple(RunState):
            failed_for_good = "; a run that failed for good is 'dead'; --failed lists these" if word == "failed" else ""
            raise ConfigurationError(
                f"there is no state {word!r}; {suggestion(word, tuple(RunState))}{failed_for_good}"
            )
    return tuple(dict.fromkeys([*words, *(["dead"] if failed else [])]))


def _waiting(states: tuple[str, ...], waits_for: str) -> dict[str, Any]:
    """Return the states and what runs wait for, as filters: what waits for something is waiting."""
    if waits_for and waits_for not in tuple(WaitsFor):
        raise ConfigurationError(f"nothing waits for {waits_for!r}; {suggestion(waits_for, tuple(WaitsFor))}")
    return {"states": states or ((RunState.WAITING.value,) if waits_for else ()), "waits_for": waits_for}


def _refuse_to_follow(bounds: Mapping[str, object], params: Mapping[str, str]) -> None:
    for option, value in bounds.items():
        if value:
            raise ConfigurationError(f"--follow shows runs from now on, and {option} others; give only one of them")
    if params:
        raise ConfigurationError("--follow shows all runs of a job, and --param those with a value; give only one")


class _RunPages:
    """The runs that match, page by page. `ended` is the page at which a search without an index ended early."""

    def __init__(self, ops: Operations, wanted: Mapping[str, Any], *, goes_on: bool) -> None:
        self._ops = ops
        self._wanted = wanted
        self._goes_on = goes_on  # through all history, one bounded search after the other
        self.ended: RunsFound | None = None

    def pages(self, before: int | None, limit: int) -> Iterator[RunRecord]:
        while limit:
            page = self._ops.find_runs(**self._wanted, before_id=before, limit=min(_PAGE, limit))
            yield from page.runs
            before, limit = page.next_before, limit - len(page.runs)
            if page.looked_back_to is not None and not self._goes_on:
                self.ended = page if limit else None
                return
            if before is None:
                return


def _how_far(found: RunsFound) -> str:
    at = "" if found.looked_back_at is None else f" of {to_the_second(found.looked_back_at)}"
    return (
        f"the search is bounded: it looked through about {found.looked_through:,} runs, back to run "
        f"{found.looked_back_to}{at}; go on with --before {found.next_before}"
    )
