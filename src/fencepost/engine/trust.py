"""Whether a run may continue, as far as its runner knows. `fencepost.engine.context.RunStanding` is the contract.

`NodeTrust` is for runners that execute in this process, on threads and event loops. `SharedPageTrust` is for a worker
process: the supervisor writes to the shared page, and the run reads it.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.core.runs import Claim, StopReason
from fencepost.engine.shared_page import SharedPage


class NodeTrust:
    """Trust in this process: until when the node may act, and which runs were asked to stop.

    Thread-safe without a lock: each call reads or changes a single value.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Begin without trust."""
        self._monotonic = monotonic
        self._stopped: dict[tuple[int, int], StopReason] = {}
        self.until = float("-inf")

    def extend(self, until: float) -> None:
        """Extend (never shorten) the trust."""
        self.until = max(self.until, until)

    def lose(self) -> None:
        """End the trust until it is extended again."""
        self.until = float("-inf")

    def stop(self, run_id: int, token: int, why: StopReason) -> None:
        """Ask one run to stop. The first reason stands."""
        self._stopped.setdefault((run_id, token), why)

    def forget(self, run_id: int, token: int) -> None:
        """Drop the stop reason of a run that has ended."""
        self._stopped.pop((run_id, token), None)

    def is_trusted(self, now: float) -> bool:
        """Whether the node may act at `now`."""
        return now < self.until

    @property
    def lost(self) -> bool:
        """Whether the node may not act now."""
        return not self.is_trusted(self._monotonic())

    def stop_reason(self, run_id: int, token: int) -> StopReason | None:
        """Return why this run was asked to stop, or None if it was not."""
        return self._stopped.get((run_id, token)) if self._stopped else None

    def stopped(self, run_id: int, token: int) -> StopReason | None:
        """Return why this run has to stop, or None while it may continue."""
        return self.stop_reason(run_id, token) or (StopReason.LOST if self.lost else None)


class SharedPageTrust:
    """Trust inside a worker process, read from its shared page. Only the claim that executes can be trusted.

    A claim of a job in `fenced` is suspended, not lost, when the node's trust has ended and no stop was requested.
    """

    def __init__(self, page: SharedPage, monotonic: Callable[[], float]) -> None:
        """Read `page`; no claim executes yet."""
        self._page = page
        self._monotonic = monotonic
        self._serial = 0
        self._claim: Claim | None = None
        self.fenced: frozenset[str] = frozenset()

    def begin(self, serial: int, claim: Claim) -> None:
        """Set the claim that executes from now on. Code that still acts for an older claim is no longer trusted."""
        self._serial, self._claim = serial, claim

    def is_trusted(self, now: float) -> bool:
        """Whether the node may act at `now`."""
        return self._page.is_trusted_at(now)

    @property
    def lost(self) -> bool:
        """Whether the claim that executes may not continue."""
        return self.reason is not None

    @property
    def reason(self) -> StopReason | None:
        """Why the claim that executes has to stop, or None."""
        if (why := self._page.stopped(self._serial)) is not None:
            return why
        return StopReason.LOST if self._is_in_doubt and not self._is_fenced else None

    @property
    def _is_in_doubt(self) -> bool:
        return not self.is_trusted(self._monotonic())

    @property
    def _is_fenced(self) -> bool:
        return self._claim is not None and self._claim.job in self.fenced

    def stopped(self, run_id: int, token: int) -> StopReason | None:
        """Return why this run has to stop, or None while it may continue."""
        claim = self._claim
        if claim is None or claim.run_id != run_id or claim.token != token:
            return StopReason.LOST
        return self.reason

    def suspended(self, run_id: int, token: int) -> bool:
        """Whether it is unknown if this run is still ours, and it need not stop."""
        return self.stopped(run_id, token) is None and self._is_in_doubt
