"""Runs and their attempts, as fields for programs and as cells for people. The field names are kept stable."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.cli.output import at, draw_fields, draw_rows, say, to_the_millisecond, to_the_second, unescaped
from fencepost.core.duration import spelled

if TYPE_CHECKING:
    from fencepost.ledger.history import AttemptRow, RunRow
    from fencepost.ledger.ledger import Ledger

COLUMNS = ("id", "job", "state", "due", "late", "took", "node", "token", "why")
_LONG = 60
_MOST_NODES = 1000

NodeNames = Mapping[str, str]
"""What nodes are called, by their ids."""


@dataclass(frozen=True, slots=True)
class RunListContext:
    """What it takes to tell of runs: what nodes are called, and what time it was in the ledger when it was asked."""

    nodes: NodeNames
    now_us: int

    @staticmethod
    def of(book: Ledger) -> RunListContext:
        """Ask the ledger."""
        return RunListContext(node_names(book), book.now_us())


def node_names(book: Ledger) -> dict[str, str]:
    """Return what nodes are called, by their ids."""
    from fencepost.ledger.nodes import nodes  # noqa: PLC0415 - SQLAlchemy takes its time to load

    return {node.id: node.name for node in nodes(book, limit=_MOST_NODES)}


def has_missed_sla(row: RunRow, now_us: int) -> bool | None:
    """Whether a run ended, or has not ended, later than its job promises; None if it promises nothing."""
    return None if row.sla_at is None else row.sla_at < (row.ended_at or now_us)


def run_fields(row: RunRow, seen: RunListContext) -> dict[str, object]:
    """Return all of a run, as JSON can say it."""
    return {
        "id": row.id,
        "job": row.job,
        "type": row.type,
        "state": row.state,
        "waits_for": row.waits_for,
        "why": row.why,
        "schedule": row.schedule,
        "origin_key": row.origin_key,
        "first_due_at": at(row.first_due_at),
        "due_at": at(row.due_at),
        "ticks": row.ticks,
        "window": _window(row),
        "params": _read(row.params),
        "request_hash": row.params_hash or None,
        "requested_by": row.requested_by,
        "reason": row.reason,
        "priority": row.priority,
        "queue": row.queue,
        "exclusive_key": row.exclusive_key,
        "attempts": row.attempts,
        "failures": row.failures,
        "crashes": row.crashes,
        "node": row.node,
        "node_name": seen.nodes.get(row.node or ""),
        "token": row.token or None,
        "created_at": at(row.created_at),
        "available_at": at(row.available_at),
        "started_at": at(row.started_at),
        "ended_at": at(row.ended_at),
        "cancel_requested_at": at(row.cancel_requested_at),
        "cancel_by": row.cancel_by,
        "error_code": row.error_code,
        "error": row.error,
        "result": _read(row.result),
        "progress": row.progress,
        "progress_note": row.progress_note,
        "sla_at": at(row.sla_at),
        "sla_missed": has_missed_sla(row, seen.now_us),
        "retry_of": row.retry_of,
        "generation": row.generation,
    }


def attempt_fields(row: AttemptRow, nodes: NodeNames) -> dict[str, object]:
    """Return an attempt, as JSON can say it."""
    return {
        "number": row.number,
        "outcome": row.outcome,
        "node": row.node,
        "node_name": nodes.get(row.node or ""),
        "token": row.token,
        "started_at": at(row.started_at),
        "ended_at": at(row.ended_at),
        "took_s": None if (took_us := _took_us(row)) is None else took_us / 1_000_000,
        "error_code": row.error_code,
        "error": row.error,
        "trace": row.trace,
    }


def draw_runs(rows: Sequence[RunRow], seen: RunListContext) -> None:
    """Draw one row per run."""
    draw_rows(COLUMNS, (run_cells(row, seen) for row in rows), spare=("token", "late", "took", "node"))


def run_cells(row: RunRow, seen: RunListContext) -> tuple[str, ...]:
    """Return a run as one row of `COLUMNS`."""
    return (
        str(row.id),
        row.job,
        _state(row, seen.now_us),
        _due(row),
        _late(row),
        took(row),
        shown_node(row.node, seen.nodes),
        str(row.token or ""),
        beginning(_error(row) or row.why or ""),
    )


def draw_run(row: RunRow, attempts: Sequence[AttemptRow], seen: RunListContext, *, waits: str | None) -> None:
    """Draw all of one run, a line per field, then its attempts."""
    draw_fields(_details(row, seen, waits))
    if attempts:
        columns = ("attempt", "outcome", "node", "token", "started", "took", "error")
        draw_rows(columns, (_attempt_cells(each, seen.nodes) for each in attempts), spare=("took", "started", "token"))
        if trace := next((each.trace for each in reversed(attempts) if each.trace), None):
            say(trace.rstrip())


def _state(row: RunRow, now_us: int) -> str:
    attempt = f"attempt {row.attempts}" if row.attempts > 1 else ""
    return ", ".join(filter(None, (row.state, attempt, "SLA missed" if has_missed_sla(row, now_us) else "")))


def shown_node(node_id: str | None, nodes: NodeNames) -> str:
    """Name a node for people."""
    return "" if node_id is None else nodes.get(node_id, node_id)


def took(row: RunRow) -> str:
    """Say how long the latest attempt took, if it ended."""
    if row.started_at is None or row.ended_at is None:
        return ""
    return duration(row.ended_at - row.started_at)


def _late(row: RunRow) -> str:
    """Say how long after its time the first attempt began; of later ones only the last is known here."""
    if row.started_at is None or row.attempts != 1:
        return ""
    return duration(row.started_at - (row.available_at if row.due_at is None else row.due_at))


def duration(duration_us: int | None) -> str:
    """Spell a duration for people."""
    if duration_us is None:
        return ""
    duration_s = max(duration_us, 0) / 1_000_000
    return spelled(round(duration_s, 3) if duration_s < 10 else round(duration_s))


def beginning(text: str) -> str:
    """Return a text as one line, cut if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONG else line[: _LONG - 1] + "…"


def _details(row: RunRow, seen: RunListContext, waits: str | None) -> dict[str, str]:
    window = _window(row)
    return {
        "run": f"{row.id} of {row.job} ({row.type})",
        "state": row.state + (f": {waits}" if waits else f": {row.why}" if row.why else ""),
        "due": _due(row),
        "window": f"{window['start'] or '(the beginning)'} to {window['end']}" if window else "",
        "schedule": row.schedule or "",
        "key": row.origin_key or "",
        "parameters": "" if row.params == "{}" else unescaped(row.params),
        "request hash": row.params_hash,
        "asked for by": " ".join(filter(None, (row.requested_by, f"({row.reason})" if row.reason else None))),
        "retry of": str(row.retry_of or ""),
        "queue": f"{row.queue}, priority {row.priority}",
        "exclusive": row.exclusive_key or "",
        "attempts": f"{row.attempts} ({row.failures} failed, {row.crashes} lost)",
        "node": shown_node(row.node, seen.nodes),
        "token": str(row.token or ""),
        "created": to_the_millisecond(row.created_at),
        "available": to_the_millisecond(row.available_at),
        "started": to_the_millisecond(row.started_at),
        "ended": " ".join(filter(None, (to_the_millisecond(row.ended_at), f"({took(row)})" if took(row) else None))),
        "deadline": _deadline(row, seen.now_us),
        "cancel": f"asked for by {row.cancel_by or 'somebody'} at {at(row.cancel_requested_at)}"
        if row.cancel_requested_at
        else "",
        "progress": _progress(row),
        "error": _error(row),
        "result": "" if row.result is None else unescaped(row.result),
    }


def _deadline(row: RunRow, now_us: int) -> str:
    """Say by when it should have ended, and whether it did."""
    if row.sla_at is None:
        return ""
    late_us = (row.ended_at or now_us) - row.sla_at
    told = f" (SLA missed: {'ended' if row.ended_at else 'now'} {duration(late_us)} late)" if late_us > 0 else ""
    return f"{to_the_millisecond(row.sla_at)}{told}"


def _progress(row: RunRow) -> str:
    if row.progress is None:
        return row.progress_note or ""
    return f"{row.progress:.0%}" + (f", {row.progress_note}" if row.progress_note else "")


def _attempt_cells(row: AttemptRow, nodes: NodeNames) -> tuple[str, ...]:
    return (
        str(row.number),
        row.outcome,
        shown_node(row.node, nodes),
        str(row.token),
        to_the_millisecond(row.started_at),
        duration(_took_us(row)),
        beginning(_error(row)),
    )


def _error(row: RunRow | AttemptRow) -> str:
    """Say what went wrong, with its kind: the text of a KeyError is only the key."""
    return ": ".join(filter(None, (row.error_code, row.error)))


def _took_us(row: AttemptRow) -> int | None:
    """Return how long an attempt took; nobody knows that of one whose node is gone."""
    return None if row.outcome == "lost" and not row.took_us else row.took_us


def _due(row: RunRow) -> str:
    if row.due_at is None:
        return ""
    due = to_the_second(row.due_at)
    return due if row.ticks == 1 else f"{due} ({row.ticks} since {to_the_second(row.first_due_at)})"


def _window(row: RunRow) -> dict[str, str | None] | None:
    if row.window_end is None:
        return None
    return {"start": at(row.window_start), "end": at(row.window_end)}


def _read(text: str | None) -> Any:
    """Return stored JSON as JSON; what somebody wrote into the table by hand stays a text."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
