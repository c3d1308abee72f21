"""The outcomes that no job reported: it was stopped, never started, or its process died. Pure."""

from __future__ import annotations

from fencepost.core.duration import spelled
from fencepost.core.runs import Claim, StopReason
from fencepost.core.runtime import ProgramExit
from fencepost.engine.runners.outcome import HOW_STOPPED, How, Outcome

_CODE = {StopReason.SHUTDOWN: "shutdown", StopReason.TIMED_OUT: "timeout"}
UNKNOWN_JOB = "unknown job"
_OUT_OF_MEMORY = " (out of memory?)"
_SIGKILL = 9


def returned(claim: Claim) -> Outcome:
    """Hand back a claim that never started."""
    return _outcome(claim, How.RETURNED)


def of_unknown_job(claim: Claim) -> Outcome:
    """Hand back a claim of a job that the worker's application does not have."""
    error = f"the code that workers load now has no job {claim.job!r}; others may have it"
    return _outcome(claim, How.RETURNED, error_code=UNKNOWN_JOB, error=error, reason=error)


def stopped_unstarted(claim: Claim, why: StopReason) -> Outcome:
    """Stop a claim that has not started. Where the right to run ends it is handed back: nothing was lost with it."""
    if why in (StopReason.SHUTDOWN, StopReason.LOST):
        return returned(claim)
    return _outcome(claim, HOW_STOPPED[why], error_code=_CODE.get(why), reason="stopped before it began")


def stopped(claim: Claim, why: StopReason, *, took_us: int, timeout_s: float | None = None) -> Outcome:
    """Stop a claim that was executing."""
    return _outcome(claim, HOW_STOPPED[why], took_us=took_us, error_code=_CODE.get(why), error=_told(why, timeout_s))


def crashed(claim: Claim, ended: ProgramExit, *, took_us: int) -> Outcome:
    """Tell of a process that died while it executed a claim."""
    if ended.forced is None:
        return _outcome(
            claim, How.CRASHED, took_us=took_us, error_code="crashed", error=f"its process {description(ended)}"
        )
    error = f"its process was ended: {ended.forced}"
    return _outcome(claim, How.CRASHED, took_us=took_us, error_code="ended", error=error)


def lost(claim: Claim, *, took_us: int = 0) -> Outcome:
    """Tell of a claim that was ended because the node lost its right to act."""
    return _outcome(claim, How.LOST, took_us=took_us)


def description(ended: ProgramExit) -> str:
    """Say how a process ended.

    >>> description(Ended(-9))
    'was killed by signal 9 (out of memory?)'
    """
    if ended.status >= 0:
        return f"exited with status {ended.status}"
    return f"was killed by signal {-ended.status}{_OUT_OF_MEMORY if ended.status == -_SIGKILL else ''}"


def _told(why: StopReason, timeout_s: float | None) -> str | None:
    match why:
        case StopReason.TIMED_OUT if timeout_s is not None:
            return f"stopped: it did not end within its timeout of {spelled(timeout_s)}"
        case StopReason.TIMED_OUT:
            return "stopped: it did not end within its timeout"
        case StopReason.SHUTDOWN:
            return "stopped: its node was shut down before it had ended"
    return None


def _outcome(
    claim: Claim,
    how: How,
    *,
    took_us: int = 0,
    error_code: str | None = None,
    error: str | None = None,
    reason: str | None = None,
) -> Outcome:
    return Outcome(
        claim.run_id,
        claim.attempt,
        claim.token,
        how,
        took_us=took_us,
        error_code=error_code,
        error=error,
        reason=reason,
    )
