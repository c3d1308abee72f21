"""Whether a run may go on, as its runner knows it; `fencepost.engine.context.Standing` is the contract.

`NodeTrust` is the one of runners that execute in this process: threads and event loops. `BoardTrust` is the one
inside a worker process, where the supervisor writes and the run reads.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.core.runs import Claim, StopReason
from fencepost.engine.shared_page import SharedPage


class NodeTrust:
    """Trust in this process: until when the node may act, and which runs were told to stop.

    Safe between threads without a lock: each call reads or changes one thing.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Begin without trust."""
        self._monotonic = monotonic
        self._stopped: dict[tuple[int, int], StopReason] = {}
        self.until = float("-inf")

    def extend(self, until: float) -> None:
        """Trust longer, never shorter."""
        self.until = max(self.until, until)

    def lose(self) -> None:
        """Trust no more, until extended again."""
        self.until = float("-inf")

    def stop(self, run_id: int, token: int, why: StopReason) -> None:
        """Tell one run to stop. The first reason stands."""
        self._stopped.setdefault((run_id, token), why)

    def forget(self, run_id: int, token: int) -> None:
        """Drop what was said of a run that has ended."""
        self._stopped.pop((run_id, token), None)

    def is_trusted(self, now: float) -> bool:
        """Whether the node may act at `now`."""
        return now < self.until

    @property
    def lost(self) -> bool:
        """Whether the node may not act now."""
        return not self.is_trusted(self._monotonic())

    def told(self, run_id: int, token: int) -> StopReason | None:
        """Return for what this run was told to stop, or None if it was not."""
        return self._stopped.get((run_id, token)) if self._stopped else None

    def stopped(self, run_id: int, token: int) -> StopReason | None:
        """Return why this run has to stop, or None while it may go on."""
        return self.told(run_id, token) or (StopReason.LOST if self.lost else None)


class BoardTrust:
    """Trust inside a worker process, read from its board. Only the claim that executes can have any.

    One of a job in `fenced` is suspended, not lost, when the node's trust has run out and nobody said more.
    """

    def __init__(self, board: SharedPage, monotonic: Callable[[], float]) -> None:
        """Read `board`; nothing executes yet."""
        self._board = board
        self._monotonic = monotonic
        self._serial = 0
        self._claim: Claim | None = None
        self.fenced: frozenset[str] = frozenset()

    def begin(self, serial: int, claim: Claim) -> None:
        """Note the claim that executes from now on: whoever still acts for an older one has lost."""
        self._serial, self._claim = serial, claim

    def is_trusted(self, now: float) -> bool:
        """Whether the node may act at `now`."""
        return self._board.is_trusted_at(now)

    @property
    def lost(self) -> bool:
        """Whether the claim that executes may not go on."""
        return self.reason is not None

    @property
    def reason(self) -> StopReason | None:
        """Why the claim that executes has to stop, or None."""
        if (why := self._board.stopped(self._serial)) is not None:
            return why
        return StopReason.LOST if self._is_in_doubt and not self._is_fenced else None

    @property
    def _is_in_doubt(self) -> bool:
        return not self.is_trusted(self._monotonic())

    @property
    def _is_fenced(self) -> bool:
        return self._claim is not None and self._claim.job in self.fenced

    def stopped(self, run_id: int, token: int) -> StopReason | None:
        """Return why this run has to stop, or None while it may go on."""
        claim = self._claim
        if claim is None or claim.run_id != run_id or claim.token != token:
            return StopReason.LOST
        return self.reason

    def suspended(self, run_id: int, token: int) -> bool:
        """Whether nobody knows if this run may go on, and it need not stop."""
        return self.stopped(run_id, token) is None and self._is_in_doubt
