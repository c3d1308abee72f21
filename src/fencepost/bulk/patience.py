"""Waiting between retries and for unavailable databases, for as long as the run may continue."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.bulk.checkpoint import CheckpointMoved
from fencepost.bulk.failures import MENDED_BY_TIME, verdict_of
from fencepost.core.texts import error_text
from fencepost.engine.run import attempt_of
from fencepost.errors import LedgerUnavailable

if TYPE_CHECKING:
    from fencepost.engine.run import Run

T = TypeVar("T")

TRIES = 8  # all pauses together take about five seconds
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 5.0  # doubled with each try
_LEDGER_AGAIN_AFTER_S = 0.5  # a partition loses nothing while it waits; the ledger is not asked more often
_LOOK_EVERY_S = 1.0  # how often a pause checks whether the run may continue


def pause(run: Run, pause_s: float) -> None:
    """Wait, but stop with an error when the run may not continue."""
    runtime = attempt_of(run).context.runtime
    until = runtime.monotonic() + pause_s
    while (left_s := until - runtime.monotonic()) > 0:
        run.check()
        runtime.sleep(min(left_s, _LOOK_EVERY_S))


def pause_before(run: Run, tries: int) -> None:
    """Wait before a retry: longer after more tries, and with jitter."""
    longest_s = min(_SHORTEST_PAUSE_S * 2**tries, _LONGEST_PAUSE_S)
    pause(run, longest_s * (0.5 + attempt_of(run).context.runtime.random() / 2))


def steadily(run: Run, work: Callable[[Any], T], target: Any) -> T:
    """Do `work` in a fenced transaction, and retry if the connection breaks. So the work may be done twice."""
    return patiently(run, lambda: run.in_transaction(work, target))


def patiently(run: Run, work: Callable[[], T]) -> T:
    """Do `work`, and retry while a database is not available. So the work may be done twice."""
    for tries in range(1, TRIES):
        try:
            return work()
        except Exception as error:
            if verdict_of(error) not in MENDED_BY_TIME or isinstance(error, CheckpointMoved):
                raise
            run.log.info("%s retries after an error of a database: %s", attempt_of(run).label, error_text(error))
        pause_before(run, tries)
    return work()


def asked(run: Run, question: Callable[[], T]) -> T:
    """Return the ledger's answer, and wait while the ledger is not available. `question` may be called twice."""
    while True:
        try:
            return question()
        except LedgerUnavailable as error:
            run.log.info("%s waits for the ledger: %s", attempt_of(run).label, error)
        pause(run, _LEDGER_AGAIN_AFTER_S)
