"""What a run of a bulk job stands for: the instance whose checkpoints it goes on from.

A run for a window stands for that window with its parameters, whoever asked for it: the schedule, a back-fill, or
somebody who repeats it. A run that was asked for without a window stands for itself and its repetitions, also when
runs in between are no longer on record: each repetition notes the first of them (`fencepost.ledger.roots`).

A run that is to do again what is complete (`fencepost bulk again`) has an origin key that begins with ``again:``. It
stands for something new, and so do its repetitions: it has checkpoints of its own, and those of before stay as they
are. So nothing has to be undone in another database before it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fencepost.core.identity import fingerprint
from fencepost.core.positions import packed, unpacked
from fencepost.core.tick import instant
from fencepost.engine.run import attempt_of
from fencepost.ledger.history import run as run_row
from fencepost.ledger.roots import AGAIN, Root, root_of

if TYPE_CHECKING:
    from fencepost.engine.run import Run
    from fencepost.ledger.database import Database
    from fencepost.ledger.history import RunRow

WINDOW = ("window_start", "window_end")  # what queries may name besides the parameters


@dataclass(frozen=True, slots=True)
class Instance:
    """What is to be done once. `values` are what queries may name; `parent` is the run that conducts it.

    `params` are the parameters as they were recorded. `window_us` is None for what was asked for without one: queries
    then see an empty window, which ends when it was first begun. `asked_at_us` is when the run was asked for that gives
    it its name: numbers of runs begin anew with each ledger. None if its name is its window, or nobody knows.
    """

    name: str
    parent: int
    values: Mapping[str, Any]
    params: Mapping[str, Any] = field(default_factory=dict)
    window_us: tuple[int, int] | None = None
    asked_at_us: int | None = None

    @property
    def window(self) -> list[Any]:
        """The window as it is kept beside the plan."""
        return [packed(self.values[name]) for name in WINDOW]

    @property
    def is_again(self) -> bool:
        """Whether a window is to be done again on somebody's word."""
        return self.window_us is not None and self.asked_at_us is not None

    def within(self, window: Sequence[Any]) -> Instance:
        """Return it with a window that was kept."""
        return replace(self, values={**self.values, **dict(zip(WINDOW, map(unpacked, window), strict=True))})


def instance_of(run: Run) -> Instance:
    """Return what a run stands for."""
    ledger = attempt_of(run).context.ledger()
    row = run_row(ledger, run.id)
    values = {**run.params, **dict(zip(WINDOW, run.window, strict=True))}
    window_us = None if row.window_end is None else (_first(row.window_start, row.window_end), row.window_end)
    first = _root(ledger, row)
    asked_at_us = None if row.window_end is not None and not first.is_again else first.asked_at_us
    return Instance(_name(row, first), run.id, values, json.loads(row.params), window_us, asked_at_us)


def _first(start_us: int | None, end_us: int) -> int:
    return end_us if start_us is None else start_us


def instance_name(ledger: Database, row: RunRow) -> str:
    """Name what a run stands for."""
    return _name(row, _root(ledger, row))


def _root(ledger: Database, row: RunRow) -> Root:
    return ledger.read(lambda cursor: root_of(ledger, cursor, row))


def _name(row: RunRow, first: Root) -> str:
    if row.window_end is None:
        return f"run-{first.run_id}"
    digest = fingerprint([row.window_start, row.window_end, json.loads(row.params)])[:12]
    name = f"{instant(row.window_end):%Y%m%dT%H%M%S}-{digest}"
    return f"{name}-again-{first.run_id}" if first.is_again else name


def again_key(run_id: int, request_id: str) -> str:
    """Return the origin key of a run that is to do again what `run_id` stands for."""
    return f"{AGAIN}{run_id}:{request_id}"
