"""Decides what happens to a run when an attempt ends: by the job's policy, in one place, for all runners.

=============  =========================================  ==================
attempt        the run is then                            outcome of the attempt
=============  =========================================  ==================
succeeded      succeeded                                  succeeded
failed, retry  queued again after its back-off, or dead   failed
given up       dead                                       failed
timed out      queued again after its back-off, or dead   timed_out
skipped        skipped                                    cancelled
cancelled      cancelled                                  cancelled
crashed        queued again, dead, or held for a person   lost
interrupted    the same, but not by the crash limit       interrupted
returned       queued again                               none: it never began
lost           left unchanged: the reaper decides
=============  =========================================  ==================

**Promises.** Every pair of run state and attempt outcome that is returned here is in the table of `core.states`. The
same arguments, including the random number, give the same ending.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from fencepost.core.duration import spelled
from fencepost.core.policy import Policy
from fencepost.core.retry import GiveUp, GiveUpLost, HoldForPerson, Rerun, after_failure, after_interruption, after_loss
from fencepost.core.runs import Claim, Ending
from fencepost.core.states import Move, RunState, next_state, outcome_of


class Ended(Protocol):
    """A runner's report on how an attempt ended."""

    @property
    def how(self) -> str: ...
    @property
    def took_us(self) -> int: ...
    @property
    def result(self) -> str | None: ...
    @property
    def error_code(self) -> str | None: ...
    @property
    def error(self) -> str | None: ...
    @property
    def trace(self) -> str | None: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def retry_after_us(self) -> int | None: ...


class Fate(NamedTuple):
    """What happens to a run, apart from the texts that are stored with its attempt."""

    state: str
    outcome: str | None
    delay_us: int = 0
    error_code: str | None = None  # set by the policy; overrides that of the attempt
    why: str | None = None
    is_held: bool = False  # waits for an operator


def ending_of(policy: Policy, claim: Claim, ended: Ended, *, random: float) -> Ending | None:
    """Return the ending that is written to the ledger; None if nothing is written.

    `claim` counts the failures and crashes before this attempt; `random` is in [0, 1).
    """
    if ended.how == "succeeded":  # the most frequent case, and there is nothing to decide
        fate = _SUCCEEDED
    elif ended.how == "lost":
        return None
    else:
        fate = _fate(policy, claim, ended, random)
    return Ending(
        claim.run_id,
        claim.attempt,
        claim.token,
        fate.state,
        fate.outcome,
        fate.delay_us,
        ended.took_us,
        fate.error_code or ended.error_code,
        ended.error or (fate.why if fate.error_code else None),
        ended.trace,
        ended.result,
        fate.why or ended.reason,
        claim.exclusive_key,
        claim.job,
    )


def fate_of_lost(decision: Rerun | GiveUpLost | HoldForPerson, *, is_cancel_requested: bool = False) -> Fate:
    """Return what happens to a run whose node or worker was lost, after its policy has decided (`after_loss`).

    A run that was being cancelled is cancelled, whatever its policy says about crashes.
    """
    if is_cancel_requested:
        return _fated(Move.LOSE_AND_CANCEL, why="its node or worker was lost while it was being cancelled")
    if isinstance(decision, GiveUpLost):
        return _fated(Move.LOSE_AND_FAIL, error_code=decision.code, why=decision.reason)
    if isinstance(decision, HoldForPerson):
        return _fated(Move.LOSE_AND_HOLD, error_code=decision.code, why=decision.reason, is_held=True)
    return _fated(Move.LOSE_AND_RERUN, why="its node or worker was lost; it runs again")


def _fated(
    move: Move, *, delay_us: int = 0, error_code: str | None = None, why: str | None = None, is_held: bool = False
) -> Fate:
    outcome = outcome_of(move)
    # Plain strings: drivers do not treat members of an enumeration as strings.
    state = next_state(RunState.RUNNING, move).value
    return Fate(state, outcome and outcome.value, delay_us, error_code, why, is_held)


_SUCCEEDED = _fated(Move.SUCCEED)
_SIMPLE = {
    "skipped": _fated(Move.SKIP),
    "cancelled": _fated(Move.CANCEL),
    "returned": _fated(Move.HAND_BACK),
    "given up": _fated(Move.FAIL, why="a retry would fail again"),
}


def _fate(policy: Policy, claim: Claim, ended: Ended, random: float) -> Fate:
    if ended.how in _SIMPLE:
        return _SIMPLE[ended.how]
    if ended.how == "crashed":
        return fate_of_lost(after_loss(policy, crashes=claim.crashes + 1))
    if ended.how == "interrupted":
        return _fate_of_interrupted(policy)
    if ended.how in ("failed", "retry", "timed out"):
        return _fate_of_failed(policy, claim, ended, random)
    raise ValueError(f"run {claim.run_id} of job {claim.job!r} ended in an unknown way: {ended.how!r}")


def _fate_of_interrupted(policy: Policy) -> Fate:
    decision = after_interruption(policy)
    if isinstance(decision, GiveUpLost):
        return _fated(Move.INTERRUPT_AND_FAIL, error_code=decision.code, why=decision.reason)
    if isinstance(decision, HoldForPerson):
        return _fated(Move.INTERRUPT_AND_HOLD, why=decision.reason, is_held=True)
    return _fated(Move.INTERRUPT_AND_RERUN, why="its node was shut down; it runs again")


def _fate_of_failed(policy: Policy, claim: Claim, ended: Ended, random: float) -> Fate:
    failed, is_timeout = claim.failures + 1, ended.how == "timed out"
    after_s = None if ended.retry_after_us is None else ended.retry_after_us / 1_000_000
    decision = after_failure(policy, attempts_failed=failed, random=random, retry_after_s=after_s)
    code = "timeout" if is_timeout else None
    took = f"took longer than its timeout of {spelled(policy.timeout_s)}; " if is_timeout else ""
    if isinstance(decision, GiveUp):
        move = Move.TIME_OUT_AND_FAIL if is_timeout else Move.FAIL
        return _fated(move, error_code=code, why=f"{took}{decision.reason}")
    move = Move.TIME_OUT_AND_RETRY if is_timeout else Move.RETRY
    why = f"{took}failure {failed} of {policy.retries + 1}; again in {spelled(round(decision.delay_s, 1))}"
    return _fated(move, delay_us=round(decision.delay_s * 1_000_000), error_code=code, why=why)
