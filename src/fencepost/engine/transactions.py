"""`run.transaction()`: the fence, the ledger and the run put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, cast

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from fencepost.core.runs import Ending
from fencepost.core.states import Move, RunState, next_state, outcome_of
from fencepost.engine.engines import engine_of
from fencepost.errors import FencepostError, LedgerUnavailable
from fencepost.fence.ledger_transaction import LedgerTransaction
from fencepost.fence.run_row import RunRow, Terms
from fencepost.ledger.dialects import Trouble
from fencepost.ledger.dialects.hot import Endings, hot_words
from fencepost.ledger.finishing import end_keyed

if TYPE_CHECKING:
    from fencepost.engine.context import RunContext
    from fencepost.engine.run import Run
    from fencepost.ledger.dialects import Cursor
    from fencepost.ledger.ledger import Ledger

REFUSED_WRITE = "refused write"
_TRY_AGAIN_AFTER_S = 0.2


@contextmanager
def transaction(
    run: Run, context: RunContext, source: Engine | Connection | None, *, final: bool
) -> Iterator[Connection]:
    """Begin, hand out the connection, and commit behind the fence."""
    # Whatever else changes the row while the transaction is open would end it under repeatable read.
    send_progress_again = run.hold_progress()
    try:
        with ExitStack() as open_until_the_end:
            yield _begun(open_until_the_end, run, context, lambda: _transaction(run, context, source, final=final))
        run.has_ended = run.has_ended or final
    finally:
        send_progress_again()


def _begun(stack: ExitStack, run: Run, context: RunContext, make: Callable[[], LedgerTransaction]) -> Connection:
    """Begin; while nobody knows whether the run is ours, or where its ledger is, one that can wait waits.

    Nothing has happened before a transaction has begun, so it can be begun again. It is the run's timeout that ends it.
    """
    while True:
        run.wait_while_suspended()
        try:
            return stack.enter_context(make())
        except (LedgerUnavailable, DBAPIError) as error:
            if run.policy.stops_in_doubt or not _is_away(context, error):
                raise
        context.runtime.sleep(_TRY_AGAIN_AFTER_S)


def _is_away(context: RunContext, error: LedgerUnavailable | DBAPIError) -> bool:
    """Whether the ledger could not be reached, as opposed to having said no."""
    if isinstance(error, LedgerUnavailable):
        return True
    return context.ledger().dialect.trouble_of(error.orig) in (Trouble.BROKEN, Trouble.LATE)


def _transaction(
    run: Run, context: RunContext, source: Engine | Connection | None, *, final: bool
) -> LedgerTransaction:
    ledger = context.ledger()
    terms = Terms(
        runtime=context.runtime,
        isolation=str(run.policy.isolation),
        ttl_s=context.ttl_s,
        # It does not wait: once begun, the row decides, and whoever waited would keep what it has locked from others.
        check_trust=run.raise_if_stopped,
        refused=lambda why: _record_refusal(run, ledger, why),
        finish=_finish(run, ledger) if final else None,
    )
    row = RunRow(ledger.tables.name("run"), run.id, run.token, run.label)
    return LedgerTransaction(source if source is not None else engine_of(ledger), row, terms)


def _record_refusal(run: Run, ledger: Ledger, why: str) -> None:
    """Put on record, in a transaction of its own, that a stale writer was turned away."""
    run.log.warning("a write of %s was refused: %s", run.label, why)
    with suppress(FencepostError):  # the log has it, and the writer is turned away in any case
        ledger.journal(
            what=REFUSED_WRITE,
            job=run.job,
            run_id=run.id,
            schedule=run.schedule,
            token=run.token,
            reason=why,
            detail={"node": run.node, "attempt": run.attempt},
        )


def _finish(run: Run, ledger: Ledger) -> Callable[[Connection], bool]:
    """Return what ends the run as succeeded, within somebody's transaction, and says whether it was ours."""
    hot = hot_words(ledger.desk("words"))
    keys = [] if run.exclusive_key is None else [run.exclusive_key]

    def finish(connection: Connection) -> bool:
        cursor = cast("Cursor", connection.connection.cursor())
        endings = Endings([_succeeded(run)])
        ended = end_keyed(cursor, hot, endings, keys)[1] if keys else hot.end(cursor, endings)[1]
        return ended == 1

    return finish


def _succeeded(run: Run) -> Ending:
    state, outcome = next_state(RunState.RUNNING, Move.SUCCEED), outcome_of(Move.SUCCEED)
    return Ending(
        run.id,
        run.attempt,
        run.token,
        state=state.value,
        outcome=None if outcome is None else outcome.value,
        took_us=run.took_us(),
        exclusive_key=run.exclusive_key,
    )
