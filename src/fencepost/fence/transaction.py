"""A transaction that commits only if the fence still has our token.

The *last* statement before COMMIT compares the fence with a share lock. Between that statement and the commit, the
fence cannot be raised. Before it, a successor does not have to wait for us. So a writer that was paused in the middle
delays its successor by a round trip, not by a transaction. The fence is also compared without a lock when the
transaction begins, so that a stale writer does not even start. This is skipped if it was ours within the last second.

**Promises.** Statements on the connection are committed only if the fence was ours at the commit. Otherwise they are
rolled back, `LeaseLost` is raised and the refusal is recorded. A connection that is idle in the middle is ended by the
server after a ttl (on SQLite: rolled back after five seconds in which the process runs). A connection that was passed
in is left in its previous state. If the transaction was ended inside the block, an error reports it; see
`fence.sources.source`. A process that is forked inside the block neither commits, rolls back nor closes the transaction
of its parent; see `fence.inherited`.

**Not promised.** That a COMMIT without a reply did not happen. If that matters, make the effect repeatable, or end the
run in the same transaction (`finish`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

from fencepost.core.fencing import NOTHING_WRITTEN
from fencepost.errors import LeaseLost, TransactionConflict, TransactionTooLong
from fencepost.fence.databases import TargetDatabase, database_for
from fencepost.fence.fence_options import FenceOptions
from fencepost.fence.final_update import FinalUpdate
from fencepost.fence.inherited import INHERITED, leave
from fencepost.fence.run_row import Fence
from fencepost.fence.sources.source import Source
from fencepost.sql.troubles import NO_TABLES, REPEATABLE, Trouble, trouble_of

_AT_BEGIN = "it had another holder when the transaction began"
_AT_COMMIT = "it had another holder when the transaction was about to commit"
_LOOK_AGAIN_AFTER_S = 1.0  # saves a round trip for short transactions; the check before the commit decides anyway


class FencedTransaction:
    """A context manager: it returns the user's connection, and commits at the end if the fence is still ours.

    An exception rolls back. `choose` returns the fence for the source, once the source is open.
    """

    def __init__(self, source: Source, choose: Callable[[Source], Fence], terms: FenceOptions) -> None:
        self._source = source
        self._choose = choose
        self._terms = terms
        self._fence: Fence | None = None
        self._database: TargetDatabase | None = None
        self._change: FinalUpdate | None = None
        self._is_open = False
        self._is_inherited = False

    @property
    def fence(self) -> Fence | None:
        """The fence of the transaction, inside the block."""
        return self._fence

    def end_with(self, change: FinalUpdate) -> None:
        """Make a change at the very end, before the fence is compared. Only inside the block."""
        if self._is_inherited:
            raise RuntimeError(INHERITED)
        self._change = change

    def __enter__(self) -> Any:
        self._terms.check_trust()
        source = self._source
        self._is_open = True
        self._terms.runtime.after_fork(self, self._leave)
        source.open()
        fence: Fence | None = None
        try:
            fence = self._choose(source)
            fence.ready(source, self._terms)
            self._database = database_for(source.target.kind)
            is_ours = self._begins(self._database, fence)
            given = source.given
        except BaseException as error:
            self._give_up()
            if fence is not None and trouble_of(error) in NO_TABLES:
                raise fence.missing(fence.table) from None
            raise
        if not is_ours:
            self._give_up()  # first, because another connection writes the refusal
            self._refuse(fence, _AT_BEGIN)
        self._fence = fence
        return given

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fence, self._fence = self._fence, None
        database = self._database
        if fence is None or database is None or self._is_inherited:
            return
        try:
            self._end(database, fence, error)
        except Exception as failure:
            self._explain(failure)
            raise
        finally:
            if error is not None:
                self._explain(error)
            self._close(database)

    def _end(self, database: TargetDatabase, fence: Fence, error: BaseException | None) -> None:
        if not database.ends_in_time():
            self._source.roll_back()
            raise self._too_long(fence) from error
        if error is None:
            self._commit(database, fence)
        else:
            self._source.roll_back()

    def _begins(self, database: TargetDatabase, fence: Fence) -> bool:
        if self._begins_once(database, fence):
            return True
        if not fence.is_worth_another_look():
            return False
        database.ends_in_time()
        self._source.roll_back()
        database.end(self._source)
        fence.ready(self._source, self._terms, anew=True)
        return self._begins_once(database, fence)

    def _begins_once(self, database: TargetDatabase, fence: Fence) -> bool:
        looks = not self._was_just_found(fence)
        if looks and database.looks_before(self._terms) and not self._is_ours_outside(database, fence):
            return False
        self._source.begin(self._terms.isolation)
        is_ours = database.begin(self._source, fence, self._terms, looks=looks)
        if not looks and database.path and not self._was_just_found(fence, database.path):
            looks, is_ours = True, database.reads(self._source, fence)  # the search path is another one now
        if looks and is_ours:
            self._note_found(database, fence)
        return is_ours

    def _was_just_found(self, fence: Fence, *path: str) -> bool:
        found_at = self._terms.found_at.get((self._source.place, fence.table, *path))
        return found_at is not None and self._terms.runtime.monotonic() - found_at < _LOOK_AGAIN_AFTER_S

    def _note_found(self, database: TargetDatabase, fence: Fence) -> None:
        place, now = self._source.place, self._terms.runtime.monotonic()
        if place is not None:
            self._terms.found_at[place, fence.table] = now
            if database.path:
                self._terms.found_at[place, fence.table, database.path] = now

    def _forget_found(self, database: TargetDatabase, fence: Fence) -> None:
        self._terms.found_at.pop((self._source.place, fence.table), None)
        self._terms.found_at.pop((self._source.place, fence.table, database.path), None)

    def _commit(self, database: TargetDatabase, fence: Fence) -> None:
        try:
            self._terms.check_trust()
            self._source.flush()
            is_ours, is_unbroken = self._is_still_ours(database, fence)
        except BaseException:
            self._source.roll_back()
            raise
        if is_ours and is_unbroken:
            self._source.commit()
            if self._terms.finish is None:
                self._note_found(database, fence)
            else:
                self._forget_found(database, fence)
            return
        self._source.roll_back()
        self._forget_found(database, fence)
        if is_unbroken is None:
            is_unbroken = not self._is_ours_outside(database, fence)
        if not is_unbroken:
            self._tell_bypassed(fence)
        self._refuse(fence, _AT_COMMIT)

    def _is_still_ours(self, database: TargetDatabase, fence: Fence) -> tuple[bool, bool | None]:
        """Return whether the fence is ours, and whether the transaction is the one that was begun.

        (False, None) means that one of the two is false, and it is unknown which. If both are true and the database can
        check and commit in one step, the transaction is committed afterwards.
        """
        try:
            if self._terms.finish is not None:
                self._make_change()
                return self._terms.finish(self._source.given), database.is_unbroken(self._source)
            at_once = database.commit_if_ours(self._source, fence, self._terms, self._change)
            if at_once is None:
                self._make_change()
                return database.check(self._source, fence), database.is_unbroken(self._source)
        except Exception as error:
            trouble = trouble_of(error)
            if trouble is Trouble.NO_PROCEDURE:
                raise fence.missing(fence.check) from None
            if trouble not in REPEATABLE:
                raise
            # The row was changed since our snapshot: by a takeover, or only by a request to cancel the run. This
            # transaction has failed in any case.
            self._source.roll_back()
            if not self._is_ours_outside(database, fence):
                self._refuse(fence, _AT_COMMIT)
            raise TransactionConflict(
                f"the row of {fence.what} was changed while its transaction ran, and under "
                f"{self._terms.isolation!r} the transaction then fails; {NOTHING_WRITTEN}, try again"
            ) from error
        if isinstance(at_once, Exception):
            raise at_once
        return at_once, True if at_once else None

    def _make_change(self) -> None:
        change = self._change
        if change is not None and self._source.target.execute(change.sql, change.values).count != 1:
            raise change.missed

    def _is_ours_outside(self, database: TargetDatabase, fence: Fence) -> bool:
        self._source.begin("read committed")
        try:
            return database.reads(self._source, fence)
        finally:
            self._source.roll_back()

    def _refuse(self, fence: Fence, why: str) -> NoReturn:
        self._terms.refused(why)
        raise LeaseLost(fence.what, fence.token, f"{why}; {NOTHING_WRITTEN}")

    def _tell_bypassed(self, fence: Fence) -> NoReturn:
        why = "its transaction was ended inside the block, by a commit or rollback that bypassed the fence"
        self._terms.refused(why)
        raise RuntimeError(
            f"{fence.what}: {why}; what it committed was not fenced, the rest was rolled back. "
            "Let the block end the transaction; on MySQL, statements like CREATE TABLE commit implicitly"
        )

    def _too_long(self, fence: Fence) -> TransactionTooLong:
        return TransactionTooLong(
            f"a transaction of {fence.what} kept its SQLite file locked for {self._terms.sqlite_limit_s:g} s and was "
            "rolled back; write less at a time, and do not wait for anything inside the transaction"
        )

    def _explain(self, error: BaseException) -> None:
        """Add the reason to an error of the driver, which only reports a lost connection."""
        if trouble_of(error) is Trouble.SILENCED:
            error.add_note(
                f"The server ends a fenced transaction that is idle for {self._terms.ttl_s:g} s (the ttl), so that "
                f"other writers do not wait for it; {NOTHING_WRITTEN}"
            )

    def _give_up(self) -> None:
        if self._database is not None:
            self._database.ends_in_time()
        self._source.roll_back()
        self._close(self._database)

    def _close(self, database: TargetDatabase | None) -> None:
        try:
            if database is not None:
                database.end(self._source)
        finally:
            self._source.close()
            self._is_open = False

    def _leave(self) -> None:
        """In a forked child, leave the transaction to the parent."""
        if self._is_open:
            self._is_inherited = True
            leave(self, self._source)
