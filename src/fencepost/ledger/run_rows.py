"""The one INSERT that creates a run in the ledger, whether a planner, a person or a program asks for it.

The requested values are passed as columns of `e`, and `t.now` is the time; the statement computes the rest. A field of
`Requested` is a column of the same name, without ``_us``, so that a new field need not be named here; only search keys,
the last field, are rows of their own. Either each row of `e` consists of parameters (`recording`), or `e` is a list of
rows in one parameter (`planning`).
"""

# ruff: noqa: S608 - table names are checked identifiers, all values are parameters

from __future__ import annotations

from typing import Any, get_type_hints

from fencepost.core.runs import Requested
from fencepost.ledger.dialects.statements import clean, said

HORIZON_US = 2_000_000
"""A run that is due later than this waits for its time first. Planners plan, and queue waiting runs, this far ahead."""

# Fields of a request that are not stored as they are: the statement computes columns from them.
_COMPUTED_FROM = ("state", "available_at_us", "sla_us")
# Texts that are already validated. The others, written by people, may have characters that no database can store.
_CHECKED = frozenset(
    ("job", "type", "params_hash", "origin_key", "schedule", "queue", "exclusive_key", "state", "root")
)
_KIND_OF: dict[Any, str] = {int: "int", int | None: "int", str: "text", str | None: "text"}
_BESIDE = "search"  # has rows of its own: see `fencepost.ledger.search_keys`
_KINDS = {name: _KIND_OF[hint] for name, hint in get_type_hints(Requested).items() if name != _BESIDE}
_TO_CLEAN = tuple(
    (index, clean if name == "params" else said)  # parameters with the value of a secret are refused, not changed
    for index, (name, kind) in enumerate(_KINDS.items())
    if kind == "text" and name not in _CHECKED
)


_WIDTH = len(_KINDS)  # fields that are columns come first


def _column(field: str) -> str:
    """Return the name under which a field is passed: that of its column, if it has one."""
    return field if field == "sla_us" else field.removesuffix("_us")


_PLAIN = tuple(_column(name) for name in _KINDS if name not in _COMPUTED_FROM)
_IS_FAR = "e.state = 'queued' AND e.available_at > t.now + {horizon_us}"
_COMPUTED = {
    "state": f"CASE WHEN {_IS_FAR} THEN 'waiting' ELSE e.state END",
    "waits_for": f"CASE WHEN {_IS_FAR} THEN 'time' END",
    "available_at": "COALESCE(e.available_at, t.now)",
    "created_at": "t.now",
    "ended_at": "CASE WHEN e.state <> 'queued' THEN t.now END",
    "sla_at": "COALESCE(e.due_at, e.available_at, t.now) + e.sla_us",
    **dict.fromkeys(("attempts", "failures", "crashes", "token"), "0"),
}

PASSED_KINDS = {_column(name): kind for name, kind in _KINDS.items()}
"""The columns of `e` and their kinds, in the order of `passed`."""


def passed(asked: Requested) -> tuple[Any, ...]:
    """Return the parameters for a request."""
    values = list(asked[:_WIDTH])
    for index, cleaned in _TO_CLEAN:
        values[index] = cleaned(values[index])
    return tuple(values)


def insert_sql(table: str, *, rows: str, now: str, horizon_us: int = HORIZON_US) -> str:
    """Return the INSERT into `table`. `rows` is the source of `e`, and `now` is the time, both as SQL.

    It ends with a condition, so that a clause that is appended is not parsed as part of a join.
    """
    computed = [each.replace("{horizon_us}", str(horizon_us)) for each in _COMPUTED.values()]
    return (
        f"INSERT INTO {table} ({', '.join((*_PLAIN, *_COMPUTED))}) "
        f"SELECT {', '.join((*(f'e.{name}' for name in _PLAIN), *computed))} "
        f"FROM {rows}, (SELECT {now} AS now) t WHERE 1 = 1"
    )
