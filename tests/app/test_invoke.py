"""From a claim to its outcome."""

import asyncio
import json
import logging
from contextlib import suppress
from datetime import date
from typing import Any

import pytest

from fencepost.core.runs import StopReason
from fencepost.core.verdicts import Cancel, Retry, Skip
from fencepost.engine.invoke import invoke, invoke_async
from fencepost.engine.run import Run, attempt_of, current_run
from fencepost.engine.runners.outcome import How, Outcome
from fencepost.errors import LeaseLost, Stopped
from tests.app.surroundings import CLAIM, Told, context, job_of


def outcome_of(function: Any, params: dict[str, Any] | None = None, standing: Any = None) -> Outcome:
    claim = CLAIM._replace(params=json.dumps(params or {}))
    return invoke(job_of(function), claim, context(standing or Told()))


def raising(error: BaseException) -> Any:
    def function() -> None:
        raise error

    return function


def test_what_returns_has_succeeded_under_the_claims_attempt_and_token() -> None:
    outcome = outcome_of(lambda: None)
    assert outcome[:4] == (12, 2, 1_000, How.SUCCEEDED)
    assert outcome.result is None
    assert outcome.took_us >= 0


def test_a_result_is_kept_as_json() -> None:
    assert outcome_of(lambda: {"paid": 3, "on": date(2026, 1, 1)}).result == '{"paid":3,"on":"2026-01-01"}'


def test_a_result_that_is_no_json_does_not_spoil_the_success() -> None:
    outcome = outcome_of(lambda: [object()])
    assert outcome.how == How.SUCCEEDED
    assert outcome.result is None
    assert "not JSON" in (outcome.reason or "")


def test_parameters_arrive_as_the_function_wants_them() -> None:
    seen: list[Any] = []

    def settle(day: date, account: int = 5) -> None:
        seen.extend((day, account))

    assert outcome_of(settle, {"day": "2026-01-31"}).how == How.SUCCEEDED
    assert seen == [date(2026, 1, 31), 5]


def test_the_run_is_passed_only_if_asked_for() -> None:
    seen: list[Any] = []
    outcome_of(lambda run: seen.extend([run]))
    assert isinstance(seen[0], Run)
    assert seen[0].id == 12


def test_deep_code_finds_its_run_and_outside_there_is_none() -> None:
    seen: list[Any] = []
    outcome_of(lambda: seen.append(current_run()))
    assert seen[0].id == 12
    assert current_run() is None
    outcome_of(raising(ValueError()))
    assert current_run() is None


def test_parameters_that_no_longer_fit_fail_the_run_and_say_so() -> None:
    outcome = outcome_of(lambda: None, {"gone": 1})
    assert outcome.how == How.FAILED
    assert "gone" in (outcome.error or "")


def test_an_exception_is_a_failure_with_its_traceback_and_no_password() -> None:
    outcome = outcome_of(raising(ValueError("cannot reach redis://me:s3cret@cache")))
    assert (outcome.how, outcome.error_code) == (How.FAILED, "ValueError")
    assert "redis://me:***@cache" in (outcome.error or "")
    assert "in function" in (outcome.trace or "")
    assert "engine/invoke.py" not in (outcome.trace or "")
    assert "s3cret" not in str(outcome)


def test_texts_are_bounded() -> None:
    outcome = outcome_of(raising(ValueError("x" * 10**6)))
    assert len(outcome.error or "") < 10_000
    assert len(outcome.trace or "") < 20_000


def test_a_job_may_ask_for_a_retry_and_when() -> None:
    outcome = outcome_of(raising(Retry(after="5m", reason="the bank is closed")))
    assert (outcome.how, outcome.retry_after_us) == (How.RETRY, 300_000_000)
    assert outcome_of(raising(Retry())).retry_after_us is None


def test_a_job_may_skip_or_cancel_itself_and_say_why() -> None:
    assert outcome_of(raising(Skip("nothing to do")))[3:] == (How.SKIPPED, *_without_error("nothing to do"))
    assert outcome_of(raising(Cancel("wrong day")))[3:] == (How.CANCELLED, *_without_error("wrong day"))


def _without_error(reason: str) -> tuple[Any, ...]:
    class AnyDuration:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, int)

        __hash__ = None  # type: ignore[assignment]

    return (AnyDuration(), None, None, None, None, reason, None)


@pytest.mark.parametrize(
    ("why", "how"),
    [
        (StopReason.CANCELLED, How.CANCELLED),
        (StopReason.TIMED_OUT, How.TIMED_OUT),
        (StopReason.SHUTDOWN, How.INTERRUPTED),
    ],
)
def test_a_job_that_has_to_stop_does_so_even_if_it_catches_every_exception(why: StopReason, how: How) -> None:
    def careless(run: Run) -> None:
        with suppress(Exception):
            run.check()

    assert outcome_of(careless, standing=Told(why)).how == how


def test_a_stop_that_comes_from_outside_is_no_failure() -> None:
    assert outcome_of(raising(Stopped(StopReason.TIMED_OUT))).how == How.TIMED_OUT


def test_a_lost_lease_of_the_run_is_its_loss_and_one_of_something_else_a_failure() -> None:
    assert outcome_of(raising(LeaseLost("run 12 of 'settle'", 1_000, "gone"))).how == How.LOST
    assert outcome_of(raising(LeaseLost("month-end", 77, "gone"))).how == How.FAILED


def test_leaving_the_program_is_a_failure_unless_it_means_success() -> None:
    assert outcome_of(raising(SystemExit(3))).how == How.FAILED
    assert outcome_of(raising(SystemExit(0))).how == How.SUCCEEDED


def test_an_interrupt_from_the_keyboard_is_meant_for_the_process() -> None:
    with pytest.raises(KeyboardInterrupt):
        outcome_of(raising(KeyboardInterrupt()))


def test_what_ended_itself_has_succeeded_whatever_it_raises_then(caplog: pytest.LogCaptureFixture) -> None:
    def settle(run: Run) -> None:
        attempt_of(run).has_ended = True
        raise ValueError("too late")

    with caplog.at_level(logging.WARNING):
        assert outcome_of(settle).how == How.SUCCEEDED
    assert "too late" in caplog.text


def test_a_coroutine_is_awaited_and_ends_like_a_function() -> None:
    async def settle(run: Run, account: int) -> int:
        await asyncio.sleep(0)
        assert current_run() is run
        return account

    async def fails() -> None:
        raise ValueError("no")

    claim = CLAIM._replace(params='{"account": 7}')
    assert asyncio.run(invoke_async(job_of(settle), claim, context())).result == "7"
    assert asyncio.run(invoke_async(job_of(fails), CLAIM, context())).error_code == "ValueError"


def test_the_cancellation_of_a_task_passes_through() -> None:
    async def settle() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(invoke_async(job_of(settle), CLAIM, context()))
