"""The run, as the job's function sees it: its parameters, its window, and whether it may continue.

::

    @app.job(cron("*/5 * * * *"))
    def settle(run):
        with run.transaction() as tx:
            tx.execute(text("UPDATE account SET …"))
        run.progress(0.5, "half way")

**Promises.** A run that has to stop raises at its next call: `LeaseLost` when its lease is lost, `Stopped` when it was
cancelled or has exceeded its timeout. What it writes through `transaction` after that is refused.

**Suspended.** While it is unknown whether the run is still ours (the ledger does not answer), a run of a job that
declares ``effects="fenced"`` is not stopped: `check` and the beginning of a `transaction` wait until that is known.
Then the run continues, or gets `LeaseLost`.

**Not promised.** That `lost` is True at the moment when another node takes the run over: this process may be cut off.
The fence refuses its writes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from fencepost.core.duration import Duration
from fencepost.core.fencing import FencingToken
from fencepost.core.policy import Effects
from fencepost.core.runs import Claim
from fencepost.core.tick import instant
from fencepost.engine.attempt import Attempt
from fencepost.engine.context import RunContext
from fencepost.engine.jobs import Job
from fencepost.engine.run_log import RunLog
from fencepost.fence.writer import Writer, found_by
from fencepost.observe import logs

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection, Engine
    from sqlalchemy.orm import Session, sessionmaker

    S = TypeVar("S", bound=Session)

T = TypeVar("T")


class Window(NamedTuple):
    """The time range that a run covers: after `start`, up to and including `end`. Both in UTC."""

    start: datetime
    end: datetime

    def astimezone(self, zone: tzinfo) -> Window:
        """Return the same window in another time zone."""
        return Window(self.start.astimezone(zone), self.end.astimezone(zone))


class Run:
    """One attempt at a run, as its job sees it."""

    __slots__ = ("_attempt", "_claim", "_log", "_params")

    def __init__(self, job: Job, claim: Claim, context: RunContext) -> None:
        self._attempt = Attempt(job, claim, context)  # not for jobs: see `attempt_of`
        self._claim = claim
        self._params: Mapping[str, Any] | None = None
        self._log: RunLog | None = None

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self.job!r}, attempt {self.attempt}, token {self.token}>"

    @property
    def id(self) -> int:
        """The number of the run."""
        return self._claim.run_id

    @property
    def job(self) -> str:
        """The name of the job."""
        return self._claim.job

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._claim.attempt

    @property
    def crashes(self) -> int:
        """How many attempts before this one were lost because their node or worker was gone."""
        return self._claim.crashes

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every earlier attempt, and of every earlier holder of its key."""
        return self._claim.token

    @property
    def fencing(self) -> FencingToken:
        """The token for a fence outside the ledger, with the exclusive key and the id of this attempt.

        The key is prefixed with the identity of the ledger, because another ledger may have runs with these numbers and
        jobs with these names. While nodes of an older version are alive it has no prefix, because these nodes use none.
        The ledger is queried about that every few seconds at most; raises `LedgerUnavailable` if it never answered.
        """
        shown, former = self._attempt.shown()
        return shown if former is None else shown._replace(key=former)

    @property
    def exclusive_key(self) -> str | None:
        """The exclusive key, if the run has one."""
        return self._claim.exclusive_key

    @property
    def node(self) -> str:
        """The node that executes it."""
        return self._attempt.context.node

    @property
    def schedule(self) -> str | None:
        """The id of the schedule that the run was planned from; None if it was requested."""
        return self._claim.schedule

    @property
    def ticks(self) -> int:
        """How many due times this run covers: more than one if missed ones were merged."""
        return self._claim.ticks

    @property
    def requested_by(self) -> str | None:
        """Who requested the run, if it was requested."""
        return self._claim.requested_by

    @property
    def due_at(self) -> datetime:
        """When the run was due; for a requested run, the time from which it may start."""
        claim = self._claim
        return instant(claim.available_at_us if claim.due_at_us is None else claim.due_at_us)

    @property
    def window(self) -> Window:
        """The time range that the run covers. Empty, at `due_at`, for a run that was requested without a window."""
        claim = self._claim
        end = self.due_at if claim.window_end_us is None else instant(claim.window_end_us)
        return Window(end if claim.window_start_us is None else instant(claim.window_start_us), end)

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters, as the function gets them, without those that were not given."""
        if self._params is None:
            bound = self._attempt.job.signature.bind(json.loads(self._claim.params), self)
            self._params = {name: value for name, value in bound.items() if value is not self}
        return self._params

    @property
    def log(self) -> RunLog:
        """A logger whose records contain the run, attempt, token and node."""
        if self._log is None:
            self._log = RunLog(self.job, self._attempt.fields)
        return self._log

    @property
    def lost(self) -> bool:
        """Whether the lease is lost, as far as this process knows. Cheap; read it as often as you like."""
        return self._attempt.is_lost

    def check(self, *, ask_ledger: bool = False) -> None:
        """Raise `LeaseLost` if the lease is lost, `Stopped` if the run was cancelled or has exceeded its timeout.

        For loops that do not otherwise call the run. While the run is suspended, it waits until it is known whether the
        run may continue. On an event loop it returns instead, because it would block all other tasks. With `ask_ledger`
        it also queries the ledger (a round trip): `LedgerUnavailable` then means that the answer is unknown.
        """
        if is_on_event_loop():
            self._attempt.raise_if_stopped()
        else:
            self._attempt.wait_while_suspended()
        if ask_ledger:
            self._attempt.raise_unless_ours()

    def progress(self, fraction: float, note: str | None = None) -> None:
        """Set the progress, from 0 to 1. Never waits: the ledger gets the latest value about twice a second.

        >>> run.progress(0.5, "half way")  # doctest: +SKIP
        """
        self._attempt.raise_if_stopped()
        self._attempt.progress().show(fraction, note)

    @overload
    def transaction(
        self, source: Engine | Connection | None = None, *, final: bool = False
    ) -> AbstractContextManager[Connection]: ...
    @overload
    def transaction(self, source: sessionmaker[S], *, final: bool = False) -> AbstractContextManager[S]: ...
    @overload
    def transaction(self, source: T, *, final: bool = False) -> AbstractContextManager[T]: ...
    def transaction(self, source: Any = None, *, final: bool = False) -> AbstractContextManager[Any]:
        """Open a transaction that is committed only while this run is still ours.

        ::

            with run.transaction() as tx:          # a SQLAlchemy connection to the ledger's own database
                tx.execute(text("INSERT …"), {…})  # committed at the end of the block, or LeaseLost

        It has the isolation level of the job's policy. It waits for the database, so in an ``async def`` job use it in
        ``asyncio.to_thread``. The block must not commit: that is refused, or at least reported.

        A database other than the ledger's needs the tables of `fencepost effects install`. A writer that has lost its
        run is refused there once its successor has begun its first transaction there.

        Args:
            source: where to write: a SQLAlchemy Engine, Connection, Session or sessionmaker, a connection of psycopg,
                PyMySQL or sqlite3, or one of Django's, not in a transaction. By default the ledger's own database.
            final: end the run as succeeded within this transaction, so that its effects and its end are atomic. The
                return value of the function is then not recorded. Only in the ledger's own database.
        """
        from fencepost.engine.transactions import RunTransaction  # noqa: PLC0415 - most runs open none

        opened = RunTransaction(self, source, final=final)
        if final or self._attempt.policy.effects is not Effects.IDEMPOTENT:
            return opened
        from fencepost.engine.keying import noticing_keys  # noqa: PLC0415 - as above

        return noticing_keys(self, opened)

    def in_transaction(self, work: Callable[[Any], T], source: Any = None, *, final: bool = False, tries: int = 5) -> T:
        """Call `work` with an open `transaction`, and return its result.

        ::

            run.in_transaction(lambda tx: tx.execute(text("UPDATE account SET …")))

        After a serialization failure, a deadlock or `TransactionConflict` it is called again, in a new transaction and
        after a short pause, up to `tries` times in all. So it must do nothing that a rollback does not undo.
        """
        from fencepost.engine.transactions import in_transaction  # noqa: PLC0415 - as above

        return in_transaction(self, work, source, final=final, tries=tries)

    @overload
    def fence(self, source: Engine) -> AbstractContextManager[Connection]: ...
    @overload
    def fence(self, source: sessionmaker[S]) -> AbstractContextManager[S]: ...
    @overload
    def fence(self, source: T) -> AbstractContextManager[T]: ...
    def fence(self, source: Any) -> AbstractContextManager[Any]:
        """Open a fenced `transaction` in your own database, with any kind of connection.

        ::

            with run.fence(psycopg_connection) as tx:
                tx.execute("INSERT …")  # committed at the end of the block, or LeaseLost
        """
        if source is None:
            raise TypeError("run.fence() takes a connection; without one, open run.transaction()")
        return self.transaction(source)

    def take(self, tx: Any, query: Any, *, limit: int, params: Sequence[Any] = ()) -> list[Any]:
        """Return up to `limit` rows that no other reader holds, and hold them until the transaction `tx` ends.

        ::

            with run.transaction() as tx:
                for (order,) in run.take(tx, "SELECT id FROM orders WHERE settled IS NULL ORDER BY id", limit=100):
                    ...  # settle it in this transaction

        For several readers of one table: the same job on several nodes, or several jobs. ``LIMIT`` and ``FOR UPDATE
        SKIP LOCKED`` are added to the query, which must have an order. An empty list means that nothing is free.

        Args:
            tx: the connection of a `transaction`, or another connection of yours with an open transaction.
            query: SQL with ``%s`` for each parameter, or a ``select()`` of SQLAlchemy.
            limit: how many rows at most.
            params: the parameters of SQL that is a text.
        """
        from fencepost.fence.taking import take  # noqa: PLC0415 - as above

        self._attempt.raise_if_stopped()
        return take(tx, query, limit=limit, params=params)

    def once(self, key: str, tx: Any, *, expires: Duration | None = None) -> bool:
        """Return True the first time this key is used. The key commits with `tx`, and is removed if `tx` rolls back.

        ::

            with run.transaction() as tx:
                if run.once(work_key("settle", order_id, run.window.end.date()), tx):
                    tx.execute(text("INSERT …"), {…})

        Another caller that uses the same key waits for this transaction to end. For a `tx` in a database other than the
        ledger's, the tables must exist: ``fencepost effects install URL``.

        Args:
            key: identifies what is done, and for what; see `fencepost.work_key`.
            tx: the transaction of the effect: of `transaction`, or a connection of psycopg, PyMySQL, sqlite3,
                SQLAlchemy or Django.
            expires: after this time the key counts as unused; by default never.
        """
        from fencepost.fence.idempotency import once_by  # noqa: PLC0415 - as above

        self._attempt.raise_if_stopped()
        return once_by(self._attempt.writer(), key, tx, expires=expires)


def attempt_of(run: Run) -> Attempt:
    """Return the engine's side of a run; for code that builds on runs."""
    return run._attempt


def is_on_event_loop() -> bool:
    """Whether the calling thread runs an event loop now. Does not import asyncio."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


current: ContextVar[Run | None] = ContextVar("fencepost_current_run", default=None)


def current_run() -> Run | None:
    """Return the run that the calling code is part of, or None outside of any."""
    return current.get()


def _writer_of_current_run() -> Writer | None:
    run = current.get()
    return None if run is None else run._attempt.writer()


def _fields_of_current_run() -> dict[str, object] | None:
    run = current.get()
    return None if run is None else run._attempt.fields


found_by(_writer_of_current_run)
logs.found_by(_fields_of_current_run)
