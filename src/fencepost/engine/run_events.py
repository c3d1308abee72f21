"""Events of runs without errors: started, succeeded, handed back.

There can be thousands of these per second, and often no observer wants them. So whether one does is checked once per
batch, and if none does, no event is made.

**Promises.** `run succeeded` is emitted after the ledger has accepted the outcome, and not if the ledger refused it.

**Not promised.** That a run which was started executes: it was submitted to a runner, which may still hand it back
(`run returned`). The same holds for `started_at` in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from fencepost.core.events import Event, What
from fencepost.core.runs import Claim, Ending
from fencepost.engine.runners.outcome import How, Outcome

_ENDS = {str(How.SUCCEEDED): What.RUN_SUCCEEDED, str(How.RETURNED): What.RUN_RETURNED}


def wants_none(_: What) -> bool:
    """Want no events."""
    return False


class RunEvents:
    """The events of an exchange about runs without errors."""

    def __init__(self, emit: Callable[[Event], None], wants: Callable[[What], bool] = wants_none) -> None:
        """Emit the events that `wants` selects."""
        self._emit = emit
        self._wants = wants
        self._ended: dict[tuple[int, int], Event] = {}

    def is_wanted(self) -> bool:
        """Whether an observer wants to know how runs ended."""
        return self._wants(What.RUN_SUCCEEDED)

    def started(self, claims: Sequence[Claim]) -> None:
        """Emit events for runs that were submitted to a runner."""
        if self._wants(What.RUN_STARTED):
            for claim in claims:
                self._emit(_event(What.RUN_STARTED, claim))

    def ended(self, claim: Claim, outcome: Outcome) -> None:
        """Remember the event of a run that succeeded or was handed back."""
        if (what := _ENDS.get(outcome.how)) is not None:
            took_s = outcome.took_us / 1_000_000 if what is What.RUN_SUCCEEDED else None
            self._ended[claim.run_id, claim.token] = _event(what, claim, took_s)

    def finished(self, batch: Sequence[Ending], refused: Collection[int]) -> None:
        """Emit the events of the endings that the ledger has accepted."""
        if not self._ended:
            return
        for ending in batch:
            event = self._ended.pop((ending.run_id, ending.token), None)
            if event is not None and ending.run_id not in refused:
                self._emit(event)


def _event(what: What, claim: Claim, took_s: float | None = None) -> Event:
    return Event(what, job=claim.job, run_id=claim.run_id, attempt=claim.attempt, token=claim.token, took_s=took_s)
