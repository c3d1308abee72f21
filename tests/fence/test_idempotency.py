"""Idempotency: of all who offer a key one gets it, the others wait and know, and key and effect are one."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

import fencepost
from fencepost.errors import (
    ConfigurationError,
    EffectsMissing,
    IdempotencyConflict,
    InvalidDuration,
    InvalidName,
    InvalidUrl,
    Stopped,
)
from fencepost.sql.spelling import SPELLING
from fencepost.sql.troubles import Trouble, trouble_of
from tests.fence.effect_places import SOON_S, Asking, EffectPlace, place

__all__ = ["place"]


def once(place: EffectPlace, tx: Any, key: str = "settle:1", **options: Any) -> bool:
    return fencepost.once(key, tx.tx, prefix=place.prefix, **options)


def expire(place: EffectPlace) -> None:
    """Let the time of every key be over."""
    place.execute("UPDATE T_idempotency_key SET expires_at = created_at")


@pytest.fixture
def server(place: EffectPlace) -> EffectPlace:
    if place.kind == "sqlite":
        pytest.skip("one isolation, and one writer at a time")
    return place


class TestOnce:
    def test_the_first_gets_it_and_later_ones_do_not(self, place: EffectPlace) -> None:
        first, second = place.begin(), place.begin()
        assert once(place, first)
        assert not once(place, first)
        first.commit()
        assert not once(place, second)

    def test_a_key_that_is_rolled_back_was_never_offered(self, place: EffectPlace) -> None:
        first, second = place.begin(), place.begin()
        assert once(place, first)
        first.rollback()
        assert once(place, second)

    def test_who_comes_meanwhile_waits_for_the_commit_and_knows(self, place: EffectPlace) -> None:
        first, second = place.begin(), place.begin()
        assert once(place, first)
        asking = Asking(lambda: once(place, second))
        place.waits(second)
        assert place.kind == "sqlite" or asking.is_alive()
        first.commit()
        assert asking.answer() is False

    def test_who_comes_meanwhile_waits_for_the_roll_back_and_gets_it(self, place: EffectPlace) -> None:
        first, second = place.begin(), place.begin()
        assert once(place, first)
        asking = Asking(lambda: once(place, second))
        place.waits(second)
        first.rollback()
        assert asking.answer() is True
        second.commit()
        assert len(place.rows("idempotency_key")) == 1

    def test_of_many_at_once_one_gets_it(self, place: EffectPlace) -> None:
        start = threading.Barrier(6)

        def offer(tx: Any) -> bool:
            start.wait(SOON_S)
            got = once(place, tx)
            tx.commit()
            return got

        transactions = [place.begin() for _ in range(6)]
        answers = [asking.answer() for asking in [Asking(lambda tx=tx: offer(tx)) for tx in transactions]]
        assert sorted(answers) == [False] * 5 + [True]

    def test_of_many_who_wait_for_one_that_is_rolled_back_one_gets_it(self, place: EffectPlace) -> None:
        first, *others = [place.begin() for _ in range(4)]
        assert once(place, first)
        asking = [Asking(lambda tx=tx: committed_once(place, tx)) for tx in others]
        for tx in others:
            place.waits(tx)
        first.rollback()
        assert sorted(each.answer() for each in asking) == [False, False, True]
        assert len(place.rows("idempotency_key")) == 1

    def test_an_expired_key_counts_as_absent_once(self, place: EffectPlace) -> None:
        first, second, third = place.begin(), place.begin(), place.begin()
        assert once(place, first, expires="1h")
        first.commit()
        assert not once(place, second, expires="1h")
        second.rollback()
        expire(place)
        assert once(place, second, expires="1h")
        second.commit()
        assert not once(place, third)

    def test_of_two_who_take_an_expired_key_one_gets_it(self, place: EffectPlace) -> None:
        first, second, third = place.begin(), place.begin(), place.begin()
        once(place, first, expires="1h")
        first.commit()
        expire(place)
        assert once(place, second, expires=timedelta(hours=1))
        asking = Asking(lambda: once(place, third, expires="1h"))
        place.waits(third)
        second.commit()
        assert asking.answer() is False

    def test_a_key_without_expiry_stays(self, place: EffectPlace) -> None:
        tx = place.begin()
        once(place, tx)
        tx.commit()
        assert place.rows("idempotency_key", "expires_at") == [(None,)]

    def test_it_expires_by_the_time_of_the_database(self, place: EffectPlace) -> None:
        tx = place.begin()
        once(place, tx, expires="90s")
        tx.commit()
        [(created, expires)] = place.rows("idempotency_key", "created_at, expires_at")
        assert 90_000_000 <= expires - created < 91_000_000
        assert abs(place.database.now_us() - created) < SOON_S * 1e6

    def test_keys_of_any_length_and_with_any_character_are_told_apart(self, place: EffectPlace) -> None:
        tx = place.begin()
        keys = ["x" * 500 + "1", "x" * 500 + "2", "a", "A", "a ", "ä", "a%s", "a'b", "%(key)s", ":key", "?"]
        assert [once(place, tx, key) for key in keys] == [True] * len(keys)
        assert [once(place, tx, key) for key in keys] == [False] * len(keys)
        tx.commit()

    def test_a_database_without_the_tables_is_told_what_to_run(self, place: EffectPlace) -> None:
        tx = place.begin()
        with pytest.raises(EffectsMissing, match=r"run: fencepost effects install '\w+://.*prefix=absent_'"):
            fencepost.once("k", tx.tx, prefix="absent_")

    @pytest.mark.parametrize("key", ["", None, 7])
    def test_a_key_is_a_text(self, key: Any) -> None:
        with pytest.raises(InvalidName, match="must be a non-empty string"):
            fencepost.once(key, sqlite3.connect(":memory:"))

    def test_an_expiry_of_nothing_is_refused(self) -> None:
        with pytest.raises(InvalidDuration, match="greater than zero"):
            fencepost.once("k", sqlite3.connect(":memory:"), expires=0)

    def test_a_prefix_is_an_identifier(self) -> None:
        with pytest.raises(InvalidUrl, match="prefix="):
            fencepost.once("k", sqlite3.connect(":memory:"), prefix="x; DROP TABLE y")


class TestIsolation:
    @pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
    def test_what_was_committed_since_is_known_or_a_conflict_and_never_a_second_time(
        self, server: EffectPlace, isolation: str
    ) -> None:
        server.isolation = isolation
        first, second = server.begin(), server.begin()
        assert not _count(second, server)  # its snapshot is taken
        asking = Asking(lambda: committed_once(server, first))
        if isolation == "REPEATABLE READ" or server.kind == "postgresql":
            assert asking.answer()  # else one of them has to wait for the other, and both at once is a deadlock
        got = committed_once(server, second)
        assert sorted([got, asking.answer()]) == [False, True]
        assert len(server.rows("idempotency_key")) == 1


def committed_once(place: EffectPlace, tx: Any) -> bool:
    """Offer the key and commit; again after a conflict, as `run.in_transaction` does."""
    for _ in range(5):
        try:
            got = once(place, tx)
            tx.commit()
        except Exception as error:
            if trouble_of(error) not in (Trouble.CONFLICT, Trouble.DEADLOCK):
                raise
            tx.rollback()
        else:
            return got
    raise AssertionError("it never came through")


def _count(tx: Any, place: EffectPlace) -> int:
    sql = f"SELECT count(*) FROM {place.prefix}idempotency_key"
    if hasattr(tx.tx, "cursor"):
        with tx.tx.cursor() as cursor:
            cursor.execute(sql)
            return int(cursor.fetchone()[0])
    return int(tx.tx.execute(sa.text(sql)).scalar())


class TestAutocommit:
    def test_a_connection_that_commits_at_once_is_refused(self, place: EffectPlace) -> None:
        with self.autocommitting(place) as connection, pytest.raises(ConfigurationError, match="autocommit"):
            fencepost.once("k", connection, prefix=place.prefix)
        assert place.rows("idempotency_key") == []

    def test_one_with_a_transaction_open_is_taken(self, place: EffectPlace) -> None:
        if "sqlalchemy" in place.way or "session" in place.way:
            pytest.skip("AUTOCOMMIT has no transactions there")
        with self.autocommitting(place) as connection:
            connection.cursor().execute("BEGIN")
            assert fencepost.once("k", connection, prefix=place.prefix)
            connection.cursor().execute("COMMIT")
        assert len(place.rows("idempotency_key")) == 1

    @staticmethod
    @contextmanager
    def autocommitting(place: EffectPlace) -> Iterator[Any]:
        made = place.begin()
        match place.way:
            case "sqlite3":
                made.tx.isolation_level = None
                yield made.tx
            case "psycopg":
                made.tx.rollback()
                made.tx.autocommit = True
                yield made.tx
            case "pymysql":
                made.tx.autocommit(True)
                yield made.tx
            case _ if place.kind == "sqlite":
                engine = sa.create_engine(place.engine.url, connect_args={"isolation_level": None})
                with engine.connect() as connection:
                    yield connection
                engine.dispose()
            case _:
                with place.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                    yield connection


class Settling:
    """An idempotent function that counts how often it ran."""

    def __init__(self, place: EffectPlace, **options: Any) -> None:
        self.runs = 0
        options = {"key": "settle:{order}", "prefix": place.prefix, **options}

        @fencepost.idempotent(**options)
        def settle(tx: Any, order: int, amount: Decimal = Decimal(1), *, fails: bool = False) -> Any:
            self.runs += 1
            if fails:
                raise ZeroDivisionError
            return {"order": order, "number": self.runs, "parts": ("a", None)}

        self.settle = settle


class TestIdempotent:
    def test_it_runs_once_and_then_returns_the_same(self, place: EffectPlace) -> None:
        settling, first, second = Settling(place), place.begin(), place.begin()
        result = settling.settle(first.tx, 1)
        assert result == {"order": 1, "number": 1, "parts": ["a", None]}
        assert settling.settle(first.tx, 1) == result
        first.commit()
        assert settling.settle(second.tx, order=1, amount=Decimal("1.00")) == result
        assert settling.runs == 1
        assert settling.settle(second.tx, 2)["number"] == 2

    def test_a_twin_waits_and_gets_the_result_of_the_first(self, place: EffectPlace) -> None:
        settling, first, second = Settling(place), place.begin(), place.begin()
        result = settling.settle(first.tx, 1)
        asking = Asking(lambda: settling.settle(second.tx, 1))
        place.waits(second)
        first.commit()
        assert asking.answer() == result
        assert settling.runs == 1

    def test_a_twin_runs_if_the_first_is_rolled_back(self, place: EffectPlace) -> None:
        settling, first, second = Settling(place), place.begin(), place.begin()
        settling.settle(first.tx, 1)
        asking = Asking(lambda: settling.settle(second.tx, 1))
        place.waits(second)
        first.rollback()
        assert asking.answer()["number"] == 2

    def test_other_arguments_under_the_key_are_refused(self, place: EffectPlace) -> None:
        settling, tx = Settling(place), place.begin()
        settling.settle(tx.tx, 1)
        with pytest.raises(IdempotencyConflict, match=r"'settle:1' was used before with other arguments .* settle;"):
            settling.settle(tx.tx, 1, Decimal(2))
        assert settling.runs == 1

    def test_another_function_under_the_key_is_refused(self, place: EffectPlace) -> None:
        settling, other, tx = Settling(place), Settling(place, name="other"), place.begin()
        settling.settle(tx.tx, 1)
        with pytest.raises(IdempotencyConflict):
            other.settle(tx.tx, 1)

    def test_a_key_taken_by_once_is_refused(self, place: EffectPlace) -> None:
        settling, tx = Settling(place), place.begin()
        once(place, tx, "settle:1")
        with pytest.raises(IdempotencyConflict):
            settling.settle(tx.tx, 1)

    def test_work_that_fails_was_not_done_even_if_somebody_commits(self, place: EffectPlace) -> None:
        settling, first, second = Settling(place), place.begin(), place.begin()
        with pytest.raises(ZeroDivisionError):
            settling.settle(first.tx, 1, fails=True)
        first.commit()
        assert place.rows("idempotency_key") == []
        assert settling.settle(second.tx, 1)["number"] == 2

    def test_work_whose_transaction_was_ended_forgets_nobody_elses_key(self, place: EffectPlace) -> None:
        """As after a deadlock on MySQL, if its caller commits what is left."""
        settling, first, second = Settling(place), place.begin(), place.begin()

        @fencepost.idempotent(key="settle:{order}", prefix=place.prefix, name="settle")
        def ended(tx: Any, order: int) -> None:
            first.rollback()
            settling.settle(second.tx, order)
            second.commit()
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            ended(first.tx, 1)
        first.commit()
        assert len(place.rows("idempotency_key")) == 1

    def test_a_result_that_is_no_json_is_told_and_nothing_is_written(self, place: EffectPlace) -> None:
        @fencepost.idempotent(key="k:{x}", prefix=place.prefix)
        def settle(tx: Any, x: int) -> Any:
            return {"amount": Decimal(1)}

        tx = place.begin()
        with pytest.raises(
            TypeError, match=r"the result of settle cannot be stored as JSON .*Decimal.*; nothing was written"
        ):
            settle(tx.tx, 1)
        tx.commit()
        assert place.rows("idempotency_key") == []

    def test_a_function_of_the_arguments_makes_the_key(self, place: EffectPlace) -> None:
        def made(order: int, amount: Decimal = Decimal(1), *, fails: bool = False) -> str:
            return fencepost.work_key("settle", order, amount)

        settling, tx = Settling(place, key=made), place.begin()
        settling.settle(tx.tx, 1)
        settling.settle(tx.tx, 1, Decimal(2))
        tx.commit()
        assert place.rows("idempotency_key", SPELLING[place.kind].key) == [("settle:1:1",), ("settle:1:2",)]

    def test_when_the_key_expired_it_runs_again_even_with_other_arguments(self, place: EffectPlace) -> None:
        settling, first, second = Settling(place, expires="1d"), place.begin(), place.begin()
        settling.settle(first.tx, 1)
        first.commit()
        expire(place)
        assert settling.settle(second.tx, 1, Decimal(2))["number"] == 2
        second.commit()
        [(result,)] = place.rows("idempotency_key", "result")
        assert json.loads(result)["number"] == 2

    def test_nothing_is_a_result(self, place: EffectPlace) -> None:
        runs = []

        @fencepost.idempotent(key="k:{x}", prefix=place.prefix)
        def note(tx: Any, x: date) -> None:
            runs.append(x)

        tx = place.begin()
        for _ in range(2):
            assert note(tx.tx, date(2026, 1, 1)) is None  # type: ignore[func-returns-value]
        assert len(runs) == 1

    def test_a_function_that_calls_itself_under_its_key_is_told(self, place: EffectPlace) -> None:
        @fencepost.idempotent(key="k:{x}", prefix=place.prefix)
        def settle(tx: Any, x: int) -> Any:
            return settle(tx, x)

        with pytest.raises(RuntimeError, match="calls itself"):
            settle(place.begin().tx, 1)


class TestDeclaring:
    def test_an_async_function_is_refused(self) -> None:
        async def settle(tx: Any, x: int) -> None: ...

        with pytest.raises(TypeError, match=r"settle is async.*asyncio.to_thread"):
            fencepost.idempotent(key="{x}")(settle)

    def test_a_generator_is_refused(self) -> None:
        def settle(tx: Any, x: int) -> Iterator[int]:
            yield x

        with pytest.raises(TypeError, match="generator"):
            fencepost.idempotent(key="{x}")(settle)

    @pytest.mark.parametrize(
        ("key", "says"),
        [
            ("{y}", "refers to 'y'; it can refer to: x"),
            ("{tx}", "it can refer to: x"),
            ("{}", "refers to 'nothing'"),
            ("{0}", "refers to '0'"),
            ("settle", "refers to none of its arguments"),
            ("{x", "not a valid format string"),
            (7, "a string or a function"),
        ],
    )
    def test_a_key_that_cannot_tell_calls_apart_is_refused(self, key: Any, says: str) -> None:
        with pytest.raises(TypeError, match=says):
            fencepost.idempotent(key=key)(lambda tx, x: None)

    def test_a_function_without_a_transaction_is_refused(self) -> None:
        with pytest.raises(TypeError, match="first parameter of an idempotent function must be the transaction"):
            fencepost.idempotent(key="{x}")(lambda: None)

    def test_arguments_that_cannot_be_compared_are_refused_before_anything_is_done(self) -> None:
        settle = fencepost.idempotent(key="{x}")(lambda tx, x: None)
        with pytest.raises(TypeError, match=r"argument 'x' of .*contains a object, by which calls cannot be compared"):
            settle(None, [object()])

    def test_name_and_doc_stay(self) -> None:
        def settle(tx: Any, x: int) -> None:
            """Settle."""

        wrapped = fencepost.idempotent(key="{x}")(settle)
        assert (wrapped.__name__, wrapped.__doc__) == ("settle", "Settle.")


def test_effect_and_key_are_one_on_a_psycopg_connection_as_a_context(postgres: Any) -> None:
    from fencepost.effects.installing import install, open_database
    from tests.fence.effect_places import RUNTIME

    database = open_database(f"{postgres.url}?prefix=ctx_", RUNTIME)
    install(database)
    database.close()
    with psycopg.connect(postgres.url) as connection:
        with pytest.raises(Stopped), connection.transaction():
            assert fencepost.once("k", connection, prefix="ctx_")
            raise Stopped("cancelled")
        with connection.transaction():
            assert fencepost.once("k", connection, prefix="ctx_")
