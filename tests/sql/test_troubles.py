"""What errors of drivers mean, whichever exception the caller is handling meanwhile."""

from __future__ import annotations

import sqlite3

import psycopg
import pymysql
import pytest

from fencepost.sql.concerns import Concern, concern_of
from fencepost.sql.troubles import REPEATABLE, CallTimedOut, FileReplacedError, Trouble, trouble_of

MYSQL = {
    1213: Trouble.DEADLOCK,
    1205: Trouble.LOCKED,
    1062: Trouble.DUPLICATE,
    1146: Trouble.NO_TABLE,
    1049: Trouble.NO_DATABASE,
    1142: Trouble.FORBIDDEN,
    1045: Trouble.NO_ENTRY,
    1040: Trouble.BROKEN,
    2013: Trouble.BROKEN,
    1064: Trouble.REFUSED,
}


def raised(error: Exception, while_handling: Exception | None = None) -> Exception:
    """Return an error as it is after it was raised, perhaps while another one is being handled."""
    try:
        if while_handling is None:
            raise error
        try:
            raise while_handling
        except type(while_handling):
            raise error  # noqa: B904 - what it was raised for is what is tested
    except type(error) as caught:
        return caught


@pytest.mark.parametrize("number", MYSQL)
@pytest.mark.parametrize("handled", [None, TimeoutError("the service did not answer")])
def test_the_number_of_mysql_counts_and_not_what_the_caller_is_handling(number: int, handled: Exception | None) -> None:
    kind = pymysql.ProgrammingError if number == 1064 else pymysql.OperationalError
    assert trouble_of(raised(kind(number, "…"), handled)) is MYSQL[number]


def test_pymysql_that_gave_up_waiting_is_late() -> None:
    lost = pymysql.OperationalError(2013, "Lost connection to MySQL server during query (timed out)")
    assert trouble_of(raised(lost, TimeoutError("timed out"))) is Trouble.LATE


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (psycopg.errors.DeadlockDetected("…"), Trouble.DEADLOCK),
        (psycopg.errors.UniqueViolation("…"), Trouble.DUPLICATE),
        (psycopg.errors.QueryCanceled("…"), Trouble.LATE),
        (psycopg.OperationalError("the database system is starting up"), Trouble.BROKEN),
        (psycopg.OperationalError("FATAL:  sorry, too many clients already"), Trouble.BROKEN),
        (psycopg.OperationalError('password authentication failed for user "me"'), Trouble.NO_ENTRY),
        (sqlite3.IntegrityError("UNIQUE constraint failed"), Trouble.DUPLICATE),
        (sqlite3.OperationalError("no such table: run"), Trouble.NO_TABLE),
        (FileReplacedError("…"), Trouble.BROKEN),
        (CallTimedOut("…"), Trouble.LATE),
        (ZeroDivisionError("…"), Trouble.OTHER),
    ],
)
def test_other_errors(error: Exception, trouble: Trouble) -> None:
    assert trouble_of(error) is trouble


@pytest.mark.parametrize("number", [1040, 1152, 1161, 1203, 2002, 2006, 2055])
def test_what_is_of_the_connection_is_so_by_both_lists(number: int) -> None:
    error = pymysql.OperationalError(number, "…")
    assert trouble_of(error) is Trouble.BROKEN
    assert concern_of(error) is Concern.CONNECTION


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1047, "WSREP has not yet prepared node for application use"),
        (1290, "The MySQL server is running with the --super-read-only option so it cannot execute this statement"),
        (1290, "The MariaDB server is running with the --read-only option so it cannot execute this statement"),
        (1836, "Running in read-only mode"),
    ],
)
def test_a_server_that_is_not_ready_or_no_primary_any_more_is_a_lost_connection(number: int, words: str) -> None:
    error = pymysql.OperationalError(number, words)
    assert trouble_of(error) is Trouble.BROKEN
    assert concern_of(error) is Concern.CONNECTION


def test_another_option_that_prevents_a_statement_is_the_statements() -> None:
    error = pymysql.OperationalError(1290, "The MySQL server is running with the --secure-file-priv option so it …")
    assert trouble_of(error) is not Trouble.BROKEN
    assert concern_of(error) is Concern.STATEMENT


def test_a_conflict_may_be_tried_again() -> None:
    assert trouble_of(raised(pymysql.OperationalError(1213, "Deadlock found"), TimeoutError())) in REPEATABLE
