"""Noticing a forgotten key: transactions of jobs that rely on keys alone (``effects="idempotent"``).

Such a job takes no lock, and its runs may overlap. A transaction that commits without one of the means that make its
effects land once (`run.once`, `fencepost.idempotent`, `Sequence.advance`, `run.take`, or the run's own end) may then be
repeated by another run. That is allowed, since it may be harmless (an upsert), but the first such transaction of an
attempt is recorded in the log and in the journal. A transaction that only reads needs no `run.transaction`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from fencepost.core.keyed import watching
from fencepost.core.noted import Noted
from fencepost.engine.run import Run, attempt_of
from fencepost.errors import FencepostError
from fencepost.ledger.journal import journal

if TYPE_CHECKING:
    from fencepost.engine.attempt import Attempt

T = TypeVar("T")

_WHY = (
    "a transaction was committed in which nothing lands once by a key, though its job is declared idempotent: another "
    "run may repeat it; use run.once, or declare the job otherwise"
)


@contextmanager
def noticing_keys(run: Run, opened: AbstractContextManager[T]) -> Iterator[T]:
    """Enter `opened`, a transaction of `run`, and warn once per attempt if it commits without a key."""
    with opened as tx, watching(tx) as watch:
        yield tx
    attempt = attempt_of(run)
    if not watch.has_key and not attempt.was_warned_of_keys:
        attempt.was_warned_of_keys = True
        _warn(run, attempt)


def _warn(run: Run, attempt: Attempt) -> None:
    run.log.warning("%s: %s", attempt.label, _WHY)
    with suppress(FencepostError):  # the warning is in the log, and the effect is committed in any case
        journal(
            attempt.context.ledger(),
            what=Noted.UNKEYED_WRITE,
            job=run.job,
            run_id=run.id,
            schedule=run.schedule,
            token=run.token,
            reason=_WHY,
            detail={"node": run.node, "attempt": run.attempt},
        )
