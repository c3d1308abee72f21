"""The contract of a runner: it executes what the exchange claimed, and says how it ended.

**Promises.** Every claim that was submitted comes back as exactly one `Outcome` (unless the process dies: then the
reaper answers for it). `submit` and `collect` never wait. `stop` ends the work where the runner can (a process is
killed, a task is cancelled); where it cannot (a thread), the outcome is reported all the same, the next call through
the run raises, and its writes are refused.

**Trust.** `trust(until)` says until when, on the monotonic clock, this node may act. A runner that can kill sees to it
that nothing it started outlives that moment, even if nobody speaks to it again. Runs of jobs whose effects are fenced
are the exception: they are *suspended*, not stopped, when trust runs out, until `resume`, `stop` or `lose` decides.

Batches cross every boundary: what is claimed together is submitted together and, if it ends together, collected
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
        """Begin; `on_outcome` is called, from any thread and perhaps too often, when there is something to collect."""
        ...

    def room(self) -> int:
        """How many more claims it would take now: free slots, and a little ahead where runs are short."""
        ...

    def submit(self, claims: Sequence[Claim]) -> None:
        """Take these; at most `room()` of them."""
        ...

    def collect(self) -> list[Outcome]:
        """Return what ended since the last call."""
        ...

    def running(self) -> int:
        """How many claims it has, started or not."""
        ...

    def stop(self, run_id: int, token: int, why: StopReason) -> None:
        """Stop one run; its outcome follows. One it does not have is ignored."""
        ...

    def trust(self, until: float) -> None:
        """Extend (never shorten) what the node may trust, a monotonic reading."""
        ...

    def lose(self) -> None:
        """Trust is gone: stop everything now. Outcomes are `LOST`, and are not reported to the ledger.

        Claims that had not begun are handed back: nothing was lost with them.
        """
        ...

    def suspend(self) -> list[Claim]:
        """Trust ran out, and nobody knows more: keep up the fenced runs that have begun, and stop all else as `lose`.

        Returns those that it keeps, perhaps none. They stay suspended until they are resumed or stopped, whatever is
        trusted meanwhile.
        """
        ...

    def resume(self, runs: Collection[tuple[int, int]]) -> None:
        """Let these (run and token) go on: they are still ours. Those it does not have are ignored."""
        ...

    def take_back(self) -> None:
        """Hand back (as `RETURNED`) every claim that has not started."""
        ...

    def close(self, grace_s: float) -> None:
        """Take nothing more, hand back what has not started, give the rest `grace_s` to end, then stop it."""
        ...
