"""The instance of a bulk job's run: what has to be done once, with the checkpoints that the run continues from.

The instance of a run for a window is the window with its parameters, whether the run comes from the schedule, from a
back-fill or from an operator who repeats it. A run that was requested without a window shares its instance with its
repetitions, even if runs in between are no longer recorded: each repetition stores the first of them
(`fencepost.ledger.roots`).

A run that repeats a complete instance (`fencepost bulk again`) has an origin key that begins with ``again:``. It has a
new instance with checkpoints of its own, and so do its repetitions. The old checkpoints stay unchanged, so nothing has
to be undone in another database before such a run is requested.
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

WINDOW = ("window_start", "window_end")  # what queries may use besides the parameters


@dataclass(frozen=True, slots=True)
class Instance:
    """What has to be done once. `values` are the values of query parameters; `parent` is the run that conducts it.

    `params` are the recorded parameters. `window_us` is None for a request without a window: queries then see an empty
    window, which ends when the instance was first begun. `asked_at_us` is when the run was requested whose number is in
    the name, because each ledger numbers its runs from one. It is None if the name contains a window, or if unknown.
    """

    name: str
    parent: int
    values: Mapping[str, Any]
    params: Mapping[str, Any] = field(default_factory=dict)
    window_us: tuple[int, int] | None = None
    asked_at_us: int | None = None

    @property
    def window(self) -> list[Any]:
        """The window as it is stored in the plan."""
        return [packed(self.values[name]) for name in WINDOW]

    @property
    def is_again(self) -> bool:
        """Whether an operator has requested to repeat a complete window."""
        return self.window_us is not None and self.asked_at_us is not None

    def within(self, window: Sequence[Any]) -> Instance:
        """Return the instance with a stored window."""
        return replace(self, values={**self.values, **dict(zip(WINDOW, map(unpacked, window), strict=True))})


def instance_of(run: Run) -> Instance:
    """Return the instance of a run."""
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
    """Return the name of a run's instance."""
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
    """Return the origin key of a run that repeats the instance of `run_id`."""
    return f"{AGAIN}{run_id}:{request_id}"
