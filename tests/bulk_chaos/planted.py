"""Bugs to plant in the workers, each the kind of slip by which bulk jobs elsewhere lose or double what they do.

They wait where it hurts, so that a kill at random finds the place within a few dozen tries.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fencepost.bulk import checkpoint, conducting, landing

_MOMENT_S = 0.15


def _checkpoint_afterwards() -> None:
    """The effects commit, and the checkpoint follows in a transaction of its own."""

    def move_on(self: Any, after: Any, counts: Any, effects: Callable[[Any], None]) -> None:
        with self._run.transaction(self._target) as tx:
            effects(tx)
        time.sleep(_MOMENT_S)
        with self._run.transaction(self._target) as tx:
            self._checkpoint.move(tx, self.mark, after, counts)
        self.mark, self.counts = after, counts

    landing.Lander._move_on = move_on  # type: ignore[method-assign]


def _checkpoint_first() -> None:
    """The checkpoint moves on, and the effects follow in a transaction of their own."""

    def move_on(self: Any, after: Any, counts: Any, effects: Callable[[Any], None]) -> None:
        with self._run.transaction(self._target) as tx:
            self._checkpoint.move(tx, self.mark, after, counts)
        time.sleep(_MOMENT_S)
        with self._run.transaction(self._target) as tx:
            effects(tx)
        self.mark, self.counts = after, counts

    landing.Lander._move_on = move_on  # type: ignore[method-assign]


def _no_comparison() -> None:
    """The checkpoint is moved wherever it is, and a parent does a partition that is under way elsewhere as well."""
    careful = checkpoint.Checkpoint.moving

    def moving(self: Any, tx: Any, before: Any, after: Any, counts: Any) -> Any:
        change = careful(self, tx, before, after, counts)
        return change._replace(sql=change.sql.removesuffix(" AND position = %s"), values=change.values[:-1])

    checkpoint.Checkpoint.moving = moving  # type: ignore[method-assign]
    _both_at_once()


def _both_at_once() -> None:
    """Every partition of which the parent has made a run is done by the parent too."""

    def work_all(self: Any) -> None:
        left = [number for number, is_done in enumerate(self._plans.done(self._plan)) if not is_done]
        self._ask_for(self._without_run(left))
        for number in left:
            self._work(number)

    careful = conducting.PartitionRuns._see_through

    def see_through(self: Any) -> None:
        work_all(self)
        careful(self)

    conducting.PartitionRuns._see_through = see_through  # type: ignore[method-assign]


BUGS: dict[str, Callable[[], None]] = {
    "checkpoint-afterwards": _checkpoint_afterwards,
    "checkpoint-first": _checkpoint_first,
    "no-comparison": _no_comparison,
    "both-at-once": _both_at_once,  # no bug as long as the checkpoint is compared: but for redone work, all holds
}


def plant(name: str) -> None:
    """Plant a bug in this process."""
    BUGS[name]()
