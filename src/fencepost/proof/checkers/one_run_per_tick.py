"""2. Per tick: at most one run, one success, and one attempt with a live lease.

A run may stand for several consecutive ticks; those of one schedule do not overlap. The attempts' times, which come
from one ledger, show whether an attempt began only after the previous one had ended. If the ledger has several clocks
(SQLite with nodes whose clocks differ), ``notes["ledger_slack_s"]`` is how much they may differ. The order of commits,
which needs no clock, is checked by `run_graph`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from fencepost.proof.evidence import AttemptSeen, Evidence, RunSeen, Violation, attempts_by_run
from fencepost.proof.slack import slack_us
from fencepost.proof.telling import attempt_text, run_text

NAME = "one run per tick"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Report ticks with two runs, runs with two successes, and concurrent attempts."""
    yield from _runs(evidence.runs)
    attempts = attempts_by_run(evidence.attempts)
    for run in evidence.runs:
        yield from _attempts(run, attempts.get(run.id, []), slack_us(evidence))


def _runs(runs: tuple[RunSeen, ...]) -> Iterator[Violation]:
    by_schedule: dict[str, list[RunSeen]] = defaultdict(list)
    for run in runs:
        if run.is_tick:
            by_schedule[run.schedule or ""].append(run)
    for schedule, ticks in by_schedule.items():
        for run in ticks:
            if run.origin_key is not None and not run.origin_key.startswith(f"tick:{run.due_us}:"):
                yield Violation(NAME, f"{run_text(run)} is kept under {run.origin_key!r}, not under its due time")
        ordered = sorted(ticks, key=lambda run: run.span_us)
        for before, after in pairwise(ordered):
            if after.span_us[0] <= before.span_us[1]:
                yield Violation(NAME, f"a tick of {schedule!r} has two runs", f"{run_text(before)}; {run_text(after)}")


def _attempts(run: RunSeen, attempts: list[AttemptSeen], slack: int) -> Iterator[Violation]:
    succeeded = [attempt for attempt in attempts if attempt.outcome == "succeeded"]
    if len(succeeded) > 1:
        yield Violation(NAME, f"{run_text(run)} succeeded twice", "; ".join(map(attempt_text, succeeded)))
    for before, after in pairwise(attempts):
        both = f"{attempt_text(before)}; {attempt_text(after)}"
        if after.number == before.number:
            yield Violation(NAME, f"{run_text(run)} has two attempts of one number", both)
        if after.token <= before.token:
            yield Violation(NAME, f"{run_text(run)} was given a token that is not above its last one", both)
        if _overlap(before, after, slack):
            yield Violation(NAME, f"{run_text(run)} had two attempts under way at once", both)


def _overlap(before: AttemptSeen, after: AttemptSeen, slack: int) -> bool:
    if before.ended_us is None:
        return True
    return after.started_us is not None and after.started_us < before.ended_us - slack
