"""Evidence of months, broken by hand: of each case one promise about deploys, restarts and absent nodes is broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fencepost.proof.evidence import Evidence, RunSeen
from tests.proof.broken_world import BASE, breaks, with_notes

HOUR_US = 3_600_000_000
SCHEDULE = "months"


def tick(number: int, state: str, **more: Any) -> RunSeen:
    """Return the run for the hour of this number."""
    return RunSeen(
        9000 + number, SCHEDULE, state, SCHEDULE, due_us=number * HOUR_US, attempts=state != "misfired", **more
    )


def missed(
    *runs: RunSeen, misfire: str = "once", able: tuple[int, int] = (20, 30), unable: tuple[int, int] = (0, 20)
) -> Evidence:
    """Return evidence of a job that some node could run in the one stretch of hours, and nobody in the other."""
    about = {
        "able": [(able[0] * HOUR_US, able[1] * HOUR_US)],
        "unable": [(unable[0] * HOUR_US, unable[1] * HOUR_US)],
        "misfire": misfire,
        "shaken": [],
    }
    return replace(with_notes(missed={SCHEDULE: about}), runs=(*BASE.runs, *runs))


@breaks("missed ticks", "though a node that could run it lived")
def a_due_time_is_missed_while_a_node_that_has_the_job_lives() -> Evidence:
    return missed(tick(25, "misfired"))


@breaks("missed ticks", "there are 3 runs for that time")
def each_due_time_of_a_gap_is_run_though_once_was_wanted() -> Evidence:
    return missed(tick(3, "succeeded"), tick(4, "succeeded"), tick(5, "skipped"))


@breaks("missed ticks", "there are 2 runs for that time")
def what_was_put_together_is_run_beside_one_of_its_due_times() -> Evidence:
    return missed(tick(3, "dead"), tick(9, "succeeded", from_us=4 * HOUR_US, ticks=6))


@breaks("missed ticks", "there are 1 runs for that time")
def a_due_time_of_a_gap_is_run_though_none_was_wanted() -> Evidence:
    return missed(tick(3, "succeeded"), misfire="skip")


def stranded(*seen: tuple[float, bool]) -> Evidence:
    return with_notes(
        stranded=[
            {"run": number, "job": "gone", "waited_s": waited_s, "warned": warned}
            for number, (waited_s, warned) in enumerate(seen)
        ]
    )


@breaks("nobody can run it", "nobody was warned")
def a_run_of_a_removed_job_waits_in_silence() -> Evidence:
    return stranded((86_400.0, False))


@breaks("nobody can run it", "queued for 600 s")
def it_waits_for_just_ten_minutes() -> Evidence:
    return stranded((600.0, False))


@breaks("nobody can run it", "run 1 of job")
def of_two_that_wait_there_was_a_warning_of_one() -> Evidence:
    return stranded((900.0, True), (900.0, False))


def judged(run_changes: dict[str, Any], **notes: dict[int, int]) -> Evidence:
    first = BASE.runs[0]
    runs = tuple(replace(run, crashes=0, failures=0) for run in BASE.runs[1:])
    return replace(with_notes(**notes), runs=(replace(first, **run_changes), *runs))


@breaks("fair ends", "1 crashes on record, and was killed 0 times")
def a_restart_in_good_order_counts_as_a_crash() -> Evidence:
    return judged({"crashes": 1, "failures": 0}, hits={})


@breaks("fair ends", "3 crashes on record, and was killed 1 times")
def a_single_kill_is_counted_three_times() -> Evidence:
    return judged({"crashes": 3, "failures": 0}, hits={BASE.runs[0].id: 1})


@breaks("fair ends", "1 failures on record, and its function failed 0 times")
def a_run_fails_though_its_function_did_not() -> Evidence:
    return judged({"crashes": 0, "failures": 1}, failures={})
