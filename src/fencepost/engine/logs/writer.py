"""The loop that writes the logs of runs to the ledger: each second, or as soon as there are 32 kB.

**Promises.** At most one transaction a second, with one statement that writes and one that removes, whatever the number
of runs and lines. At most 1 MB is written per second. While the ledger is away, logs wait here within fixed limits;
what is dropped is counted, and reported when the ledger answers again. No run waits for this loop.

**Not promised.** That the last second of lines survives the death of this process.
"""

from __future__ import annotations

from fencepost.core.events import Event, What
from fencepost.engine.logs.attempt_log import CHUNK_BYTES
from fencepost.engine.logs.local import capture_for
from fencepost.engine.logs.run_logs import RunLogs
from fencepost.engine.loop_step import LedgerStep
from fencepost.engine.node_state import NodeState
from fencepost.ledger.log_chunks import ChunkRange, store

_EVERY_S = 1.0  # what a kill may lose, and one statement a second for the ledger
_BUDGET_BYTES = 1_000_000  # per second
_IDLE_S = 10.0  # for which the connection is kept
_NEVER = float("-inf")
_EVERYTHING = 1 << 40  # bytes; more than can wait here, so a node that leaves has no budget to wait for


class LogWriter(LedgerStep):
    """The step that writes what waits."""

    name = "logs"

    def __init__(self, node: NodeState, logs: RunLogs) -> None:
        super().__init__(node)
        self._logs = logs
        self._wrote_at = _NEVER
        self._budget = 0
        self._removed: list[ChunkRange] = []
        self._reported = logs.dropped
        self._is_draining = False
        self._is_failing = False
        self._capture = capture_for(logs)
        logs.on_waiting = lambda: node.wake(self.name)

    @classmethod
    def where_kept(cls, node: NodeState) -> LogWriter | None:
        """Make it for a node that keeps the logs of its runs."""
        return None if node.logs is None else cls(node, node.logs)

    def begin(self) -> None:
        """Capture log records of runs in this process."""
        self._capture.start()

    def close(self) -> None:
        """Capture no more."""
        self._capture.stop()
        super().close()

    def step(self, now: float) -> float:
        """Write what waits, if it is time."""
        due_at = self._due_at()
        if self._node.same.is_held:  # perhaps an older dump, or a copy, in which other runs have these ids
            return now + _EVERY_S
        if now < due_at:
            if now > self._wrote_at + _IDLE_S:
                self._connection.rest()
            return min(due_at, now + _IDLE_S)
        self._write(now)
        return self._due_at()

    def drain(self) -> None:
        """Write what there is without waiting for more, as soon as all runs have ended."""
        self._is_draining = True

    @property
    def is_empty(self) -> bool:
        """Whether everything was written, or cannot be: a node that leaves does not wait for a ledger that is away."""
        is_away = self._is_failing or self._node.same.is_held
        return is_away or not (self._logs.waiting or self._removed)

    @property
    def _is_hurried(self) -> bool:
        """Whether the node leaves as soon as everything is written. While runs go on, the limits hold for them."""
        return self._is_draining and not self._logs.has_begun

    def _due_at(self) -> float:
        if self._is_hurried:
            return _NEVER if self._logs.waiting or self._removed else float("inf")
        logs = self._logs
        full_at = _NEVER if logs.waiting >= CHUNK_BYTES else logs.waiting_since + _EVERY_S
        if self._removed:
            full_at = _NEVER
        return max(self._wrote_at + _EVERY_S, full_at)

    def _write(self, now: float) -> None:
        self._budget = min(self._budget + round(min(now - self._wrote_at, 1.0) * _BUDGET_BYTES), _BUDGET_BYTES)
        self._wrote_at = now
        chunks = self._logs.take(_EVERYTHING if self._is_hurried else self._budget)
        try:
            store(self._connection, chunks, self._removed)
        except BaseException:
            self._is_failing = True
            raise
        self._is_failing = False
        self._budget = max(self._budget - sum(chunk.size for chunk in chunks), 0)
        self._removed = self._logs.taken(chunks)
        self._report()

    def _report(self) -> None:
        dropped, self._reported = self._logs.dropped - self._reported, self._logs.dropped
        if dropped:
            reason = f"{dropped} lines of logs of runs were dropped: the ledger did not take them in time"
            self._node.emit(Event(What.RUNNER_WARNING, node=self._node.node_id, reason=reason))
