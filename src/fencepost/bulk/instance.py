"""What a run of a bulk job stands for: the instance whose checkpoints it goes on from.

A run for a window stands for that window with its parameters, whoever asked for it: the schedule, a back-fill, or
somebody who repeats it. A run that was asked for without a window stands for itself and its repetitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.core.identity import fingerprint
from fencepost.core.positions import packed
from fencepost.errors import NoSuchRun
from fencepost.ledger.history import run as run_row

if TYPE_CHECKING:
    from fencepost.engine.run import Run

_MOST_REPETITIONS = 1000


@dataclass(frozen=True, slots=True)
class Instance:
    """What is to be done once. `values` are what queries may name; `parent` is the run that conducts it."""

    name: str
    parent: int
    values: Mapping[str, Any]


def instance_of(run: Run) -> Instance:
    """Return what a run stands for."""
    row = run_row(run.context.ledger(), run.id)
    params = dict(run.params)
    values = {**params, "window_start": run.window.start, "window_end": run.window.end}
    if row.window_end is None:
        return Instance(f"run-{_first_of(run)}", run.id, values)
    digest = fingerprint([row.window_start, row.window_end, packed(params)])[:12]
    return Instance(f"{run.window.end:%Y%m%dT%H%M%S}-{digest}", run.id, values)


def _first_of(run: Run) -> int:
    """Return the run that this one repeats, or repeats a repetition of."""
    ledger, found = run.context.ledger(), run.id
    for _ in range(_MOST_REPETITIONS):
        try:
            before = run_row(ledger, found).retry_of
        except NoSuchRun:  # pruned
            return found
        if before is None:
            return found
        found = before
    return found
