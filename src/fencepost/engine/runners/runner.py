"""The contract of a runner: it executes the runs that the exchange claimed, and reports their outcomes.

**Promises.** Every submitted claim produces exactly one `Outcome`, unless the process dies; then the reaper ends the
run. `submit` and `collect` never wait. `stop` ends the run where the runner can: a process is killed, a task is
cancelled. A thread cannot be ended: its outcome is reported anyway, the next call that it makes through the run
raises, and its writes are refused.

**Trust.** `trust(until)` sets the time, on the monotonic clock, until which this node may act. A runner that can kill
ensures that nothing it started outlives that time, even if no further call is made. Runs of jobs whose effects are
fenced are the exception: when the trust ends they are *suspended*, not stopped, until `resume`, `stop` or `lose` is
called.

All calls take batches: runs that are claimed together are submitted together and, if they end together, collected
together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from fencepost.core.runs import Claim, StopReason
from fencepost.engine.runners.outcome import Outcome


class Runner(Protocol):
    """Executes claimed runs."""

    def start(self, on_outcome: Callable[[], None]) -> None:
        """Begin. `on_outcome` is called, from any thread and perhaps too often, when there are outcomes to collect."""
        ...

    def room(self) -> int:
        """Return how many more claims the runner would take now: its free slots, and a few more if runs are short."""
        ...

    def submit(self, claims: Sequence[Claim]) -> None:
        """Take these claims, at most `room()` of them."""
        ...

    def collect(self) -> list[Outcome]:
        """Return the outcomes since the last call."""
        ...

    def running(self) -> int:
        """Return how many claims the runner has, started or not."""
        ...

    def stop(self, run_id: int, token: int, why: StopReason) -> None:
        """Stop one run. Its outcome follows. A run that the runner does not have is ignored."""
        ...

    def trust(self, until: float) -> None:
        """Extend (never shorten) the time until which the node may act, a monotonic time."""
        ...

    def lose(self) -> None:
        """Stop all runs now, because the trust has ended. Their outcomes are `LOST` and are not written to the ledger.

        Claims that had not started are returned: they did nothing that could be lost.
        """
        ...

    def suspend(self) -> list[Claim]:
        """Suspend the fenced runs that have started, and stop all others as `lose` does.

        Called when the trust has ended and it is unknown whether the runs are still ours. Returns the suspended runs,
        perhaps none. They stay suspended until they are resumed or stopped, even if the trust is extended meanwhile.
        """
        ...

    def resume(self, runs: Collection[tuple[int, int]]) -> None:
        """Let these runs (run and token) continue: they are still ours. Runs that it does not have are ignored."""
        ...

    def take_back(self) -> None:
        """Return (as `RETURNED`) every claim that has not started."""
        ...

    def close(self, grace_s: float) -> None:
        """Take no more claims, return those that have not started, give the rest `grace_s` to end, then stop it."""
        ...
