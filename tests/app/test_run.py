"""What a job's function sees of its run."""

import json
import logging
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from fencepost.core.events import Event, What
from fencepost.core.runs import StopReason
from fencepost.core.tick import microseconds
from fencepost.engine.run import Run, current
from fencepost.errors import LeaseLost, Stopped
from fencepost.observe.logs import EventLog, JsonFormatter, TextFormatter, fields_of
from tests.app.surroundings import Told, run_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_the_window_runs_from_the_due_before_to_this_one() -> None:
    run = run_of(
        due_at_us=microseconds(NOON),
        window_start_us=microseconds(NOON.replace(hour=11)),
        window_end_us=microseconds(NOON),
    )
    assert run.window == (NOON.replace(hour=11), NOON)
    assert run.due_at == NOON
    assert run.window.astimezone(ZoneInfo("Asia/Seoul")).start.hour == 20


def test_a_run_that_was_asked_for_has_an_empty_window() -> None:
    run = run_of(available_at_us=microseconds(NOON))
    assert run.due_at == NOON
    assert run.window == (NOON, NOON)


def test_the_first_due_of_all_has_no_start_before_it() -> None:
    run = run_of(due_at_us=microseconds(NOON), window_end_us=microseconds(NOON))
    assert run.window == (NOON, NOON)


def test_parameters_are_those_given_as_the_function_wants_them() -> None:
    def settle(run: object, day: date, account: int = 5) -> None: ...

    assert run_of(settle, params='{"day": "2026-01-31"}').params == {"day": date(2026, 1, 31)}


def test_a_run_is_not_lost_until_its_runner_says_so() -> None:
    standing = Told()
    run = run_of(standing=standing)
    assert not run.lost
    run.check()
    standing.why = StopReason.LOST
    assert run.lost
    with pytest.raises(LeaseLost, match=r"run 12 of 'settle'.*token 1000"):
        run.check()


@pytest.mark.parametrize("why", [StopReason.CANCELLED, StopReason.TIMED_OUT, StopReason.SHUTDOWN])
def test_every_call_through_a_stopped_run_raises(why: StopReason) -> None:
    run = run_of(standing=Told(why))
    assert not run.lost
    with pytest.raises(Stopped, match=str(why)):
        run.check()
    with pytest.raises(Stopped, match=str(why)):
        run.progress(0.5)


def test_records_of_the_log_tell_of_which_run_they_are(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="fencepost.jobs.settle"):
        run_of().log.info("paid %d", 3, extra={"account": 7})
    (record,) = caplog.records
    assert record.getMessage() == "paid 3"
    assert (record.run, record.attempt, record.token, record.node, record.account) == (12, 2, 1000, "here:1:abcd", 7)
    assert record.fencepost["run"] == 12


def test_a_record_of_the_log_as_json_has_the_run_the_message_and_the_trace(caplog: pytest.LogCaptureFixture) -> None:
    try:
        int("no")
    except ValueError:
        run_of().log.exception("paid %d", 3)
    entry = json.loads(JsonFormatter().format(caplog.records[0]))
    assert (entry["message"], entry["run"], entry["token"]) == ("paid 3", 12, 1000)
    assert "ValueError: invalid literal" in entry["trace"]


def test_any_logger_inside_a_run_says_of_which_run_it_speaks_and_keeps_what_was_passed_as_extra() -> None:
    record = logging.getLogger("shop.payments").makeRecord(
        "shop.payments", logging.WARNING, "", 0, "paid %d", (3,), None, extra={"account": 7, "job": "mine"}
    )
    outside = json.loads(JsonFormatter().format(record))
    assert (outside["message"], outside["account"], outside["job"], "run" in outside) == ("paid 3", 7, "mine", False)
    before = current.set(run_of())
    try:
        entry, line = json.loads(JsonFormatter().format(record)), TextFormatter().format(record)
    finally:
        current.reset(before)
    assert (entry["job"], entry["run"], entry["attempt"], entry["token"]) == ("settle", 12, 2, 1000)
    assert (entry["node"], entry["account"], entry["extra_job"]) == ("here:1:abcd", 7, "mine")
    assert line.endswith(
        "Z warning: settle run 12: paid 3 attempt=2 token=1000 node=here:1:abcd account=7 extra_job=mine"
    )


def test_secrets_are_masked_in_what_is_logged() -> None:
    extra = {"access_token": "s3cret", "sent": {"headers": ["Authorization: Bearer s3cret"]}}
    record = logging.getLogger("shop").makeRecord(
        "shop", logging.INFO, "", 0, "GET https://api/?api_key=%s", ("s3cret",), None, extra=extra
    )
    for formatter in (JsonFormatter(), TextFormatter()):
        assert "s3cret" not in formatter.format(record)
    assert json.loads(JsonFormatter().format(record))["access_token"] == "***"
    assert "s3cret" not in str(fields_of(Event(What.RUNNER_WARNING, reason="Authorization: Bearer s3cret")))


def test_what_has_the_name_of_a_secret_is_masked_as_a_whole() -> None:
    extra = {
        "password": "two words",
        "api_key": b"two words",
        "sent": {"pin_secret": 12, "token": 7},
        "at": [b"pwd=words"],
    }
    record = logging.getLogger("shop").makeRecord("shop", logging.INFO, "", 0, "sent", (), None, extra=extra)
    written = json.loads(JsonFormatter().format(record))
    assert (written["password"], written["api_key"]) == ("***", "***")
    assert written["sent"] == {"pin_secret": "***", "token": 7}
    assert "words" not in TextFormatter().format(record) + str(written)


def test_what_is_passed_to_the_log_of_a_run_is_kept_though_it_has_one_of_our_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_of().log.warning("paid", extra={"job": "mine"})
    entry = json.loads(JsonFormatter().format(caplog.records[0]))
    assert (entry["job"], entry["extra_job"]) == ("settle", "mine")


@pytest.mark.parametrize(
    "formatter", [JsonFormatter(), TextFormatter(), logging.Formatter()], ids=lambda each: type(each).__name__
)
def test_the_traceback_of_a_failed_run_is_in_the_log_in_every_format(
    formatter: logging.Formatter, caplog: pytest.LogCaptureFixture
) -> None:
    EventLog(lambda: "here:1:abcd")(Event(What.RUN_FAILED, job="settle", run_id=12, trace="Traceback: in settle"))
    written = formatter.format(caplog.records[0])
    assert "Traceback: in settle" in written
    assert "here:1:abcd" in written


def test_progress_must_be_a_number() -> None:
    with pytest.raises(ValueError, match="not a fraction"):
        run_of().progress(float("nan"))


def test_a_run_shows_its_job_what_it_needs_and_nothing_of_the_engine() -> None:
    assert [name for name in dir(Run) if not name.startswith("_")] == [
        "attempt",
        "check",
        "crashes",
        "due_at",
        "exclusive_key",
        "fence",
        "fencing",
        "id",
        "in_transaction",
        "job",
        "log",
        "lost",
        "node",
        "once",
        "params",
        "progress",
        "requested_by",
        "schedule",
        "take",
        "ticks",
        "token",
        "transaction",
        "window",
    ]
    with pytest.raises(AttributeError):
        run_of(lambda run: None).progres = 0.5  # type: ignore[attr-defined]
