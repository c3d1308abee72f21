"""The loop that writes figures: what this node has counted of its jobs, every ten seconds and once when it leaves.

**Promises.** One statement in ten seconds, whatever the number of runs, and none while nothing ends. A node writes only
rows under its own id: that of its first identity, which it keeps here when it joins again under another one. While the
ledger is away, figures wait here. No run waits for this loop.

**Not promised.** That the figures of the last ten seconds survive the death of this process. Figures of an hour that
ended `TOO_LATE_US` ago and could not be written until then are dropped, and reported: the rows of that hour may have
been merged (`ledger.figures`), and would count twice.
"""

from __future__ import annotations

from itertools import islice

from fencepost.core.events import Event, What
from fencepost.core.figures import HOUR_US
from fencepost.engine.loop_step import LedgerStep
from fencepost.engine.node_state import NodeState
from fencepost.ledger.figures import MERGED_AFTER_US, FigureRow, put

EVERY_S = 10.0  # one statement each time; what was counted since the last is lost if the process dies
TOO_LATE_US = MERGED_AFTER_US - HOUR_US // 2  # half an hour is left for calls that take long, and for the clocks
_BATCH = 500  # rows in a statement


class FigureWriter(LedgerStep):
    """The step that writes what was counted."""

    name = "figures"

    def __init__(self, node: NodeState) -> None:
        super().__init__(node)
        self._figures = node.figures
        self._node_id: str | None = None
        self._write_at = float("inf")
        self._is_draining = False
        self._is_failing = False
        self._figures.on_first_change = lambda: node.wake(self.name)

    def step(self, now: float) -> float:
        """Write what was counted, ten seconds after the first of it."""
        if not self._figures.has_changed:
            self._write_at = float("inf")
            return now + EVERY_S
        self._write_at = min(self._write_at, now + EVERY_S)
        if not self._may_write or (now < self._write_at and not self._is_draining):
            return max(self._write_at, now + 1.0)
        self._write()
        self._connection.rest()
        self._write_at = float("inf")
        return now + EVERY_S

    def drain(self) -> None:
        """Write at once from now on."""
        self._is_draining = True

    @property
    def is_empty(self) -> bool:
        """Whether everything was written, or cannot be: a node that leaves does not wait for a ledger that is away."""
        return self._is_failing or not self._may_write or not self._figures.has_changed

    def settle(self, now: float) -> None:
        """Write what the other loops have counted at their end."""
        if not self.is_empty:
            self._write()

    @property
    def _may_write(self) -> bool:
        if self._node_id is None:
            self._node_id = self._node.node_id
        return self._node_id is not None and not self._node.same.is_held

    def _write(self) -> None:
        taken = self._figures.take()
        late_us = self._node.clock.there_us() - HOUR_US - TOO_LATE_US
        waiting = {key: stored for key, stored in taken.items() if key[1] >= late_us}
        if len(waiting) < len(taken):
            self._report_dropped(len(taken) - len(waiting))
        self._is_failing = True
        try:
            while waiting:
                batch = dict(islice(waiting.items(), _BATCH))
                put(
                    self._connection, [FigureRow(job, hour, self._id, *stored) for (job, hour), stored in batch.items()]
                )
                for key in batch:
                    del waiting[key]
        finally:
            self._figures.give_back(waiting)
        self._is_failing = False

    @property
    def _id(self) -> str:
        return self._node_id or ""

    def _report_dropped(self, rows: int) -> None:
        reason = (
            f"figures of {rows} job{'' if rows == 1 else 's'} were dropped: the ledger did not take them within hours"
        )
        self._node.emit(Event(What.RUNNER_WARNING, node=self._node.node_id, reason=reason))
