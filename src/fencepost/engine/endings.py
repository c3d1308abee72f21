"""From a runner's outcome to what the ledger is told, by the policy of its job; what is out of the ordinary is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fencepost.core.ending import ending_of
from fencepost.core.events import Event, What
from fencepost.core.misfire import Misfire
from fencepost.core.overlap import Decision, decide
from fencepost.core.runs import Claim, Ending
from fencepost.engine.jobs import Job
from fencepost.engine.runners.outcome import How, Outcome

_WORDS = {
    How.LOST: What.RUN_LOST,
    How.CRASHED: What.RUN_LOST,
    How.SKIPPED: What.RUN_SKIPPED,
    How.CANCELLED: What.RUN_CANCELLED,
    How.RETURNED: None,
}
_SUCCEEDED = str(How.SUCCEEDED)


class Endings:
    """Decides by the policies of these jobs."""

    def __init__(
        self,
        jobs: Mapping[str, Job],
        *,
        random: Callable[[], float],
        emit: Callable[[Event], None],
        on_end: Callable[[Claim, int], None] | None = None,
    ) -> None:
        """Make it; `on_end` is told of every attempt that ended, and how long it took."""
        self._policies = {name: job.policy for name, job in jobs.items()}
        self._random = random
        self._emit = emit
        self._on_end = on_end

    def overlap(self, job: str, *, is_tick: bool, attempts: int, key_is_taken: bool) -> Decision:
        """Decide about a run that is about to be claimed."""
        return decide(self._policies[job].overlap, is_tick=is_tick, attempts=attempts, key_is_taken=key_is_taken)

    def wanting_no_late_ticks(self) -> dict[str, tuple[int, str]]:
        """Return the jobs whose late ticks are not run, each with its grace and what to say of them."""
        misfires = {name: Misfire.of(each.misfire, grace=each.grace_s) for name, each in self._policies.items()}
        return {
            name: (each.grace_us, f"nobody began it in time; misfire is {each}")
            for name, each in misfires.items()
            if each.kind == "skip"
        }

    def of(self, claim: Claim, outcome: Outcome) -> Ending | None:
        """Say what becomes of the run; None if it is not ours to say."""
        if self._on_end is not None:
            self._on_end(claim, outcome.took_us)
        if outcome.how == _SUCCEEDED:
            return ending_of(self._policies[claim.job], claim, outcome, random=0.0)
        ending = ending_of(self._policies[claim.job], claim, outcome, random=self._random())
        self._tell(claim, outcome, ending)
        return ending

    def handed_back(self, claim: Claim) -> Ending | None:
        """Return a claim that was never started."""
        return self.of(claim, Outcome(claim.run_id, claim.attempt, claim.token, str(How.RETURNED)))

    def _tell(self, claim: Claim, outcome: Outcome, ending: Ending | None) -> None:
        is_dead = ending is not None and ending.state == "dead"
        what = What.RUN_DEAD if is_dead else _WORDS.get(How(outcome.how), What.RUN_FAILED)
        if what is not None:
            texts = (outcome.error_code, outcome.error or outcome.reason, ending.why if ending else None)
            self._emit(
                Event(
                    what,
                    job=claim.job,
                    run_id=claim.run_id,
                    attempt=claim.attempt,
                    token=claim.token,
                    reason="; ".join(dict.fromkeys(text for text in texts if text)),
                )
            )
