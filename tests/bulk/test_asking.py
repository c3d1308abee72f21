"""Questions that are sent ahead: the same answers, no snapshot held, and errors told when the answer is wanted."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from sqlalchemy import Engine, text

from fencepost.bulk.asking import Asking
from fencepost.bulk.collecting import sparing_what_is_there
from fencepost.bulk.reading import Reading
from fencepost.testing import until

NUMBERS = "SELECT n FROM generate_series(%(first)s::int, %(first)s::int + 2999) n"
pytestmark = pytest.mark.parametrize("kind", ["postgresql"])


@pytest.fixture
def connection(engine: Engine) -> Iterator[psycopg.Connection[Any]]:
    url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as made:
        yield made


@pytest.fixture
def asking(connection: psycopg.Connection[Any]) -> Iterator[Asking]:
    made = Asking(connection)
    yield made
    made.close()


def test_answers_are_those_to_the_questions(asking: Asking) -> None:
    for first in range(12):  # by then the driver has prepared the statement
        asking.ask(NUMBERS, {"first": first})
        rows = asking.answer(NUMBERS, {"first": first}).fetchall()
        assert (len(rows), rows[0], rows[-1]) == (3000, (first,), (first + 2999,))


def test_another_question_may_come_between(asking: Asking) -> None:
    asking.ask(NUMBERS, {"first": 1})
    assert asking.answer("SELECT 'another'", None).fetchall() == [("another",)]
    assert asking.answer(NUMBERS, {"first": 1}).fetchall()[0] == (1,)
    asking.ask(NUMBERS, {"first": 2})
    assert asking.answer(NUMBERS, {"first": 3}).fetchall()[0] == (3,)


def test_no_snapshot_is_held_while_an_answer_waits(
    asking: Asking, connection: psycopg.Connection[Any], engine: Engine
) -> None:
    asking.ask(NUMBERS, {"first": 1})
    look = text("SELECT state, xact_start, backend_xmin FROM pg_stat_activity WHERE pid = :pid")

    def is_idle() -> bool:
        with engine.connect() as other:
            return tuple(other.execute(look, {"pid": connection.info.backend_pid}).one()) == ("idle", None, None)

    until(is_idle, 10, "its transaction has ended")
    assert asking.answer(NUMBERS, {"first": 1}).fetchall()[0] == (1,)


def test_an_error_is_told_when_the_answer_is_wanted(asking: Asking) -> None:
    asking.ask("SELECT 1 / 0", None)
    with pytest.raises(psycopg.errors.DivisionByZero):
        asking.answer("SELECT 1 / 0", None).fetchall()
    assert asking.answer("SELECT 2", None).fetchall() == [(2,)]


def test_what_nobody_wanted_leaves_the_connection_as_it_was(
    asking: Asking, connection: psycopg.Connection[Any]
) -> None:
    asking.ask(NUMBERS, {"first": 1})
    asking.close()
    assert connection.info.transaction_status == TransactionStatus.IDLE
    assert connection.execute("SELECT 3").fetchall() == [(3,)]


def test_a_reading_that_broke_is_let_go_without_a_complaint(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    reading = Reading(engine)
    reading.ask("SELECT 1 AS one", {})
    assert reading.fetch("SELECT 1 AS one", {}).rows == [(1,)]
    reading.ask("SELECT pg_terminate_backend(pg_backend_pid())", {})
    with pytest.raises(psycopg.OperationalError), caplog.at_level(logging.WARNING):
        reading.fetch("SELECT pg_terminate_backend(pg_backend_pid())", {})
    reading.close()
    del reading
    gc.collect()
    assert "error ignored" not in caplog.text
    following = Reading(engine)
    assert following.fetch("SELECT 2 AS two", {}).rows == [(2,)]
    following.close()


def test_a_reading_that_is_closed_early_gives_its_connection_back(engine: Engine) -> None:
    reading = Reading(engine)
    reading.ask("SELECT 1 AS one", {})
    reading.close()
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    with engine.begin() as again:  # which is in no pipeline, and in no autocommit
        again.execute(text("CREATE TABLE made (n int)"))
        again.rollback()


def test_what_is_there_is_spared_until_the_last_has_ended(kind: str) -> None:
    assert kind
    usual = gc.get_threshold()
    with sparing_what_is_there():
        assert gc.get_freeze_count() > 0
        with sparing_what_is_there():
            pass
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] > usual[0]
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == usual
