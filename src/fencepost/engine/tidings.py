"""Reports runs that go as they should: started, succeeded, handed back.

There are thousands of these a second where there is one failure a day, and often nobody listens. So whether somebody
does is asked once per batch, and where nobody does nothing is built.

**Promises.** `run succeeded` is reported after the ledger has taken it, and not where the ledger has refused it.

**Not promised.** That a run which was started has begun to execute: it was given to a runner, which may still hand it
back (`run returned`). `started_at` in the ledger says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from fencepost.core.events import Event, What
from fencepost.core.runs import Claim, Ending
from fencepost.engine.runners.outcome import How, Outcome

_ENDS = {str(How.SUCCEEDED): What.RUN_SUCCEEDED, str(How.RETURNED): What.RUN_RETURNED}


def nobody(_: What) -> bool:
    """Want to hear of nothing."""
    return False


class Tidings:
    """What an exchange reports of runs that need nobody's attention."""

    def __init__(self, emit: Callable[[Event], None], wants: Callable[[What], bool] = nobody) -> None:
        """Report by `emit` whatever is wanted."""
        self._emit = emit
        self._wants = wants
        self._ended: dict[tuple[int, int], Event] = {}

    def is_wanted(self) -> bool:
        """Whether somebody wants to hear how runs ended."""
        return self._wants(What.RUN_SUCCEEDED)

    def started(self, claims: Sequence[Claim]) -> None:
        """Report runs that were given to a runner."""
        if self._wants(What.RUN_STARTED):
            for claim in claims:
                self._emit(_event(What.RUN_STARTED, claim))

    def ended(self, claim: Claim, outcome: Outcome) -> None:
        """Note how a run ended, if that is ours to report."""
        if (what := _ENDS.get(outcome.how)) is not None:
            took_s = outcome.took_us / 1_000_000 if what is What.RUN_SUCCEEDED else None
            self._ended[claim.run_id, claim.token] = _event(what, claim, took_s)

    def finished(self, batch: Sequence[Ending], refused: Collection[int]) -> None:
        """Report what the ledger has taken."""
        if not self._ended:
            return
        for ending in batch:
            event = self._ended.pop((ending.run_id, ending.token), None)
            if event is not None and ending.run_id not in refused:
                self._emit(event)


def _event(what: What, claim: Claim, took_s: float | None = None) -> Event:
    return Event(what, job=claim.job, run_id=claim.run_id, attempt=claim.attempt, token=claim.token, took_s=took_s)
