"""Sessions that claim, raise, write, check, commit and reap statement by statement, and somebody who watches them.

The observer looks between any two statements, in one statement of its own: so it sees effects in the order in which the
database committed them, and it knows what the fence said the moment before each of them. An effect that appears when
the fence had moved on before is a stale write, whatever anybody was told about it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import sqlalchemy
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError

from fencepost.errors import LeaseLost, TransactionConflict
from fencepost.ledger.desk import Desk
from fencepost.ledger.dialects import Trouble
from fencepost.ledger.ledger import Ledger
from tests import interleaving
from tests.interleaving import Order
from tests.ledger.steps import Stopping, Watcher

LEVELS = ("read committed", "repeatable read", "serializable")
TRIES = 5
LONGEST_S = 5.0  # the longest that anybody may be kept, on a machine that has other things to do

WRITTEN, REFUSED, CONFLICT = "written", "refused", "conflict"


class Session(interleaving.Actor):
    """One node's connections: a desk at the ledger, and an engine for the job's own statements."""

    def __init__(self, ledger: Ledger, watcher: Watcher, name: str) -> None:
        self.desk = ledger.desk(name)
        self.dialect = ledger.dialect
        self._numbers: tuple[int, ...] = (watcher.number_of(self.desk),)
        self._cursor = self.desk._cursor
        self.engine = sqlalchemy.create_engine(ledger.url.sqlalchemy(), pool_size=2)
        event.listen(self.engine, "connect", self._note)
        for moment in ("before_cursor_execute", "commit", "rollback"):
            event.listen(self.engine, moment, self._stop_before)
        super().__init__(name, lambda: any(watcher.waits(number) for number in self._numbers))

    def begin_session(self, act: Callable[[Session], Any]) -> None:
        self.desk._cursor = Stopping(self._cursor, self)
        self.begin(lambda: act(self))

    def note(self, error: Exception) -> None:
        """Take note of a statement's error: the desk repeats what it can."""

    def close(self) -> None:
        self.engine.dispose()
        self.desk.rest()

    def _note(self, connection: Any, _: object) -> None:
        info = getattr(connection, "info", None)
        self._numbers += (info.backend_pid if info is not None else connection.thread_id(),)

    def _stop_before(self, *_: object) -> None:
        self.stop()


Act = Callable[[Session], Any]
Begin = Callable[[Session], AbstractContextManager[Connection]]


class Seen(NamedTuple):
    """An effect, and what the fence said when it was not yet there."""

    token: int
    who: str
    mark: tuple[int, str] | None


class Observer:
    """Sees what is committed, in the order in which it is committed."""

    def __init__(self, desk: Desk, effects: str, mark_sql: str) -> None:
        """`mark_sql` selects the fence as columns (0, token, grant)."""
        self._desk = desk
        self._sql = f"SELECT id, token, who FROM {effects} UNION ALL {mark_sql} ORDER BY 1"
        self.effects: list[Seen] = []
        self._ids: set[int] = set()
        self._mark: tuple[int, str] | None = None

    def start(self) -> None:
        self.effects, self._ids, self._mark = [], set(), None
        self.look()

    def look(self) -> None:
        with self._desk.autocommit() as cursor:
            cursor.execute(self._sql)
            rows = list(cursor.fetchall())
        before, self._mark = self._mark, next(((row[1], row[2]) for row in rows if row[0] == 0), None)
        new = [row for row in rows if row[0] and row[0] not in self._ids]
        self._ids.update(row[0] for row in new)
        self.effects += [Seen(token, who, before) for _, token, who in new]

    def faults(self) -> list[str]:
        """Say what must not have happened."""
        stale = [f"{seen} was committed behind the fence" for seen in self.effects if seen.mark != seen[:2]]
        tokens = [seen.token for seen in self.effects]
        return stale + ([f"tokens went down: {tokens}"] if tokens != sorted(tokens) else [])


class Play(NamedTuple):
    """One order, what the sessions answered, and what the observer saw."""

    order: Order
    answers: list[Any]
    faults: list[str]
    effects: list[Seen]


def plays(
    sessions: Sequence[Session], observer: Observer, orders: Iterator[Order], setting: Callable[[], Sequence[Act]]
) -> Iterator[Play]:
    """Play each order in a fresh setting, which says what the sessions do."""
    for order in orders:
        acts = setting()
        observer.start()
        playing = sessions[: len(acts)]
        began_at = time.monotonic()
        for session, act in zip(playing, acts, strict=True):
            session.begin_session(act)
        interleaving.play(playing, order, observer.look)
        took_s = time.monotonic() - began_at
        answers = [session.outcome for session in playing]
        assert not [each for each in answers if isinstance(each, Exception)], (order, answers)
        assert took_s < LONGEST_S, (order, f"somebody was kept for {took_s:.1f} s")
        yield Play(order, answers, observer.faults(), observer.effects)


def writes(begin: Begin, effects: str, token: int, who: str = "") -> Act:
    """Write one effect behind the fence; after a conflict again, as `run.in_transaction` does."""
    insert = text(f"INSERT INTO {effects} (token, who) VALUES (:token, :who)")

    def act(session: Session) -> str:
        for _ in range(TRIES):
            try:
                with begin(session) as tx:
                    tx.execute(insert, {"token": token, "who": who})
            except LeaseLost:
                return REFUSED
            except TransactionConflict:
                continue
            except DBAPIError as error:
                if session.dialect.trouble_of(error.orig) is not Trouble.CONFLICT:
                    raise
                continue
            return WRITTEN
        return CONFLICT

    return act
