"""The outcomes that are not reported by the job: it was stopped or never started, or its process died. Pure."""

from __future__ import annotations

from fencepost.core.duration import spelled
from fencepost.core.runs import Claim, StopReason
from fencepost.core.runtime import ProgramExit
from fencepost.engine.runners.outcome import HOW_STOPPED, How, Outcome

_CODE = {StopReason.SHUTDOWN: "shutdown", StopReason.TIMED_OUT: "timeout"}
UNKNOWN_JOB = "unknown job"
_OUT_OF_MEMORY = " (out of memory?)"
_SIGKILL = 9  # the signal with which the kernel kills a process when memory is used up


def returned(claim: Claim) -> Outcome:
    """Return the outcome of a claim that is returned because it never started."""
    return _outcome(claim, How.RETURNED)


def of_unknown_job(claim: Claim) -> Outcome:
    """Return the outcome of a claim that is returned because the worker's application does not have its job."""
    error = f"the code that workers load now has no job {claim.job!r}; other nodes may have it"
    return _outcome(claim, How.RETURNED, error_code=UNKNOWN_JOB, error=error, reason=error)


def stopped_unstarted(claim: Claim, why: StopReason) -> Outcome:
    """Return the outcome of a claim that is stopped before it started.

    At a shutdown or after a loss of the lease it is returned: it did nothing that could be lost.
    """
    if why in (StopReason.SHUTDOWN, StopReason.LOST):
        return returned(claim)
    return _outcome(claim, HOW_STOPPED[why], error_code=_CODE.get(why), reason="stopped before it started")


def stopped(claim: Claim, why: StopReason, *, took_us: int, timeout_s: float | None = None) -> Outcome:
    """Return the outcome of a claim that was stopped while it executed."""
    return _outcome(
        claim, HOW_STOPPED[why], took_us=took_us, error_code=_CODE.get(why), error=_error_text(why, timeout_s)
    )


def crashed(claim: Claim, ended: ProgramExit, *, took_us: int) -> Outcome:
    """Return the outcome of a claim whose process died while it executed it."""
    if ended.forced is None:
        return _outcome(
            claim, How.CRASHED, took_us=took_us, error_code="crashed", error=f"its process {description(ended)}"
        )
    error = f"its process was ended: {ended.forced}"
    return _outcome(claim, How.CRASHED, took_us=took_us, error_code="ended", error=error)


def lost(claim: Claim, *, took_us: int = 0) -> Outcome:
    """Return the outcome of a claim that was ended because the node's trust had ended."""
    return _outcome(claim, How.LOST, took_us=took_us)


def description(ended: ProgramExit) -> str:
    """Describe how a process ended.

    >>> description(ProgramExit(-9))
    'was killed by signal 9 (out of memory?)'
    """
    if ended.status >= 0:
        return f"exited with status {ended.status}"
    return f"was killed by signal {-ended.status}{_OUT_OF_MEMORY if ended.status == -_SIGKILL else ''}"


def _error_text(why: StopReason, timeout_s: float | None) -> str | None:
    match why:
        case StopReason.TIMED_OUT if timeout_s is not None:
            return f"stopped: it did not end within its timeout of {spelled(timeout_s)}"
        case StopReason.TIMED_OUT:
            return "stopped: it did not end within its timeout"
        case StopReason.SHUTDOWN:
            return "stopped: its node shut down before it had ended"
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
