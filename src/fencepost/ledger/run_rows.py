"""The one INSERT by which a run comes into the ledger, whoever asks for it: a planner, a person or a program.

What is asked for is passed as columns of `e`, and `t.now` is the time; the statement works out the rest. A row of
`e` is made of parameters (`recording`), or `e` is a list of rows in one parameter (`planning`).
"""

# ruff: noqa: S608 - table names are checked identifiers, all values are parameters

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.core.runs import Requested
from fencepost.ledger.dialects.statements import clean

HORIZON_US = 2_000_000
"""What is to run later than this waits for its time first. Planners plan, and queue what waits, so far ahead."""

_Of = Callable[[Requested], Any]
# Columns that are written as they are asked for.
_PLAIN: dict[str, tuple[str, _Of]] = {
    "job": ("text", lambda asked: asked.job),
    "type": ("text", lambda asked: asked.type),
    "params": ("text", lambda asked: clean(asked.params)),
    "params_hash": ("text", lambda asked: asked.params_hash),
    "origin_key": ("text", lambda asked: asked.origin_key),
    "schedule": ("text", lambda asked: asked.schedule),
    "first_due_at": ("int", lambda asked: asked.first_due_at_us),
    "due_at": ("int", lambda asked: asked.due_at_us),
    "ticks": ("int", lambda asked: asked.ticks),
    "window_start": ("int", lambda asked: asked.window_start_us),
    "window_end": ("int", lambda asked: asked.window_end_us),
    "priority": ("int", lambda asked: asked.priority),
    "queue": ("text", lambda asked: asked.queue),
    "exclusive_key": ("text", lambda asked: asked.exclusive_key),
    "requested_by": ("text", lambda asked: clean(asked.requested_by)),
    "reason": ("text", lambda asked: clean(asked.reason)),
    "retry_of": ("int", lambda asked: asked.retry_of),
    "generation": ("int", lambda asked: asked.generation),
    "why": ("text", lambda asked: clean(asked.why)),
    "root": ("text", lambda asked: asked.root),
}
# What else is passed, and what is worked out of it.
_PASSED: dict[str, tuple[str, _Of]] = {
    "state": ("text", lambda asked: asked.state),
    "available_at": ("int", lambda asked: asked.available_at_us),
    "sla_us": ("int", lambda asked: asked.sla_us),
}
_IS_FAR = "e.state = 'queued' AND e.available_at > t.now + {horizon_us}"
_WORKED_OUT = {
    "state": f"CASE WHEN {_IS_FAR} THEN 'waiting' ELSE e.state END",
    "waits_for": f"CASE WHEN {_IS_FAR} THEN 'time' END",
    "available_at": "COALESCE(e.available_at, t.now)",
    "created_at": "t.now",
    "ended_at": "CASE WHEN e.state <> 'queued' THEN t.now END",
    "sla_at": "COALESCE(e.due_at, e.available_at, t.now) + e.sla_us",
    **dict.fromkeys(("attempts", "failures", "crashes", "token"), "0"),
}
_SOURCE = _PLAIN | _PASSED

PASSED_KINDS = {name: kind for name, (kind, _) in _SOURCE.items()}
"""The columns of `e` and their kinds, in the order of `passed`."""


def passed(asked: Requested) -> tuple[Any, ...]:
    """Return what is passed of a request."""
    return tuple([of(asked) for _, of in _SOURCE.values()])


def insert_sql(table: str, *, rows: str, now: str, horizon_us: int = HORIZON_US) -> str:
    """Return the INSERT into `table`. `rows` is what `e` is made of, `now` what the time is, both as SQL.

    It ends with a condition, so that what may follow is not taken for a part of a join.
    """
    worked_out = [each.replace("{horizon_us}", str(horizon_us)) for each in _WORKED_OUT.values()]
    return (
        f"INSERT INTO {table} ({', '.join((*_PLAIN, *_WORKED_OUT))}) "
        f"SELECT {', '.join((*(f'e.{name}' for name in _PLAIN), *worked_out))} "
        f"FROM {rows}, (SELECT {now} AS now) t WHERE 1 = 1"
    )
