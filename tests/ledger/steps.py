"""Calls on the ledger, made statement by statement in an order of our choosing, on real PostgreSQL and MariaDB.

Each actor has a connection of its own that stops before every statement. No deadlock is let pass: the connection
would repeat the call, and nobody would notice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.ledger import Ledger
from fencepost.sql.troubles import REPEATABLE, trouble_of
from tests import interleaving

Act = Callable[[LedgerConnection], Any]


class Watcher:
    """Sees from outside whether a connection waits for a lock."""

    def __init__(self, ledger: Ledger) -> None:
        self._is_postgres = ledger.dialect.name == "postgresql"
        self._connection = ledger.connect("watcher")

    def number_of(self, connection: LedgerConnection) -> int:
        sql = "SELECT pg_backend_pid()" if self._is_postgres else "SELECT CONNECTION_ID()"
        return int(_rows(connection, sql)[0][0])

    def waits(self, number: int) -> bool:
        if self._is_postgres:  # the lock is granted by whoever gives it up: this is never out of date
            return bool(_rows(self._connection, "SELECT 1 FROM pg_locks WHERE pid = %s AND NOT granted", number))
        [(_, _, status)] = _rows(self._connection, "SHOW ENGINE INNODB STATUS")
        transactions = status.split("---TRANSACTION")[1:]  # before these stands the latest deadlock, with its waiters
        return any(f"thread id {number}," in each and "LOCK WAIT" in each for each in transactions)

    def close(self) -> None:
        self._connection.rest()


def _rows(connection: LedgerConnection, sql: str, *parameters: Any) -> list[Any]:
    with connection.autocommit() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


class Actor(interleaving.Actor):
    """Makes one call on a connection of its own."""

    def __init__(self, ledger: Ledger, watcher: Watcher, name: str) -> None:
        self.conflicts: list[Exception] = []
        self._connection = ledger.connect(name)
        number = watcher.number_of(self._connection)
        self._cursor = self._connection._cursor
        super().__init__(name, lambda: watcher.waits(number))

    def begin_on_connection(self, act: Act) -> None:
        self.conflicts.clear()
        self._connection._cursor = Stopping(self._cursor, self)
        self.begin(lambda: act(self._connection))

    def close(self) -> None:
        self._connection.rest()

    def note(self, error: Exception) -> None:
        if trouble_of(error) in REPEATABLE:
            self.conflicts.append(error)


class Stopping:
    """A cursor that stops before each statement."""

    def __init__(self, cursor: Any, actor: Actor) -> None:
        self._cursor = cursor
        self._actor = actor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, *arguments: Any, **options: Any) -> Any:
        self._actor.stop()
        try:
            return self._cursor.execute(*arguments, **options)
        except Exception as error:
            self._actor.note(error)
            raise


def played(
    actors: Sequence[Actor], acts: Sequence[Act], order: interleaving.Order, *, may_conflict: bool = False
) -> list[Any]:
    """Play one order to its end, and return what the calls answered."""
    playing = list(actors[: len(acts)])
    for actor, act in zip(playing, acts, strict=True):
        actor.begin_on_connection(act)
    interleaving.play(playing, order)
    answers = [actor.outcome for actor in playing]
    assert not [each for each in answers if isinstance(each, Exception)], (order, answers)
    assert may_conflict or not [each for actor in playing for each in actor.conflicts], (order, "deadlock")
    return answers
