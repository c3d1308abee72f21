"""Runs: the find box, pages by keyset, and the same as CSV or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from fencepost.core.rights import HumanAct
from fencepost.core.states import RunState
from fencepost.errors import InvalidParameters
from fencepost.web.exporting import MOST_EXPORTED, export
from fencepost.web.finding import PAGE, QUALIFIERS, Find, read_find, whole
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoutes

if TYPE_CHECKING:
    from fencepost.app.records import RunRecord, ScheduleRecord
    from fencepost.web.visits import Visit

PAGES = PageRoutes()
VIEWS = (
    ("All", ""),
    ("Running", "state:running"),
    ("Queued", "state:queued"),
    ("Waiting", "state:waiting"),
    ("Held", "waits:person"),
    ("Given up", "state:dead"),
)
_COLUMNS = ("id", "job", "state", "schedule", "due_at", "created_at", "started_at", "ended_at", "attempts", "node_name",
            "token", "requested_by", "error_code", "error", "why")  # fmt: skip


@PAGES.get("/runs", needs=HumanAct.LOOK)
def runs(visit: Visit) -> Response:
    """Show a page of runs."""
    ask, now = visit.ask, visit.ask.now()
    text = visit.query.get("q", "")
    values: dict[str, Any] = {"views": VIEWS, "qualifiers": QUALIFIERS, "text": text, "now": now, "wrong": None}
    try:
        find = read_find(text, now=now)
    except InvalidParameters as error:
        return render(
            visit,
            "runs.html",
            status=400,
            **values | {"found": None, "wrong": str(error), "zones_of": {}, "command": ""},
        )
    found = ask.find_runs(**find.wanted, before_id=_before(visit), limit=PAGE)
    is_newest = not visit.query.get("before")
    return render(
        visit,
        "runs.html",
        **values,
        found=found,
        zones_of=zones_of(visit, found.runs),
        command=command_of(find, visit.query.get("before")),
        live=is_newest,
    )


@PAGES.get("/runs.{form}", needs=HumanAct.EXPORT)
def runs_exported(visit: Visit) -> Response:
    """Give what the page shows to programs, up to a bound."""
    ask, now = visit.ask, visit.ask.now()
    find = read_find(visit.query.get("q", ""), now=now)
    found = ask.find_runs(**find.wanted, before_id=_before(visit), limit=MOST_EXPORTED)
    return export(str(visit.where["form"]), "runs", found.runs, _COLUMNS, is_cut=found.next_before is not None)


def _before(visit: Visit) -> int | None:
    before = visit.query.get("before", "")
    return whole(before, what="before") if before else None


def own_zone(schedule: ScheduleRecord) -> str:
    """Return the zone of a schedule; UTC if what is stored of it is damaged."""
    spec: Any = schedule.spec
    return str(spec.get("tz", "UTC")) if isinstance(spec, Mapping) else "UTC"


def zones_of(visit: Visit, runs: Iterable[RunRecord]) -> Mapping[str, str]:
    """Return the zones of the schedules of these runs by their ids, if the page shows times in them."""
    if visit.zone.name != "own":
        return {}
    wanted = {each.schedule for each in runs if each.schedule is not None}
    return {each.id: own_zone(each) for each in visit.ask.schedules.list(ids=wanted)}


_OPTIONS = {
    "job": "--job",
    "states": "--state",
    "waits_for": "--waits",
    "schedule": "--schedule",
    "queue": "--queue",
    "node": "--node",
    "requested_by": "--by",
    "exclusive_key": "--key",
    "retry_of": "--retry-of",
    "since": "--since",
    "until": "--until",
    "ids": "--id",
}


def command_of(find: Find, before: str | None) -> tuple[str, ...]:
    """Return the words of the command that shows the same."""
    wanted = dict(find.wanted)
    if not before and wanted.keys() == {"ids"} and len(wanted["ids"]) == 1:
        return ("fencepost", "show", str(wanted["ids"][0]))
    words: list[str] = ["fencepost", "runs"]
    for name, value in wanted.pop("params", {}).items():
        words += ["--param", f"{name}={value}"]
    if "waits_for" in wanted and wanted["states"] == (RunState.WAITING.value,):
        del wanted["states"]  # what waits for something is waiting
    for field, value in wanted.items():
        for each in value if isinstance(value, tuple) else (value,):
            words += [_OPTIONS[field], _spelled(each)]
    if before:
        words += ["--before", before]
    return tuple(words)


def _spelled(value: object) -> str:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)
