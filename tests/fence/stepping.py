"""Sessions that claim, raise, write, check, commit and reap statement by statement, and somebody who watches them.

The observer looks between any two statements, in one statement of its own: so it sees effects in the order in which the
database committed them, and it knows what the fence said the moment before each of them. An effect that appears when
the fence had moved on before is a stale write, whatever anybody was told about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import psycopg
import pymysql
import sqlalchemy
from psycopg.pq import ExecStatus
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError

from fencepost.errors import LeaseLost, TransactionConflict
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.ledger import Ledger
from fencepost.sql.troubles import REPEATABLE, trouble_of
from tests import interleaving
from tests.interleaving import Order
from tests.ledger.steps import Stopping, Watcher

LEVELS = ("read committed", "repeatable read", "serializable")
TRIES = 5
STUCK_S = 2.0  # for how long at most all may wait for each other: the longest that a lock is waited for, and a bit

WRITTEN, REFUSED, CONFLICT = "written", "refused", "conflict"
COMMIT = "COMMIT"


class Session(interleaving.Actor):
    """One node's connections: one to the ledger, and an engine for the job's own statements."""

    def __init__(self, ledger: Ledger, watcher: Watcher, name: str) -> None:
        self.connection = ledger.connect(name)
        self.dialect = ledger.dialect
        self.labels: list[str] = []
        self._numbers: tuple[int, ...] = (watcher.number_of(self.connection),)
        self._cursor = self.connection._cursor
        self._is_stepping = False
        self.engine = self._engine(ledger)
        super().__init__(name, lambda: any(watcher.waits(number) for number in self._numbers))

    def begin_session(self, act: Callable[[Session], Any]) -> None:
        self.connection._cursor = Stopping(self._cursor, self)
        self.labels = []
        self._is_stepping = True
        self.begin(lambda: act(self))

    def stop_before(self, label: str) -> None:
        """Stop before a round trip of one of the engine's connections."""
        if self._is_stepping:
            self.labels.append(label)
            self.stop()

    def note(self, error: Exception) -> None:
        """Take note of a statement's error: the connection repeats what it can."""

    def close(self) -> None:
        self._is_stepping = False
        self.engine.dispose()
        self.connection.rest()

    def _engine(self, ledger: Ledger) -> Engine:
        engine = sqlalchemy.create_engine(ledger.url.sqlalchemy(), pool_size=2)
        connect = stepped_psycopg if ledger.dialect.name == "postgresql" else stepped_pymysql
        event.listen(engine, "do_connect", lambda dialect, record, words, options: connect(self, *words, **options))
        event.listen(engine, "connect", self._number)
        with engine.connect(), engine.connect():  # whatever SQLAlchemy wants to know of the server, it asks now
            return engine

    def _number(self, connection: Any, _: object) -> None:
        info = getattr(connection, "info", None)
        self._numbers += (info.backend_pid if info is not None else connection.thread_id(),)


def stepped_psycopg(session: Session, *words: Any, **options: Any) -> Any:
    """Connect so that every round trip is a step, whatever it is made through."""

    class Cursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, *arguments: Any, **more: Any) -> Any:
            self.connection.label = str(query)
            return super().execute(query, *arguments, **more)

    class Connection(psycopg.Connection[Any]):
        label = ""

        def wait(self, *arguments: Any, **more: Any) -> Any:
            label, self.label = self.label, ""
            session.stop_before(label)
            return super().wait(*arguments, **more)

        def commit(self) -> None:
            self.label = COMMIT
            super().commit()

        def stop_before(self, statement: bytes) -> None:
            session.stop_before(statement.decode())

    return Connection.connect(*words, cursor_factory=Cursor, **options)


def sent_one_by_one(connection: Any, *statements: bytes, **_: Any) -> Any:
    """What goes to the server together, in steps: whatever may happen between any two of them, may happen there."""
    for statement in statements:
        if hasattr(connection, "stop_before"):
            connection.stop_before(statement)
        result = connection.pgconn.exec_(statement)
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            break
    return result


def stepped_pymysql(session: Session, *words: Any, **options: Any) -> Any:
    """Connect so that every statement is a step."""

    class Connection(pymysql.connections.Connection):  # type: ignore[type-arg]
        def query(self, sql: Any, *arguments: Any, **more: Any) -> Any:
            session.stop_before(sql if isinstance(sql, str) else bytes(sql).decode())
            return super().query(sql, *arguments, **more)

        def commit(self) -> None:
            session.stop_before(COMMIT)
            super().commit()

        def rollback(self) -> None:
            session.stop_before("ROLLBACK")
            super().rollback()

    return Connection(*words, **options)


Act = Callable[[Session], Any]
Begin = Callable[[Session], AbstractContextManager[Connection]]


class Seen(NamedTuple):
    """An effect, and what the fence said when it was not yet there."""

    token: int
    who: str
    mark: tuple[int, str] | None


class Observer:
    """Sees what is committed, in the order in which it is committed."""

    def __init__(self, connection: LedgerConnection, effects: str, mark_sql: str) -> None:
        """`mark_sql` selects the fence as columns (0, token, grant)."""
        self._connection = connection
        self._sql = f"SELECT id, token, who FROM {effects} UNION ALL {mark_sql} ORDER BY 1"
        self.effects: list[Seen] = []
        self._ids: set[int] = set()
        self._mark: tuple[int, str] | None = None

    def start(self) -> None:
        self.effects, self._ids, self._mark = [], set(), None
        self.look()

    def look(self) -> None:
        with self._connection.autocommit() as cursor:
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
        for session, act in zip(playing, acts, strict=True):
            session.begin_session(act)
        stuck_s = interleaving.play(playing, order, observer.look)
        answers = [session.outcome for session in playing]
        assert not [each for each in answers if isinstance(each, Exception)], (order, answers)
        assert stuck_s < STUCK_S, (order, f"all waited for each other for {stuck_s:.1f} s")
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
                if trouble_of(error.orig) not in REPEATABLE:
                    raise
                continue
            return WRITTEN
        return CONFLICT

    return act


def sizes_of(session: Session, act: Act, table: str, *, is_transaction: bool = True) -> tuple[int, ...]:
    """Do it alone, and return how many round trips each of its steps has, up to the commit of a write to this table.

    What neither sees nor locks rows is one step with what follows it; in a transaction, so is all that precedes the
    effect.
    """
    session.begin_session(act)
    interleaving.play([session], ())
    assert not isinstance(session.outcome, Exception), session.outcome
    labels = session.labels
    writing = next(number for number, label in enumerate(labels) if _writes_to(label, table))
    sizes, size = [], 0
    for number, label in enumerate(labels[: labels.index(COMMIT, writing) + 1]):
        size += 1
        is_glued = _is_of_the_session(label) or (label == COMMIT and number < writing)
        if not (is_glued or (is_transaction and number < writing - 1)):
            sizes.append(size)
            size = 0
    return tuple(sizes)


def _writes_to(label: str, table: str) -> bool:
    return label.startswith((f"INSERT INTO {table} ", f"UPDATE {table} "))


def _is_of_the_session(label: str) -> bool:
    return not label or label.startswith(("BEGIN", "SET ", "SAVEPOINT ", "RELEASE ", "ROLLBACK TO "))


def expanded(order: Order, sizes: Sequence[tuple[int, ...]]) -> Order:
    """Let the steps of the first actors be as many round trips as they are."""
    left = [iter(each) for each in sizes]
    return tuple(number for number in order for _ in range(next(left[number], 1) if number < len(left) else 1))
