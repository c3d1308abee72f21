"""One attempt at a run, as the engine sees it. What its job sees of it is `fencepost.engine.run.Run`.

**Promises.** `raise_if_stopped` never waits: it raises `LeaseLost` when the right to run is gone, `Stopped` when
somebody cancelled the run or its time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress

from fencepost.core.fencing import FencingToken
from fencepost.core.policy import Policy
from fencepost.core.runs import Claim, StopReason
from fencepost.engine.context import RunContext
from fencepost.engine.jobs import Job
from fencepost.engine.progress import RunProgress
from fencepost.errors import LeaseLost, LedgerUnavailable, Stopped
from fencepost.fence.writer import TablePlace, Writer

_LOOK_EVERY_S = 0.05  # while it is suspended; in a worker process there is nothing to wait for but a word of memory


class Attempt:
    """What is known of a run while it executes, and what the engine and bulk work do with it."""

    __slots__ = (
        *("_progress", "_was_mixed", "claim", "context", "found_at", "has_ended", "job", "started_at"),
        "was_told_of_keys",
    )

    def __init__(self, job: Job, claim: Claim, context: RunContext) -> None:
        self.job = job
        self.claim = claim
        self.context = context  # its surroundings
        self.started_at = context.runtime.monotonic()
        self.found_at: dict[Hashable, float] = {}  # where its fence was found to be its own, and when
        self.has_ended = False  # within a transaction of its own: whatever it does now, it has succeeded
        self.was_told_of_keys = False  # see `fencepost.engine.keying`
        self._was_mixed = False  # whether older versions took part when it last came to a fence
        self._progress: RunProgress | None = None

    @property
    def policy(self) -> Policy:
        """How its job is run."""
        return self.job.policy

    @property
    def label(self) -> str:
        """What to call it in a sentence."""
        return f"run {self.claim.run_id} of {self.claim.job!r}"

    @property
    def fields(self) -> dict[str, object]:
        """What a log record of this run says of it."""
        claim = self.claim
        return {
            "job": claim.job,
            "run": claim.run_id,
            "attempt": claim.attempt,
            "token": claim.token,
            "node": self.context.node,
        }

    def took_us(self) -> int:
        """How long it has been executing."""
        return int((self.context.runtime.monotonic() - self.started_at) * 1_000_000)

    # -- whether it may go on ----------------------------------------------------------------------------------------

    @property
    def is_lost(self) -> bool:
        """Whether the right to run is gone, as far as this process knows."""
        return self.context.standing.stopped(self.claim.run_id, self.claim.token) is StopReason.LOST

    def wait_while_suspended(self) -> None:
        """Wait until it is known that this run may go on; raise if it may not."""
        claim, context = self.claim, self.context
        self.raise_if_stopped()
        while context.standing.suspended(claim.run_id, claim.token):
            context.runtime.sleep(_LOOK_EVERY_S)
            self.raise_if_stopped()

    def raise_if_stopped(self) -> None:
        """Raise if the right to run is gone, or it was told to stop. Never waits."""
        why = self.context.standing.stopped(self.claim.run_id, self.claim.token)
        if why is StopReason.LOST:
            raise self._lost("this node is no longer trusted, or the run was taken over")
        if why is not None:
            raise Stopped(str(why))

    def raise_unless_ours(self) -> None:
        """Ask the ledger, and raise if the run is no longer ours."""
        if not self.context.is_ours(self.claim.run_id, self.claim.token):
            raise self._lost("the ledger has given it to somebody else, or ended it")

    def _lost(self, why: str) -> LeaseLost:
        return LeaseLost(self.label, self.claim.token, why)

    # -- what it shows at a fence ------------------------------------------------------------------------------------

    @property
    def grant_id(self) -> str:
        """Which attempt it is, as fences keep it beside the token."""
        return f"{self.context.node}/{self.claim.run_id}/{self.claim.attempt}"

    def shown(self) -> tuple[FencingToken, str | None]:
        """Return what it shows at a fence, and the key that older versions show there, while such take part."""
        claim, naming = self.claim, self.context.naming()
        key = claim.exclusive_key
        if naming.is_mixed is not self._was_mixed:
            self._was_mixed = naming.is_mixed
            self.found_at.clear()  # what was raised and found there is not all that has to be
        # With no key to exclude others by, it is in order with nobody.
        named = naming.run_fence(claim.run_id) if key is None else naming.fence(key)
        shown = FencingToken(named, claim.token, self.grant_id, self.context.node)
        return shown, (key or f"run:{claim.run_id}") if naming.is_mixed else None

    def writer(self) -> Writer:
        """Return on whose behalf, and to which tables, effects are written."""
        tables, claim = self.context.ledger().tables, self.claim
        place = TablePlace(tables.prefix, tables.schema)
        return Writer(place, claim.job, claim.run_id, claim.token, self.context.runtime.wall_us)

    # -- progress ----------------------------------------------------------------------------------------------------

    @property
    def shows_progress(self) -> bool:
        """Whether there may be progress that is not sent yet."""
        return self._progress is not None

    def progress(self) -> RunProgress:
        """Return the way of progress to the ledger, which sends about twice a second."""
        if self._progress is None:
            self._progress = RunProgress(self.context, self.claim.run_id, self.claim.token)
        return self._progress

    def show(self, fraction: float, note: str | None = None) -> None:
        """Show how far it is, now, and wait for the ledger; one that does not answer costs this value alone.

        For work that opens one transaction after the other, between which `progress` would hardly find a moment.
        """
        with suppress(LedgerUnavailable):
            self.context.show(self.claim.run_id, self.claim.token, min(max(fraction, 0.0), 1.0), note)

    def settle(self) -> None:
        """Send what progress is still on its way. For whoever invokes the function, when it has returned."""
        if self._progress is not None:
            self._progress.settle()

    def hold_progress(self) -> Callable[[], None]:
        """Send no progress until the returned function is called: a transaction that compares the row is open."""
        return self.progress().hold()
