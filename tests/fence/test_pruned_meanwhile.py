"""A key whose time is over is removed while somebody takes it: between any two statements, and before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fencepost
from fencepost.fence.effect_statements import EffectStatements
from fencepost.sql.spelling import SPELLING
from fencepost.sql.troubles import Trouble, trouble_of
from tests.fence.effect_places import Asking, EffectPlace, place

__all__ = ["place"]

STATEMENTS = 5  # taking a key that has expired needs four at most
TRY_AGAIN = (Trouble.CONFLICT, Trouble.DEADLOCK)

pytestmark = pytest.mark.parametrize("place", ["psycopg", "pymysql"], indirect=True)
levels = pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])


class Pruning:
    """Removes what has expired before the n-th statement that takes a key, as the pruner of a node does."""

    def __init__(self, place: EffectPlace, monkeypatch: pytest.MonkeyPatch) -> None:
        self._place = place
        self._left = 0
        execute = EffectStatements.execute

        def executed(landing: EffectStatements, *given: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._prune()
            return execute(landing, *given)

        monkeypatch.setattr(EffectStatements, "execute", executed)

    def before(self, statement: int) -> None:
        self._left = statement

    def _prune(self) -> None:
        table, key = self._place.database.tables.name("idempotency_key"), SPELLING[self._place.kind].key
        with self._place.engine.begin() as connection:
            found = f"SELECT {key} FROM {table} WHERE expires_at <= created_at FOR UPDATE SKIP LOCKED"
            for (each,) in connection.exec_driver_sql(found).fetchall():
                connection.exec_driver_sql(f"DELETE FROM {table} WHERE {key} = %s", (each,))


@pytest.fixture
def pruning(place: EffectPlace, monkeypatch: pytest.MonkeyPatch) -> Pruning:
    return Pruning(place, monkeypatch)


def expired(place: EffectPlace) -> None:
    place.execute("DELETE FROM T_idempotency_key")
    tx = place.begin()
    assert fencepost.once("k:1", tx.tx, expires="1h", prefix=place.prefix)
    tx.commit()
    place.execute("UPDATE T_idempotency_key SET expires_at = created_at")


def in_transaction(place: EffectPlace, work: Callable[[Any], Any]) -> Any:
    """Do it in a transaction that has looked around before; again after a conflict, as `run.in_transaction` does."""
    tx = place.begin()
    for _ in range(5):
        try:
            with tx.tx.cursor() as cursor:
                cursor.execute(f"SELECT count(*) FROM {place.prefix}checkpoint")
            result = Asking(lambda: work(tx.tx)).answer()
            tx.commit()
        except Exception as error:
            if trouble_of(error) not in TRY_AGAIN:
                raise
            tx.rollback()
        else:
            return result
    raise AssertionError("it never came through")


@levels
def test_once_says_true_if_nothing_stands_under_the_key(place: EffectPlace, pruning: Pruning, isolation: str) -> None:
    place.isolation = isolation
    for statement in range(1, STATEMENTS):
        expired(place)
        pruning.before(statement)
        assert in_transaction(place, lambda tx: fencepost.once("k:1", tx, expires="1h", prefix=place.prefix)), statement
        assert len(place.rows("idempotency_key")) == 1


@levels
def test_an_idempotent_function_runs_once(place: EffectPlace, pruning: Pruning, isolation: str) -> None:
    place.isolation = isolation
    runs: list[int] = []

    @fencepost.idempotent(key="k:{order}", expires="1h", prefix=place.prefix)
    def settle(tx: Any, order: int) -> int:
        runs.append(order)
        return order

    for statement in range(1, STATEMENTS):
        expired(place)
        pruning.before(statement)
        runs.clear()
        assert in_transaction(place, lambda tx: settle(tx, 1)) == 1
        assert runs, statement
        runs.clear()
        assert in_transaction(place, lambda tx: settle(tx, 1)) == 1
        assert not runs, "its key stands again"
