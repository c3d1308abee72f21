"""What can be a job, and what is refused."""

import functools
import re
from typing import Any

import pytest

from fencepost.core.policy import Policy
from fencepost.core.schedule import cron, every
from fencepost.engine.jobs import Job, Jobs
from fencepost.errors import InvalidJob, InvalidName, InvalidParameters, InvalidPolicy

SCHEDULED = Policy.of("scheduled")


def settle(run: Any, account: int = 1) -> None:
    """Settle the accounts."""


async def fetch() -> None: ...


class Billing:
    def settle(self) -> None: ...


def test_a_job_has_its_functions_name_doc_and_place() -> None:
    job = Job.of(settle, policy=SCHEDULED)
    assert (job.name, job.doc, job.kind) == ("settle", "Settle the accounts.", "sync")
    assert re.search(r"test_jobs\.py:\d+ \(settle\)$", job.place)


def test_a_coroutine_is_for_the_event_loop() -> None:
    assert Job.of(fetch, policy=SCHEDULED).kind == "async"


def test_the_first_schedule_has_the_jobs_name_and_the_others_a_number() -> None:
    job = Job.of(settle, policy=SCHEDULED, schedules=[every("1h"), cron("0 3 * * *")], params={"account": 7})
    assert [each.id for each in job.schedules] == ["settle", "settle:2"]
    assert all(each.params == {"account": 7} for each in job.schedules)


@pytest.mark.parametrize("function", [lambda: None, functools.partial(settle, account=2), Billing().settle])
def test_what_has_no_name_of_its_own_needs_one(function: Any) -> None:
    with pytest.raises(InvalidJob, match=r"give it one, as in @app\.job\(name="):
        Job.of(function, policy=SCHEDULED)
    assert Job.of(function, policy=SCHEDULED, name="x").name == "x"


def test_a_function_in_the_body_of_a_class_is_refused() -> None:
    with pytest.raises(InvalidJob, match=r"Billing\.settle\) is a method"):
        Job.of(Billing.settle, policy=SCHEDULED, name="x")


def test_a_bad_name_is_refused() -> None:
    with pytest.raises(InvalidName, match="not a name"):
        Job.of(settle, policy=SCHEDULED, name="not a name")


def test_an_exclusive_key_must_be_made_of_parameters() -> None:
    with pytest.raises(InvalidPolicy, match=r"parameter 'acount', which .* did you mean 'account'\?"):
        Job.of(settle, policy=Policy.of(exclusive="account:{acount}"))
    assert Job.of(settle, policy=Policy.of(exclusive="account:{account}"))


def test_a_scheduled_job_must_be_given_what_its_exclusive_key_is_made_of() -> None:
    """Else not one of its ticks could be planned: the function's own default is known only when it is called."""
    policy = Policy.of(exclusive="account:{account}")
    with pytest.raises(InvalidParameters, match=r"its exclusive key is 'account:\{account\}'.*params="):
        Job.of(settle, policy=policy, schedules=[every("1h")])
    assert Job.of(settle, policy=policy, schedules=[every("1h")], params={"account": 1})


def test_a_scheduled_job_must_be_given_the_parameters_it_needs() -> None:
    def pay(account: int) -> None: ...

    with pytest.raises(InvalidParameters, match=r"'account' must be given \(for a job with a schedule: params="):
        Job.of(pay, policy=SCHEDULED, schedules=[every("1h")])


def test_parameters_without_a_schedule_would_never_be_used() -> None:
    with pytest.raises(InvalidJob, match="it has none"):
        Job.of(settle, policy=SCHEDULED, params={"account": 1})


def test_a_name_twice_is_refused_with_both_places() -> None:
    jobs = Jobs([Job.of(settle, policy=SCHEDULED)])
    with pytest.raises(InvalidJob) as refused:
        jobs.add(Job.of(fetch, policy=SCHEDULED, name="settle"))
    assert str(refused.value).count("test_jobs.py:") == 2
    assert list(jobs) == ["settle"]


def test_an_unknown_name_brings_the_nearest() -> None:
    with pytest.raises(KeyError, match=r"did you mean 'settle'\?"):
        Jobs([Job.of(settle, policy=SCHEDULED)])["setle"]


def test_a_command_takes_any_parameters() -> None:
    job = Job.of_command(["./report", "-v"], name="report", policy=SCHEDULED, schedules=[every("1h")], params={"a": 1})
    assert (job.kind, job.argv, job.schedules[0].params) == ("command", ("./report", "-v"), {"a": 1})


@pytest.mark.parametrize("argv", ["./report -v", [], [""], ["x", 5], ["x\0"]])
def test_a_command_is_a_list_of_texts(argv: Any) -> None:
    with pytest.raises(InvalidJob, match="command 'report'"):
        Job.of_command(argv, name="report", policy=SCHEDULED)
