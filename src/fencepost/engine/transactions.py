"""`run.transaction()`: it combines the fence, the ledger and the run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.exc import DBAPIError

from fencepost.core.noted import Noted
from fencepost.core.policy import Isolation
from fencepost.core.runs import Ending
from fencepost.core.states import Move, RunState, next_state, outcome_of
from fencepost.core.texts import error_text
from fencepost.engine.engines import engine_of
from fencepost.engine.run import Run, attempt_of
from fencepost.engine.which_fence import fence_of, is_known_to_be_the_ledgers, run_row
from fencepost.errors import FencepostError, LedgerUnavailable, TransactionConflict
from fencepost.fence.fence_options import FenceOptions
from fencepost.fence.final_update import FinalUpdate
from fencepost.fence.run_row import Fence, FencedRun
from fencepost.fence.sources import source_of
from fencepost.fence.sources.source import Source
from fencepost.fence.transaction import FencedTransaction
from fencepost.ledger.callers import cursor_of
from fencepost.ledger.dialects.statements import EndingRows, statements_for
from fencepost.ledger.finishing import end_keyed
from fencepost.ledger.journal import journal
from fencepost.sql.held_files import hold, let_go
from fencepost.sql.troubles import REPEATABLE, SLOW, Trouble, trouble_of

if TYPE_CHECKING:
    from fencepost.engine.attempt import Attempt
    from fencepost.ledger.ledger import Ledger

T = TypeVar("T")

_TRY_AGAIN_AFTER_S = 0.2  # a suspended run goes on as soon as the session is renewed
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0  # doubled with each try, and drawn at random: conflicting runs part


class RunTransaction:
    """A context manager: entering it begins a transaction, leaving it checks the fence and commits."""

    __slots__ = ("_attempt", "_file", "_final", "_opened", "_run", "_send_progress_again", "_source")

    def __init__(self, run: Run, source: Any, *, final: bool) -> None:
        self._run = run
        self._attempt = attempt_of(run)
        self._source = source
        self._final = final
        self._opened: FencedTransaction | None = None
        self._file: str | None = None  # the ledger's file, while this transaction locks all others out
        self._send_progress_again: Callable[[], None] | None = None

    def __enter__(self) -> Any:
        # Any other change of the row while the transaction is open would abort it under repeatable read.
        self._send_progress_again = send_progress_again = self._attempt.hold_progress()
        try:
            self._opened, given = _begun(self._run, self._source, final=self._final)
        except BaseException:
            send_progress_again()
            raise
        self._hold_file()
        return given

    def end_with(self, change: FinalUpdate) -> None:
        """Make a change at the end of the block, together with the check of the fence."""
        if self._opened is None:
            raise RuntimeError("only inside the block of the transaction")
        self._opened.end_with(change)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._opened = self._opened, None
        if opened is None or self._send_progress_again is None:
            return
        if self._file is not None:
            let_go(self._file, self._attempt.label)
        try:
            opened.__exit__(kind, error, trace)
            if kind is None:
                self._attempt.has_ended = self._attempt.has_ended or self._final
        finally:
            self._send_progress_again()

    def _hold_file(self) -> None:
        ledger = self._attempt.context.ledger()
        is_the_ledgers = self._opened is not None and isinstance(self._opened.fence, FencedRun)
        self._file = str(ledger.url.path) if ledger.dialect.has_one_writer and is_the_ledgers else None
        if self._file is not None:
            hold(self._file, self._attempt.label)


def in_transaction(run: Run, work: Callable[[Any], T], source: Any, *, final: bool, tries: int) -> T:
    """Do `work` in a fenced transaction, and retry in a new one after a conflict that the caller did not cause."""
    if tries < 1:
        raise ValueError(f"tries={tries}: at least one is needed")
    attempt = attempt_of(run)
    for number in range(1, tries):
        try:
            return _done(run, work, source, final=final)
        except Exception as error:
            if not _is_worth_repeating(error):
                raise
            run.log.info("retrying a transaction of %s: %s", attempt.label, error_text(error))
        longest_s = min(_SHORTEST_PAUSE_S * 2**number, _LONGEST_PAUSE_S)
        attempt.context.runtime.sleep(longest_s * (0.5 + attempt.context.runtime.random() / 2))
    return _done(run, work, source, final=final)


def _done(run: Run, work: Callable[[Any], T], source: Any, *, final: bool) -> T:
    with run.transaction(source, final=final) as given:
        return work(given)


def _is_worth_repeating(error: Exception) -> bool:
    return isinstance(error, TransactionConflict) or trouble_of(error) in REPEATABLE


def _begun(run: Run, source: Any, *, final: bool) -> tuple[FencedTransaction, Any]:
    """Begin a transaction. A fenced run waits while it is suspended or the ledger cannot be reached.

    Nothing has been written before a transaction has begun, so beginning can be repeated. The run's timeout limits the
    wait. If the user's own database cannot be reached, the error is raised to the user.
    """
    attempt = attempt_of(run)
    while True:
        attempt.wait_while_suspended()
        ledger = attempt.context.ledger()
        way = None if source is None else source_of(source)
        opened = _transaction(run, attempt, way, final=final)
        try:
            return opened, opened.__enter__()
        except (LedgerUnavailable, DBAPIError) as error:
            if attempt.policy.stops_in_doubt or not _is_away(ledger, way, error):
                raise
        attempt.context.runtime.sleep(_TRY_AGAIN_AFTER_S)


def _is_away(ledger: Ledger, way: Source | None, error: LedgerUnavailable | DBAPIError) -> bool:
    """Whether the ledger could not be reached, as opposed to a refusal."""
    if isinstance(error, LedgerUnavailable):
        return True
    is_the_ledgers = way is None or is_known_to_be_the_ledgers(way, ledger)
    return is_the_ledgers and trouble_of(error.orig) in SLOW | {Trouble.BROKEN}


def _transaction(run: Run, attempt: Attempt, way: Source | None, *, final: bool) -> FencedTransaction:
    context = attempt.context
    ledger = context.ledger()
    terms = FenceOptions(
        runtime=context.runtime,
        isolation=str(attempt.policy.isolation),
        ttl_s=context.ttl_s,
        # It does not wait: after the beginning the row decides, and a wait would keep rows locked.
        check_trust=attempt.raise_if_stopped,
        refused=lambda why: _record_refusal(run, attempt, why),
        found_at=attempt.found_at,
        finish=_finish(run, attempt) if final else None,
    )
    if way is None:
        return FencedTransaction(source_of(engine_of(ledger)), lambda _: run_row(attempt, ledger), terms)
    return FencedTransaction(way, lambda opened: _chosen(attempt, opened, final=final), terms)


def _chosen(attempt: Attempt, source: Source, *, final: bool) -> Fence:
    fence = fence_of(attempt, source)
    if final and not isinstance(fence, FencedRun):
        raise RuntimeError(
            f"final=True ends {attempt.label} in the transaction of its effects, and this one is in another database "
            "than the ledger, so it cannot; leave final out, and the run ends after its function returns"
        )
    return fence


def _record_refusal(run: Run, attempt: Attempt, why: str) -> None:
    """Record, in a separate transaction, that a stale writer was refused."""
    run.log.warning("a write of %s was refused: %s", attempt.label, why)
    with suppress(FencepostError):  # it is in the log, and the writer is refused in any case
        journal(
            attempt.context.ledger(),
            what=Noted.REFUSED_WRITE,
            job=run.job,
            run_id=run.id,
            schedule=run.schedule,
            token=run.token,
            reason=why,
            detail={"node": run.node, "attempt": run.attempt},
        )


def _finish(run: Run, attempt: Attempt) -> Callable[[Any], bool]:
    """Return a function that ends the run as succeeded in the caller's transaction, and returns whether it was ours."""
    ledger = attempt.context.ledger()
    statements = statements_for(ledger.connect("words"))
    keys = [] if run.exclusive_key is None else [run.exclusive_key]

    def finish(given: Any) -> bool:
        endings = EndingRows([_succeeded(run, attempt.took_us())])
        with cursor_of(given, ledger.dialect) as cursor:
            ended = end_keyed(cursor, statements, endings, keys)[1] if keys else statements.end(cursor, endings)[1]
            if keys and attempt.policy.isolation is not Isolation.READ_COMMITTED:
                statements.notify(
                    cursor
                )  # runs that wait for the key may be invisible here: other nodes search for them
        return ended == 1

    return finish


def _succeeded(run: Run, took_us: int) -> Ending:
    state, outcome = next_state(RunState.RUNNING, Move.SUCCEED), outcome_of(Move.SUCCEED)
    return Ending(
        run.id,
        run.attempt,
        run.token,
        state=state.value,
        outcome=None if outcome is None else outcome.value,
        took_us=took_us,
        exclusive_key=run.exclusive_key,
    )
