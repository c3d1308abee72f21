"""Logs of runs that execute in this process, on threads or an event loop: their log records, and nothing else.

All runs of a process share its standard output, so what they print cannot be told apart. A log record is made on the
thread, or in the task, of its run, and the current run is known there.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from fencepost.core.runs import Claim
from fencepost.engine.logs.records import RecordCapture
from fencepost.engine.logs.run_logs import RunLogs
from fencepost.engine.run import current_run
from fencepost.engine.runners.outcome import Outcome


def logged(call: Callable[[Claim], Outcome], logs: RunLogs | None) -> Callable[[Claim], Outcome]:
    """Return `call`, which executes claims, such that the logs know when an attempt begins and ends."""
    if logs is None:
        return call
    begin, over = logs.begin, logs.over  # bound once: every run needs them

    def with_logs(claim: Claim) -> Outcome:
        begin(claim.run_id, claim.attempt)
        try:
            return call(claim)
        finally:
            over(claim.run_id, claim.attempt)

    return with_logs


def logged_async(
    call: Callable[[Claim], Awaitable[Outcome]], logs: RunLogs | None
) -> Callable[[Claim], Awaitable[Outcome]]:
    """Return the same for coroutines."""
    if logs is None:
        return call
    begin, over = logs.begin, logs.over

    async def with_logs(claim: Claim) -> Outcome:
        begin(claim.run_id, claim.attempt)
        try:
            return await call(claim)
        finally:
            over(claim.run_id, claim.attempt)

    return with_logs


def capture_for(logs: RunLogs) -> RecordCapture:
    """Return what captures the log records of runs in this process."""

    def wants(_: logging.LogRecord) -> bool:
        return current_run() is not None

    def keep(text: str) -> None:
        if (run := current_run()) is not None:
            logs.log(run.id, run.attempt, text)

    return RecordCapture(wants, keep)
