"""Waiting, while the right to run lasts: between tries, and for databases that are away."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.bulk.checkpoint import CheckpointMoved
from fencepost.bulk.failures import MENDED_BY_TIME, verdict_of
from fencepost.core.texts import told
from fencepost.engine.run import attempt_of
from fencepost.errors import LedgerUnavailable

if TYPE_CHECKING:
    from fencepost.engine.run import Run

T = TypeVar("T")

TRIES = 8  # about five seconds, all pauses together
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 5.0
_LEDGER_AGAIN_AFTER_S = 0.5
_LOOK_EVERY_S = 1.0


def pause(run: Run, pause_s: float) -> None:
    """Wait, but not beyond the end of the run's right to run."""
    runtime = attempt_of(run).context.runtime
    until = runtime.monotonic() + pause_s
    while (left_s := until - runtime.monotonic()) > 0:
        run.check()
        runtime.sleep(min(left_s, _LOOK_EVERY_S))


def pause_before(run: Run, tries: int) -> None:
    """Wait before another try, after so many: longer each time, and not all at once."""
    longest_s = min(_SHORTEST_PAUSE_S * 2**tries, _LONGEST_PAUSE_S)
    pause(run, longest_s * (0.5 + attempt_of(run).context.runtime.random() / 2))


def steadily(run: Run, work: Callable[[Any], T], target: Any) -> T:
    """Do `work` in a fenced transaction, again if the connection breaks: so it is work that may be done twice."""
    return patiently(run, lambda: run.in_transaction(work, target))


def patiently(run: Run, work: Callable[[], T]) -> T:
    """Do `work`, again while a database breaks off: so it is work that may be done twice."""
    for tries in range(1, TRIES):
        try:
            return work()
        except Exception as error:
            if verdict_of(error) not in MENDED_BY_TIME or isinstance(error, CheckpointMoved):
                raise
            run.log.info("%s tries again what a database did not answer: %s", attempt_of(run).label, told(error))
        pause_before(run, tries)
    return work()


def asked(run: Run, question: Callable[[], T]) -> T:
    """Return what the ledger answers, however long that takes; `question` may be asked twice."""
    while True:
        try:
            return question()
        except LedgerUnavailable as error:
            run.log.info("%s waits for the ledger: %s", attempt_of(run).label, error)
        pause(run, _LEDGER_AGAIN_AFTER_S)
