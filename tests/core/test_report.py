import enum
import json
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.kinds import json_value
from fencepost.core.report import (
    LONGEST_ERROR,
    LONGEST_RESULT,
    LONGEST_TRACE,
    code_of,
    report_of_error,
    report_of_result,
)
from fencepost.core.verdicts import Cancel, Retry, Skip, Verdict
from fencepost.engine.runners.outcome import How, Outcome
from fencepost.errors import InvalidDuration, InvalidParameters


def raised(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


def raising(error: BaseException) -> BaseException:
    def function() -> None:
        raise error

    return raised(function)


class Colour(enum.Enum):
    RED = "red"


def test_no_result_is_no_text() -> None:
    assert report_of_result(None) == ("succeeded", None, None, None, None, None, None)


def test_a_result_is_kept_as_json_and_what_json_lacks_as_text() -> None:
    result = {
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, tzinfo=UTC),
        "time": time(9),
        "sum": Decimal("0.10"),
        "id": UUID(int=1),
        "colour": Colour.RED,
        "took": timedelta(seconds=2),
        "file": Path("a/b"),
        "some": {1},
        3: (1, None),
    }
    report = report_of_result(result)
    assert report.how == "succeeded"
    assert report.result is not None
    assert json.loads(report.result) == {
        "day": "2026-01-31",
        "at": "2026-01-31T00:00:00+00:00",
        "time": "09:00:00",
        "sum": "0.10",
        "id": "00000000-0000-0000-0000-000000000001",
        "colour": "red",
        "took": 2.0,
        "file": "a/b",
        "some": [1],
        "3": [1, None],
    }


def endless() -> list[Any]:
    result: list[Any] = []
    result.append(result)
    return result


class Hostile(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (object(), "not JSON: object cannot be stored as JSON"),
        (float("nan"), "not JSON"),
        (endless(), "not JSON"),
        ({(1, 2): 3}, "not JSON"),
        (Hostile(a=1), "not JSON"),
        (b"x", "bytes cannot be stored as JSON"),
        ("x" * LONGEST_RESULT, "takes 60002 characters"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_bad_result_does_not_spoil_a_success(result: object, says: str) -> None:
    report = report_of_result(result)
    assert (report.how, report.result) == ("succeeded", None)
    assert says in (report.reason or "")


def test_a_failure_is_reported_with_its_class_its_message_and_its_place() -> None:
    report = report_of_error(raised(lambda: 1 / 0))
    assert (report.how, report.error_code, report.error) == ("failed", "ZeroDivisionError", "division by zero")
    assert "lambda: 1 / 0" in (report.trace or "")


def test_codes_name_the_module_of_errors_that_are_not_pythons_own() -> None:
    assert code_of(InvalidParameters()) == "fencepost.errors.InvalidParameters"
    assert code_of(KeyError()) == "KeyError"
    assert len(code_of(type("E" * 500, (Exception,), {})())) == 191


def from_our_code(source: str, **names: object) -> BaseException:
    """Raise from a function `call` in a module of ours, as if nothing had called that."""
    us: dict[str, Any] = {"__name__": "fencepost.engine.invoke", **names}
    exec(source, us)
    error = raised(us["call"])
    assert error.__traceback__ is not None
    return error.with_traceback(error.__traceback__.tb_next)


def test_a_trace_begins_in_the_jobs_own_code() -> None:
    def job() -> None:
        json_value(object(), "x")

    trace = report_of_error(from_our_code("def call():\n    job()", job=job)).trace or ""
    assert "in call" not in trace
    assert "in job" in trace
    assert "in json_value" in trace  # what the job asked of us stays


def test_an_error_of_ours_alone_keeps_its_trace() -> None:
    error = from_our_code("def call():\n    raise KeyError(1)")
    assert "in call" in (report_of_error(error).trace or "")


def test_an_error_without_a_message_is_named() -> None:
    report = report_of_error(RuntimeError())
    assert report.error == "RuntimeError"


@given(st.text(st.characters(codec=None), max_size=50), st.integers(1, 2000))
def test_every_text_is_bounded_and_storable(text: str, times: int) -> None:
    report = report_of_error(raising(RuntimeError(text * times)))
    assert len(report.error or "") <= LONGEST_ERROR
    assert len(report.trace or "") <= LONGEST_TRACE
    for kept in (report.error, report.trace):
        assert kept is not None
        assert "\x00" not in kept.encode().decode()


def test_the_end_of_a_long_trace_is_kept() -> None:
    def deep(count: int) -> None:
        if not count:
            raise RuntimeError("at the bottom")
        deeper(count)

    def deeper(count: int) -> None:  # two by turns: a line that is repeated is left out of a trace
        deep(count - 1)

    trace = report_of_error(raised(lambda: deep(150))).trace or ""
    assert trace.startswith("…")
    assert trace.endswith("RuntimeError: at the bottom\n")


def test_no_password_reaches_the_ledger() -> None:
    cause = RuntimeError("redis://app:s3cret@cache")

    def job() -> None:
        raise RuntimeError("postgresql://app:s3cret@db/x") from cause

    report = report_of_error(raised(job))
    retry = Retry(reason="redis://app:s3cret@cache")
    for each in (report, report_of_error(retry), report_of_error(Skip("redis://app:s3cret@cache"))):
        assert "s3cret" not in repr(each)
    assert "redis://app:***@cache" in (report.trace or "")


def test_an_error_that_cannot_be_shown_is_reported_all_the_same() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    report = report_of_error(raising(Odd()))
    assert report.how == "failed"
    assert "cannot be shown" in (report.error or "")


def test_the_jobs_own_words_are_verdicts() -> None:
    assert report_of_error(Skip("no orders")).reason == "no orders"
    assert report_of_error(Skip()).how == "skipped"
    assert report_of_error(Cancel()).how == "cancelled"
    retry = report_of_error(Retry(after="5m", reason="the bank is closed"))
    assert (retry.how, retry.retry_after_us, retry.error) == ("retry", 300_000_000, "the bank is closed")
    assert retry.trace is None
    assert report_of_error(Retry()).retry_after_us is None


def test_a_retry_with_a_cause_keeps_its_trace() -> None:
    def job() -> None:
        raise Retry(after=1) from ConnectionError("refused")

    assert "ConnectionError: refused" in (report_of_error(raised(job)).trace or "")


def test_verdicts_can_be_raised_without_arguments() -> None:
    for verdict in (Retry, Skip, Cancel):
        error = raising(verdict())
        assert isinstance(error, Verdict)
        assert error.reason == ""


def test_a_wrong_after_is_told_where_it_is_raised() -> None:
    with pytest.raises(InvalidDuration, match="after 'soon'"):
        Retry(after="soon")


def test_a_script_that_exits_well_succeeded_and_otherwise_failed() -> None:
    assert report_of_error(raised(sys.exit)).how == "succeeded"
    assert report_of_error(raised(lambda: sys.exit(0))).how == "succeeded"
    assert report_of_error(raised(lambda: sys.exit(3))).error == "exited with status 3"
    assert report_of_error(raised(lambda: sys.exit("no disk"))).error == "no disk"


def test_a_keyboard_interrupt_is_a_failure() -> None:
    assert report_of_error(KeyboardInterrupt()).error_code == "KeyboardInterrupt"


def test_reports_speak_the_words_of_outcomes() -> None:
    errors = (KeyError(), Retry(), Skip(), Cancel())
    hows = {report_of_error(error).how for error in errors} | {report_of_result(1).how}
    assert hows <= set(How)
    report = report_of_error(Retry(after=1))
    outcome = Outcome(1, 2, 3, report.how, 4, *report[1:])
    assert (outcome.error_code, outcome.retry_after_us) == ("retry", 1_000_000)


def test_rows_of_users_that_sqlalchemy_adds_to_its_errors_are_not_kept() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE account (id INTEGER PRIMARY KEY, iban TEXT)"))
        try:
            try:
                connection.execute(
                    sqlalchemy.text("INSERT INTO acount VALUES (:id, :iban)"), {"id": 1, "iban": "DE89370"}
                )
            except sqlalchemy.exc.OperationalError as error:
                raise ValueError("the account was not written") from error
        except ValueError as error:
            reports = [report_of_error(error), report_of_error(error.__cause__ or error)]
    for report in reports:
        assert "DE89370" not in f"{report.error} {report.trace}"
        assert "no such table: acount" in (report.trace or "")
