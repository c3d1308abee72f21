"""From a claim to its outcome: the call of the job's function, and how its result or error becomes an outcome.

Every runner that calls functions uses it, in this process or in a worker. It is on the path of every run, so it does
only what the run needs.

**Promises.** There is an outcome whatever the function raises, except for `KeyboardInterrupt`, which is meant for the
process, and the cancellation of a task, whose reason the runner knows. The texts of an outcome are limited in length
and show neither passwords nor values of `Secret` parameters. A run that ended itself in a transaction has succeeded,
whatever the function did afterwards.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fencepost.core.report import SUCCEEDED, AttemptReport, report_of_error, report_of_result
from fencepost.core.runs import Claim, StopReason
from fencepost.core.texts import shown
from fencepost.engine.resolving import resolved
from fencepost.engine.run import Run, attempt_of, current
from fencepost.engine.runners.outcome import HOW_STOPPED, How, Outcome
from fencepost.errors import LeaseLost, Stopped

if TYPE_CHECKING:
    from fencepost.engine.context import RunContext
    from fencepost.engine.jobs import Job

_SUCCEEDED = SUCCEEDED.how


def invoke(job: Job, claim: Claim, context: RunContext) -> Outcome:
    """Call a job's function for a claim, and return the outcome."""
    run = Run(job, claim, context)
    attempt = attempt_of(run)
    before = current.set(run)
    try:
        signature = job.signature
        if signature.secrets:
            arguments = signature.bind(json.loads(claim.params), run)
            result = job.function(**resolved(signature, arguments, job.secrets))
        elif claim.params == "{}" and signature.run_name is None:
            result = job.function()
        else:
            result = job.function(**signature.bind(json.loads(claim.params), run))
        if result is None and not attempt.shows_progress:
            return Outcome(claim.run_id, claim.attempt, claim.token, _SUCCEEDED, attempt.took_us())
        return _returned(run, result, attempt.took_us())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - any error ends this run and nothing else
        return _raised(run, error, attempt.took_us())
    finally:
        current.reset(before)


async def invoke_async(job: Job, claim: Claim, context: RunContext) -> Outcome:
    """Await a job's coroutine for a claim, in its own task, and return the outcome."""
    from asyncio import CancelledError  # noqa: PLC0415 - takes 30 ms, which programs without coroutines need not spend

    run = Run(job, claim, context)
    attempt = attempt_of(run)
    current.set(run)  # not reset: the context of a task ends with it
    try:
        arguments = job.signature.bind(json.loads(claim.params), run)
        if job.signature.secrets:
            arguments = resolved(job.signature, arguments, job.secrets)
        result = await job.function(**arguments)
        return _returned(run, result, attempt.took_us())
    except (KeyboardInterrupt, CancelledError):
        raise
    except BaseException as error:  # noqa: BLE001 - as above
        return _raised(run, error, attempt.took_us())


def _returned(run: Run, result: object, took_us: int) -> Outcome:
    attempt_of(run).settle()
    return _outcome(run, report_of_result(result), took_us)


def _raised(run: Run, error: BaseException, took_us: int) -> Outcome:
    attempt = attempt_of(run)
    attempt.settle()
    if attempt.has_ended:
        run.log.warning("%s had already succeeded, then raised %s", attempt.label, shown(error))
        return _outcome(run, SUCCEEDED, took_us)
    return _outcome(run, _report(run, error), took_us)


def _report(run: Run, error: BaseException) -> AttemptReport:
    match error:
        case Stopped():
            return AttemptReport(HOW_STOPPED[StopReason(error.reason)], reason=error.reason)
        case LeaseLost() if error.token == run.token:
            return AttemptReport(How.LOST, reason=error.reason)
    return report_of_error(error)


def _outcome(run: Run, report: AttemptReport, took_us: int) -> Outcome:
    how, result, error_code, error, trace, reason, retry_after_us = report
    return Outcome(
        run.id, run.attempt, run.token, str(how), took_us, result, error_code, error, trace, reason, retry_after_us
    )
