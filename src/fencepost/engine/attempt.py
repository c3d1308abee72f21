"""One attempt at a run, as the engine sees it. The job sees it as `fencepost.engine.run.Run`.

**Promises.** `raise_if_stopped` never waits: it raises `LeaseLost` when the lease is lost, and `Stopped` when the run
was cancelled or has exceeded its timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress

from fencepost.core.fencing import FencingToken
from fencepost.core.masked_values import HeldValue
from fencepost.core.policy import Policy
from fencepost.core.runs import Claim, StopReason
from fencepost.engine.context import RunContext
from fencepost.engine.jobs import Job
from fencepost.engine.progress import RunProgress
from fencepost.errors import LeaseLost, LedgerUnavailable, Stopped
from fencepost.fence.writer import TablePlace, Writer

_LOOK_EVERY_S = 0.05  # while it is suspended; polled because a worker process only has a word of shared memory to read


class Attempt:
    """The state of a run while it executes, and what the engine and bulk jobs do with it."""

    __slots__ = (
        *("_progress", "_was_mixed", "claim", "context", "found_at", "has_ended", "held", "job", "started_at"),
        "was_warned_of_keys",
    )

    def __init__(self, job: Job, claim: Claim, context: RunContext) -> None:
        self.job = job
        self.claim = claim
        self.context = context
        self.started_at = context.runtime.monotonic()
        self.found_at: dict[Hashable, float] = {}  # by database: when its fence was last found to be its own
        self.has_ended = False  # it ended itself in a transaction: it has succeeded, whatever it does now
        self.held: tuple[HeldValue, ...] = ()  # the values of its secrets
        self.was_warned_of_keys = False  # see `fencepost.engine.keying`
        self._was_mixed = False  # whether nodes of older versions were alive when it last used a fence
        self._progress: RunProgress | None = None

    @property
    def policy(self) -> Policy:
        """The policy of its job."""
        return self.job.policy

    @property
    def label(self) -> str:
        """The name of the run in messages."""
        return f"run {self.claim.run_id} of {self.claim.job!r}"

    @property
    def fields(self) -> dict[str, object]:
        """The fields that identify this run in log records."""
        claim = self.claim
        return {
            "job": claim.job,
            "run": claim.run_id,
            "attempt": claim.attempt,
            "token": claim.token,
            "node": self.context.node,
        }

    def took_us(self) -> int:
        """Return how long it has been executing."""
        return int((self.context.runtime.monotonic() - self.started_at) * 1_000_000)

    # -- whether it may continue -------------------------------------------------------------------------------------

    @property
    def is_lost(self) -> bool:
        """Whether the lease is lost, as far as this process knows."""
        return self.context.standing.stopped(self.claim.run_id, self.claim.token) is StopReason.LOST

    def wait_while_suspended(self) -> None:
        """Wait until it is known that this run may continue; raise if it may not."""
        claim, context = self.claim, self.context
        self.raise_if_stopped()
        while context.standing.suspended(claim.run_id, claim.token):
            context.runtime.sleep(_LOOK_EVERY_S)
            self.raise_if_stopped()

    def raise_if_stopped(self) -> None:
        """Raise if the lease is lost or the run was asked to stop. Never waits."""
        why = self.context.standing.stopped(self.claim.run_id, self.claim.token)
        if why is StopReason.LOST:
            raise self._lost("this node is no longer trusted, or the run was taken over")
        if why is not None:
            raise Stopped(str(why))

    def raise_unless_ours(self) -> None:
        """Ask the ledger, and raise if the run is no longer ours."""
        if not self.context.is_ours(self.claim.run_id, self.claim.token):
            raise self._lost("the ledger has given it to another node, or ended it")

    def _lost(self, why: str) -> LeaseLost:
        return LeaseLost(self.label, self.claim.token, why)

    # -- fences ------------------------------------------------------------------------------------------------------

    @property
    def grant_id(self) -> str:
        """The id of this attempt, which fences store beside the token."""
        return f"{self.context.node}/{self.claim.run_id}/{self.claim.attempt}"

    def shown(self) -> tuple[FencingToken, str | None]:
        """Return its token for a fence, and the key that older versions use there, if such nodes are alive."""
        claim, naming = self.claim, self.context.naming()
        key = claim.exclusive_key
        if naming.is_mixed is not self._was_mixed:
            self._was_mixed = naming.is_mixed
            self.found_at.clear()  # the fence rows that were checked are no longer all that have to be
        # Without an exclusive key, the run is ordered with no other run.
        named = naming.run_fence(claim.run_id) if key is None else naming.fence(key)
        shown = FencingToken(named, claim.token, self.grant_id, self.context.node)
        return shown, (key or f"run:{claim.run_id}") if naming.is_mixed else None

    def writer(self) -> Writer:
        """Return for which run, and to which tables, effects are written."""
        tables, claim = self.context.ledger().tables, self.claim
        place = TablePlace(tables.prefix, tables.schema)
        return Writer(place, claim.job, claim.run_id, claim.token, self.context.runtime.wall_us)

    # -- progress ----------------------------------------------------------------------------------------------------

    @property
    def shows_progress(self) -> bool:
        """Whether there may be progress that was not sent yet."""
        return self._progress is not None

    def progress(self) -> RunProgress:
        """Return the sender of progress, which writes to the ledger about twice a second."""
        if self._progress is None:
            self._progress = RunProgress(self.context, self.claim.run_id, self.claim.token)
        return self._progress

    def show(self, fraction: float, note: str | None = None) -> None:
        """Write the progress now, and wait for the ledger. If it does not answer, only this value is dropped.

        For code that opens one transaction after another, so that `progress` would rarely get to send.
        """
        with suppress(LedgerUnavailable):
            self.context.show(self.claim.run_id, self.claim.token, min(max(fraction, 0.0), 1.0), note)

    def settle(self) -> None:
        """Send progress that was not sent yet. Called when the function has returned."""
        if self._progress is not None:
            self._progress.settle()

    def hold_progress(self) -> Callable[[], None]:
        """Send no progress until the returned function is called: a transaction that compares the row is open."""
        return self.progress().hold()
