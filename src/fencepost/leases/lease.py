"""A lease, as its owner uses it.

`lost` is cheap and local. It turns True when trust ends, on time and for good, whether or not the store can be
reached. `check()` asks the store. Neither replaces a fence: the process may be paused for longer than the ttl between
the check and the write. Write inside a `fence`, or pass the `token` to a resource that refuses older ones.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fencepost.core.events import Event, What
from fencepost.core.fencing import FencingToken
from fencepost.core.grants import Grant
from fencepost.core.lease import RAN_OUT
from fencepost.core.runtime import Runtime
from fencepost.core.timings import Timings
from fencepost.core.words import IsolationWord
from fencepost.errors import LeaseLost, StoreUnavailable
from fencepost.leases.current import entered, left

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from contextvars import Token

    from fencepost.fence.lease_transaction import LeaseFence
    from fencepost.leases.kept_session import KeptSession
    from fencepost.leases.store import LeaseStore


class Lease:
    """An exclusive hold on a name, renewed in the background until released or lost."""

    def __init__(
        self,
        *,
        grant: Grant,
        kept: KeptSession,
        store: LeaseStore,
        runtime: Runtime,
        emit: Callable[[Event], None],
        at_least_s: float = 0.0,
    ) -> None:
        self.grant = grant
        self._kept = kept
        self._store = store
        self._runtime = runtime
        self._emit = emit
        self._at_least_s = at_least_s
        self._acquired_at = runtime.monotonic()
        self._lost_reason: str | None = None
        self._is_released = False
        self._ending = runtime.lock()
        self._on_lost: list[Callable[[Lease], None]] = []
        self._context: Token[Lease | None] | None = None
        self._fences: LeaseFence | None = None

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self.grant.name

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every earlier holder of the name."""
        return self.grant.token

    @property
    def grant_id(self) -> str:
        """The unique id of this hold, different even from a hold with an equal token."""
        return self.grant.grant_id

    @property
    def holder(self) -> str:
        """The name of this process, different at each start, as others see it."""
        return self.grant.session.holder

    @property
    def fencing(self) -> FencingToken:
        """The token that the holder presents to a fence."""
        return FencingToken(self.name, self.token, self.grant_id, self.holder)

    @property
    def trusted_until(self) -> float:
        """The reading of CLOCK_BOOTTIME at which the right to act ends, unless a renewal moves it."""
        return self._kept.trusted_until

    @property
    def timings(self) -> Timings:
        """The timings in effect: those requested, or shorter ones that the store imposed."""
        return self._kept.timings

    @property
    def lost(self) -> bool:
        """Whether the right to act has ended without a release. Once True, it stays True."""
        if self._lost_reason is None and not self._is_released and self._kept.has_ended():
            self.end(self._kept.lost_reason())
        return self._lost_reason is not None

    @property
    def lost_reason(self) -> str | None:
        """Why the lease was lost, or None."""
        return self._lost_reason if self.lost else None

    @property
    def ran_out(self) -> bool:
        """Whether the lease was lost only because the store did not reply in time, not because it reported a loss."""
        return self.lost_reason == RAN_OUT

    def check(self) -> None:
        """Ask the store whether this is still the current grant; raise `LeaseLost` if it is not.

        Raises `StoreUnavailable` if the store does not reply while the lease is still trusted: the answer is unknown.
        """
        self._raise_unless_held()
        try:
            gone = self._store.missing([self.grant])
        except StoreUnavailable:
            self._raise_unless_held()
            raise
        if gone and self._kept.drop(self):  # else it was released during the call, or trust has run out
            self.end("the store no longer knows this grant: it was revoked, deleted, or taken over")
        self._raise_unless_held()

    def fence(
        self,
        source: Any,
        *,
        isolation: IsolationWord = "read committed",
        prefix: str = "fencepost_",
        schema: str | None = None,
    ) -> AbstractContextManager[Any]:
        """Open a transaction that commits only if no newer holder of the lock has written to this database.

        ::

            with store.lock("settlement") as lease:
                with lease.fence(engine) as tx:        # a SQLAlchemy connection
                    tx.execute(text("INSERT …"), {…})  # committed at the end of the block, or LeaseLost

        The database needs the tables of `fencepost effects install`. It refuses a holder that was paused beyond its
        lease as soon as the next holder has begun its first fenced transaction there.

        Args:
            source: a SQLAlchemy Engine, Connection, Session or sessionmaker, or a connection of psycopg, PyMySQL,
                sqlite3 or Django; not in a transaction yet. The block gets a connection from an engine, a session
                from a sessionmaker, and otherwise the source itself.
            isolation: ``read committed``, ``repeatable read`` or ``serializable``; restored afterwards.
            prefix: the prefix of the installed tables.
            schema: the schema of the installed tables, on PostgreSQL.
        """
        if self._fences is None:
            from fencepost.fence.lease_transaction import LeaseFence  # noqa: PLC0415 - few locks fence a database

            self._fences = LeaseFence(
                fencing=self.fencing,
                runtime=self._runtime,
                ttl_s=lambda: self.timings.ttl_s,
                check_trust=self._raise_unless_held,
                refused=lambda why: self._report(What.REFUSED_WRITE, reason=why),
            )
        from fencepost.core.policy import isolation_of  # noqa: PLC0415 - plain locks do not need schedules

        return self._fences.transaction(source, isolation=isolation_of(isolation).value, prefix=prefix, schema=schema)

    def on_lost(self, call: Callable[[Lease], None]) -> None:
        """Call `call(lease)` once when the lease is lost; immediately if it is already lost. `call` must not block."""
        with self._ending:
            was_lost = self._lost_reason is not None
            if not was_lost:
                self._on_lost.append(call)
        if was_lost:
            call(self)

    def release(self, *, done: bool = True) -> bool:
        """Release the lease. `done` marks its tick, if any, as done. Returns False if the lease was already lost.

        If the store does not reply, the release is retried in the background until it does.
        """
        held_s = 0.0
        try:
            if self.lost or not self._begin_release():
                return False
            held_s = self._runtime.monotonic() - self._acquired_at
            keep_for_s = max(self._at_least_s - held_s, 0.0)
            was_ours = self._kept.drop(self) and self._store.release(self.grant, done=done, keep_for_s=keep_for_s)
        except BaseException as error:
            self._is_released = True
            self._kept.owe_release(self.grant, done=done, keep_until=self._acquired_at + self._at_least_s)
            self._report(What.RELEASE_UNANSWERED, reason=str(error) or repr(error), held_s=held_s)
            if not isinstance(error, StoreUnavailable):  # passed on to the caller; the release is still retried
                raise
            return True
        finally:
            self._kept.settled(self)
        if not was_ours:
            self.end("found gone when it was released: it was revoked, deleted, or taken over")
            return False
        self._kept.note_end(self.grant, done=done, keep_until=self._acquired_at + self._at_least_s)
        self._report(What.RELEASED, held_s=held_s)
        return True

    def give_back(self) -> None:
        """Release an unused lease: its tick is not marked as done, and `at_least` does not apply."""
        self._at_least_s = 0.0
        self.release(done=False)

    def end(self, reason: str) -> None:
        """Mark the lease as lost. Called by the keeper; the owner calls `release`."""
        with self._ending:
            if self._lost_reason is not None:
                return
            self._lost_reason = reason
            calls, self._on_lost = self._on_lost, []
        self._report(What.LOST, reason=reason, held_s=self._runtime.monotonic() - self._acquired_at)
        for call in calls:
            try:
                call(self)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the remaining callbacks must still be called
                self._report(What.OBSERVER_FAILED, reason=f"on_lost raised {error!r}")

    def forget(self, reason: str) -> None:
        """In a forked child: mark the lease as lost, without callbacks or events, for the parent still holds it."""
        self._ending = self._runtime.lock()  # a thread of the parent may have held the old lock
        self._lost_reason, self._on_lost = self._lost_reason or reason, []

    def __enter__(self) -> Self:
        self._context = entered(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release; the tick is done only if the body succeeded. Raises `LeaseLost` if the body outlived the lease."""
        context, self._context = self._context, None
        was_released = self._is_released
        try:
            if not was_released:
                self.release(done=kind is None)
        finally:
            if context is not None:
                left(context)
        if kind is None and not was_released:
            self._raise_if_lost()

    def __repr__(self) -> str:
        state = "lost" if self.lost else "released" if self._is_released else "held"
        return f"<Lease {self.name!r} token={self.token} {state}>"

    def _raise_if_lost(self) -> None:
        if self.lost:
            raise LeaseLost(self.name, self.token, self._lost_reason or "unknown")

    def _raise_unless_held(self) -> None:
        self._raise_if_lost()
        if self._is_released:
            raise LeaseLost(self.name, self.token, "it was released")

    def _begin_release(self) -> bool:
        """Let only one of several concurrent calls release: the others would mistake its success for a loss."""
        with self._ending:
            was_held = self._lost_reason is None and not self._is_released
            self._is_released = self._is_released or was_held
        return was_held

    def _report(self, what: What, *, reason: str | None = None, held_s: float | None = None) -> None:
        grant = self.grant
        self._emit(
            Event(
                what,
                lock=grant.name,
                holder=grant.session.holder,
                token=grant.token,
                grant_id=grant.grant_id,
                tick_us=grant.tick.at_us if grant.tick else None,
                reason=reason,
                held_s=held_s,
            )
        )
