"""What a run of a bulk job stands for: the instance whose checkpoints it goes on from.

A run for a window stands for that window with its parameters, whoever asked for it: the schedule, a back-fill, or
somebody who repeats it. A run that was asked for without a window stands for itself and its repetitions.

A run that is to do again what is complete (`fencepost bulk again`) has an origin key that begins with ``again:``. It
stands for something new, and so do its repetitions: it has checkpoints of its own, and those of before stay as they
are. So nothing has to be undone in another database before it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.core.identity import fingerprint
from fencepost.core.positions import packed
from fencepost.core.tick import instant
from fencepost.errors import NoSuchRun
from fencepost.ledger.history import run as run_row

if TYPE_CHECKING:
    from fencepost.engine.run import Run
    from fencepost.ledger.database import Database
    from fencepost.ledger.history import RunRow

_AGAIN = "again:"
_MOST_REPETITIONS = 1000


@dataclass(frozen=True, slots=True)
class Instance:
    """What is to be done once. `values` are what queries may name; `parent` is the run that conducts it."""

    name: str
    parent: int
    values: Mapping[str, Any]


def instance_of(run: Run) -> Instance:
    """Return what a run stands for."""
    ledger = run.context.ledger()
    params = dict(run.params)
    values = {**params, "window_start": run.window.start, "window_end": run.window.end}
    return Instance(instance_name(ledger, run_row(ledger, run.id), params), run.id, values)


def instance_name(ledger: Database, row: RunRow, params: Mapping[str, Any]) -> str:
    """Name what a run with these parameters stands for."""
    first, is_again = _first_of(ledger, row)
    if row.window_end is None:
        return f"run-{first}"
    digest = fingerprint([row.window_start, row.window_end, packed(params)])[:12]
    name = f"{instant(row.window_end):%Y%m%dT%H%M%S}-{digest}"
    return f"{name}-again-{first}" if is_again else name


def again_key(run_id: int, request_id: str) -> str:
    """Return the origin key of a run that is to do again what `run_id` stands for."""
    return f"{_AGAIN}{run_id}:{request_id}"


def _first_of(ledger: Database, row: RunRow) -> tuple[int, bool]:
    """Return the run that this one repeats, or repeats a repetition of, and whether that one begins anew."""
    for _ in range(_MOST_REPETITIONS):
        if (row.origin_key or "").startswith(_AGAIN):
            return row.id, True
        before = row.retry_of
        if before is None:
            break
        try:
            row = run_row(ledger, before)
        except NoSuchRun:  # pruned
            return before, False
    return row.id, False
