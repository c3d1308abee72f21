"""From a runner's outcome to the ending in the ledger, by the policy of the job. Failures are emitted as events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fencepost.core.ending import ending_of
from fencepost.core.events import Event, What
from fencepost.core.misfire import Misfire
from fencepost.core.overlap import Decision, decide
from fencepost.core.runs import Claim, Ending
from fencepost.engine.jobs import Job
from fencepost.engine.runners.outcome import How, Outcome
from fencepost.ledger.finishing import Outlasting

_WORDS = {
    How.LOST: What.RUN_LOST,
    How.CRASHED: What.RUN_LOST,
    How.INTERRUPTED: What.RUN_INTERRUPTED,
    How.SKIPPED: What.RUN_SKIPPED,
    How.CANCELLED: What.RUN_CANCELLED,
    How.RETURNED: None,
}
_SUCCEEDED = str(How.SUCCEEDED)


class JobPolicies:
    """Decides by the policies of these jobs."""

    def __init__(
        self,
        jobs: Mapping[str, Job],
        *,
        random: Callable[[], float],
        emit: Callable[[Event], None],
    ) -> None:
        self._policies = {name: job.policy for name, job in jobs.items()}
        self._random = random
        self._emit = emit
        self.on_end: Callable[[Claim, int], None] | None = None  # called with each attempt that ended and its duration

    def overlap(self, job: str, *, is_tick: bool, attempts: int, key_is_taken: bool) -> Decision:
        """Decide about a run that is about to be claimed."""
        return decide(self._policies[job].overlap, is_tick=is_tick, attempts=attempts, key_is_taken=key_is_taken)

    def formers(self) -> dict[str, tuple[str, ...]]:
        """Return the former names of the jobs that were renamed."""
        return {name: policy.formerly for name, policy in self._policies.items() if policy.formerly}

    def misfires(self) -> dict[str, Misfire]:
        """Return the misfire policy of each job."""
        return {name: Misfire.of(each.misfire, grace=each.grace_s) for name, each in self._policies.items()}

    def of(self, claim: Claim, outcome: Outcome) -> Ending | None:
        """Return the ending of a run, or None if this node must not write one."""
        if self.on_end is not None:
            self.on_end(claim, outcome.took_us)
        if outcome.how == _SUCCEEDED:
            return ending_of(self._policies[claim.job], claim, outcome, random=0.0)
        ending = ending_of(self._policies[claim.job], claim, outcome, random=self._random())
        self._emit_outcome(claim, outcome, ending)
        return ending

    def handed_back(self, claim: Claim) -> Ending | None:
        """Return the ending of a claim that was never started."""
        return self.of(claim, Outcome(claim.run_id, claim.attempt, claim.token, str(How.RETURNED)))

    def warn_outlasting(self, runs: Sequence[Outlasting]) -> None:
        """Warn about runs that every shutdown interrupts, so that they never end."""
        for run_id, job, times in runs:
            reason = (
                f"shutdowns have interrupted it {times} times in a row: it takes longer than the grace period of its"
                " nodes. Make it shorter, let it continue where it was interrupted (as bulk jobs do), or start nodes"
                " with a longer --grace"
            )
            self._emit(Event(What.JOB_OUTLASTS_GRACE, job=job, run_id=run_id, reason=reason))

    def _emit_outcome(self, claim: Claim, outcome: Outcome, ending: Ending | None) -> None:
        is_dead = ending is not None and ending.state == "dead"
        what = What.RUN_DEAD if is_dead else _WORDS.get(How(outcome.how), What.RUN_FAILED)
        if what is not None:
            error = ": ".join(filter(None, (outcome.error_code, outcome.error or outcome.reason)))
            texts = (error, ending.why if ending else None)
            self._emit(
                Event(
                    what,
                    job=claim.job,
                    run_id=claim.run_id,
                    attempt=claim.attempt,
                    token=claim.token,
                    reason="; ".join(dict.fromkeys(text for text in texts if text)),
                    trace=outcome.trace,
                )
            )
