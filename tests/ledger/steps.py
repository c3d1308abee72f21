"""Calls on the ledger, made statement by statement in an order of our choosing, on real PostgreSQL and MariaDB.

Each actor has a desk of its own that stops before every statement. A schedule lets one actor execute a few statements,
then others, then the first again; who waits for a lock is passed over until it has it. No deadlock is let pass: the
desk would repeat the call, and nobody would notice.
"""

from __future__ import annotations

import itertools
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fencepost.ledger.desk import Desk
from fencepost.ledger.dialects import Trouble
from fencepost.ledger.ledger import Ledger

PATIENCE_S = 30.0

Act = Callable[[Desk], Any]


class Watcher:
    """Sees from outside whether a connection waits for a lock."""

    def __init__(self, ledger: Ledger) -> None:
        self._is_postgres = ledger.dialect.name == "postgresql"
        self._desk = ledger.desk("watcher")

    def number_of(self, desk: Desk) -> int:
        sql = "SELECT pg_backend_pid()" if self._is_postgres else "SELECT CONNECTION_ID()"
        return int(_rows(desk, sql)[0][0])

    def waits(self, number: int) -> bool:
        if self._is_postgres:
            sql = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
            return bool(_rows(self._desk, sql, number))
        [(_, _, status)] = _rows(self._desk, "SHOW ENGINE INNODB STATUS")
        transactions = status.split("---TRANSACTION")
        return any(f"thread id {number}," in each and "LOCK WAIT" in each for each in transactions)

    def close(self) -> None:
        self._desk.rest()


def _rows(desk: Desk, sql: str, *parameters: Any) -> list[Any]:
    with desk.autocommit() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


class Actor:
    """Makes one call, statement by statement."""

    def __init__(self, ledger: Ledger, watcher: Watcher, name: str) -> None:
        self.name = name
        self.conflicts: list[Exception] = []
        self._watcher = watcher
        self._desk = ledger.desk(name)
        self._number = watcher.number_of(self._desk)
        self._cursor = self._desk._cursor
        self._go: queue.Queue[None] = queue.Queue()
        self._news: queue.Queue[str] = queue.Queue()

    def begin(self, act: Act) -> None:
        """Go as far as the first statement."""
        self._desk._cursor = _Stopping(self._cursor, self)
        self.outcome: Any = None
        self.is_done = self._is_in_statement = False
        threading.Thread(target=self._run, args=(act,), daemon=True).start()
        self._hear()

    def step(self) -> None:
        """Execute the next statement: to its end, or until it waits for another's lock."""
        if self.is_done:
            return
        if not self._is_in_statement:
            self._is_in_statement = True
            self._go.put(None)
        give_up_at = time.monotonic() + PATIENCE_S
        while not self._hears_within(0.02):
            if self._watcher.waits(self._number):
                return
            assert time.monotonic() < give_up_at, f"{self.name} neither ends nor waits"

    def close(self) -> None:
        self._desk.rest()

    def stop(self) -> None:
        """Stop before a statement, on the thread of the call."""
        self._news.put("stopped")
        self._go.get(timeout=PATIENCE_S)

    def note(self, error: Exception) -> None:
        if self._desk.dialect.trouble_of(error) is Trouble.CONFLICT:
            self.conflicts.append(error)

    def _run(self, act: Act) -> None:
        try:
            self.outcome = act(self._desk)
        except Exception as error:  # noqa: BLE001 - shown by the test
            self.outcome = error
        self._news.put("done")

    def _hears_within(self, timeout_s: float) -> bool:
        try:
            self._hear(timeout_s)
        except queue.Empty:
            return False
        return True

    def _hear(self, timeout_s: float = PATIENCE_S) -> None:
        self.is_done = self._news.get(timeout=timeout_s) == "done"
        self._is_in_statement = False


class _Stopping:
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


def schedules(counts: Sequence[int], *, mixed: int) -> Iterator[tuple[int, ...]]:
    """Yield orders of steps, as numbers of actors.

    All in which each actor is interrupted at most once; and `mixed` in which they are interrupted at random.
    """
    for order in itertools.permutations(range(len(counts))):
        *early, last = order
        for steps in itertools.product(*(range(counts[actor] + 1) for actor in early)):
            yield (
                *(actor for actor, many in zip(early, steps, strict=True) for _ in range(many)),
                *[last] * counts[last],
            )
    for seed in range(mixed):
        dice = random.Random(seed)
        yield tuple(dice.choices(range(len(counts)), k=sum(counts)))


def played(
    actors: Sequence[Actor], acts: Sequence[Act], schedule: Sequence[int], *, may_conflict: bool = False
) -> list[Any]:
    """Play one schedule to its end, and return what the calls answered."""
    playing = list(actors[: len(acts)])
    for actor, act in zip(playing, acts, strict=True):
        actor.conflicts.clear()
        actor.begin(act)
    for number in schedule:
        playing[number].step()
    give_up_at = time.monotonic() + PATIENCE_S
    while not all(actor.is_done for actor in playing):
        for actor in playing:
            actor.step()
        assert time.monotonic() < give_up_at, (schedule, [actor.is_done for actor in playing])
    answers = [actor.outcome for actor in playing]
    assert not [each for each in answers if isinstance(each, Exception)], (schedule, answers)
    assert may_conflict or not [each for actor in playing for each in actor.conflicts], (schedule, "deadlock")
    return answers
