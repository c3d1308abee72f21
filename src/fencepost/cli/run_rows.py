"""Runs and their attempts, as cells for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fencepost.cli.output import draw_fields, draw_rows, exactly, say, to_the_millisecond, to_the_second
from fencepost.core.duration import spelled
from fencepost.core.identity import BACKFILL

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from fencepost.app.records import AttemptRecord, JournalRecord, RunRecord

COLUMNS = ("id", "job", "state", "due", "late", "took", "node", "token", "why")
_LONG = 60  # characters of an error or a reason in a table; --json has all of it


def draw_runs(rows: Sequence[RunRecord]) -> None:
    """Draw one row per run."""
    draw_rows(COLUMNS, map(run_cells, rows), spare=("token", "late", "took", "node"))


def run_cells(row: RunRecord) -> tuple[str, ...]:
    """Return a run as one row of `COLUMNS`."""
    return (
        str(row.id),
        row.job,
        _state(row),
        _due(row),
        _late(row),
        took(row),
        shown_node(row),
        str(row.token or ""),
        beginning(_error(row) or row.why or ""),
    )


def draw_run(row: RunRecord, attempts: Sequence[AttemptRecord], *, waits: str | None, now: datetime) -> None:
    """Draw all of one run, a line per field, then its attempts."""
    draw_fields(_details(row, waits, now))
    if attempts:
        columns = ("attempt", "outcome", "node", "token", "started", "took", "error")
        draw_rows(columns, map(_attempt_cells, attempts), spare=("took", "started", "token"))
        say(f"log: fencepost logs {row.id}")
        if trace := next((each.trace for each in reversed(attempts) if each.trace), None):
            say(trace.rstrip())


def _state(row: RunRecord) -> str:
    attempt = f"attempt {row.attempts}" if row.attempts > 1 else ""
    return ", ".join(filter(None, (row.state, attempt, "SLA missed" if row.sla_missed else "")))


def shown_node(row: RunRecord | AttemptRecord | JournalRecord) -> str:
    """Return the name of a node, or its id if its record is gone."""
    return row.node_name or row.node or ""


def took(row: RunRecord) -> str:
    """Return how long the latest attempt took, if it has ended."""
    if row.started_at is None or row.ended_at is None:
        return ""
    return duration(row.ended_at - row.started_at)


def _late(row: RunRecord) -> str:
    """Return how long after its due time the first attempt began; of later ones only the last is known here.

    A back-filled run is not late: it was requested after its due time.
    """
    if row.started_at is None or row.attempts != 1 or (row.origin_key or "").startswith(BACKFILL):
        return ""
    return duration(row.started_at - (row.available_at if row.due_at is None else row.due_at))


def duration(between: timedelta) -> str:
    """Format a duration for people."""
    return _spelled(between.total_seconds())


def _spelled(seconds: float) -> str:
    duration_s = max(seconds, 0.0)
    return spelled(round(duration_s, 3) if duration_s < 10 else round(duration_s))


def beginning(text: str) -> str:
    """Return a text as one line, cut if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONG else line[: _LONG - 1] + "…"


def _details(row: RunRecord, waits: str | None, now: datetime) -> dict[str, str]:
    window = row.window
    return {
        "run": f"{row.id} of {row.job} ({row.type})",
        "state": row.state + (f": {waits}" if waits else f": {row.why}" if row.why else ""),
        "due": _due(row),
        "window": f"{exactly(window.start) or '(the beginning)'} to {exactly(window.end)}" if window else "",
        "schedule": row.schedule or "",
        "key": row.origin_key or "",
        "parameters": _json(row.params) if row.params else "",
        "request hash": row.request_hash or "",
        "asked for by": " ".join(filter(None, (row.requested_by, f"({row.reason})" if row.reason else None))),
        "retry of": str(row.retry_of or ""),
        "queue": f"{row.queue}, priority {row.priority}",
        "exclusive": row.exclusive_key or "",
        "attempts": f"{row.attempts} ({row.failures} failed, {row.crashes} lost)",
        "node": shown_node(row),
        "token": str(row.token or ""),
        "created": to_the_millisecond(row.created_at),
        "available": to_the_millisecond(row.available_at),
        "started": to_the_millisecond(row.started_at),
        "ended": " ".join(filter(None, (to_the_millisecond(row.ended_at), f"({took(row)})" if took(row) else None))),
        "deadline": _deadline(row, now),
        "cancel": f"requested by {row.cancel_by or 'an unknown person'} at {exactly(row.cancel_requested_at)}"
        if row.cancel_requested_at
        else "",
        "progress": _progress(row),
        "error": _error(row),
        "result": "" if row.result is None else _json(row.result),
    }


def _deadline(row: RunRecord, now: datetime) -> str:
    """Return when the run should have ended, and whether it missed that."""
    if row.sla_at is None:
        return ""
    late = (row.ended_at or now) - row.sla_at
    missed = f" (SLA missed: {'ended' if row.ended_at else 'now'} {duration(late)} late)" if row.sla_missed else ""
    return f"{to_the_millisecond(row.sla_at)}{missed}"


def _progress(row: RunRecord) -> str:
    if row.progress is None:
        return row.progress_note or ""
    return f"{row.progress:.0%}" + (f", {row.progress_note}" if row.progress_note else "")


def _attempt_cells(row: AttemptRecord) -> tuple[str, ...]:
    return (
        str(row.number),
        row.outcome,
        shown_node(row),
        str(row.token),
        to_the_millisecond(row.started_at),
        "" if row.took_s is None else _spelled(row.took_s),
        beginning(_error(row)),
    )


def _error(row: RunRecord | AttemptRecord) -> str:
    """Return the error with its class: the text of a KeyError is only the key."""
    return ": ".join(filter(None, (row.error_code, row.error)))


def _due(row: RunRecord) -> str:
    if row.due_at is None:
        return ""
    due = to_the_second(row.due_at)
    return due if row.ticks == 1 else f"{due} ({row.ticks} since {to_the_second(row.first_due_at)})"


def _json(value: Any) -> str:
    """Return JSON with characters such as é instead of their escapes."""
    return json.dumps(value, ensure_ascii=False)
