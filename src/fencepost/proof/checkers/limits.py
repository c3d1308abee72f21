"""10. Retries, back-off and limits are kept, and runs with the same exclusive key are never running at the same time.

- attempts are numbered from 1 without gaps, and the run's counts of attempts, failures and crashes match
- a run succeeded if and only if its last attempt did; there is no attempt after that
- there are at most `retries` + 1 failures and `crashes_allowed` losses, and at least the pause between a failure and
  the next attempt (``notes["own_pauses"]``: jobs that set another pause themselves)
- the attempts of runs with the same exclusive key do not overlap

Times are those of the ledger; ``notes["ledger_slack_s"]`` is how much they may contradict each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from fencepost.proof.evidence import AttemptSeen, Evidence, JobRules, RunSeen, Violation, attempts_by_run
from fencepost.proof.slack import SECOND_US, slack_us, stepped_us
from fencepost.proof.telling import attempt_text, run_text

NAME = "limits"
FAILED = frozenset({"failed", "timed_out"})


def check(evidence: Evidence) -> Iterator[Violation]:
    """Count attempts, and measure the times between them."""
    attempts = attempts_by_run(evidence.attempts)
    own_pauses = frozenset(evidence.notes.get("own_pauses", ()))
    for run in evidence.runs:
        tried = attempts.get(run.id, [])
        yield from _counted(run, tried)
        yield from _succeeded(run, tried)
        rules = evidence.jobs.get(run.job)
        if rules is not None:
            yield from _limited(run, tried, rules)
            if run.job not in own_pauses:
                yield from _paused(run, tried, rules, stepped_us(evidence))
    yield from _exclusive(evidence, attempts)


def _counted(run: RunSeen, tried: list[AttemptSeen]) -> Iterator[Violation]:
    numbers = [attempt.number for attempt in tried]
    if numbers != list(range(1, len(numbers) + 1)) or run.attempts != len(numbers):
        yield Violation(NAME, f"{run_text(run)} counts {run.attempts} attempts; on record are {numbers}")
    lost = sum(attempt.outcome == "lost" and attempt.counts for attempt in tried)
    if run.crashes != lost:
        yield Violation(NAME, f"{run_text(run)} counts {run.crashes} crashes; on record are {lost} lost attempts")
    failed = sum(attempt.outcome in FAILED for attempt in tried)
    if run.failures != failed:
        yield Violation(NAME, f"{run_text(run)} counts {run.failures} failures; on record are {failed}")
    if run.state != "running" and any(attempt.outcome is None for attempt in tried):
        yield Violation(NAME, f"{run_text(run)} is not running and has an attempt that has not ended")


def _succeeded(run: RunSeen, tried: list[AttemptSeen]) -> Iterator[Violation]:
    has_success = bool(tried) and tried[-1].outcome == "succeeded"
    if has_success != (run.state == "succeeded"):
        last = attempt_text(tried[-1]) if tried else "it was never tried"
        yield Violation(NAME, f"{run_text(run)} and its last attempt do not agree", last)
    for before, after in pairwise(tried):
        if before.outcome == "succeeded":
            yield Violation(NAME, f"{run_text(run)} was tried again after it had succeeded", attempt_text(after))


def _limited(run: RunSeen, tried: list[AttemptSeen], rules: JobRules) -> Iterator[Violation]:
    failed = sum(attempt.outcome in FAILED for attempt in tried)
    if failed > rules.retries + 1:
        yield Violation(NAME, f"{run_text(run)} failed {failed} times; its job allows {rules.retries} retries")
    if rules.crashes_allowed is not None and run.crashes > rules.crashes_allowed:
        yield Violation(NAME, f"{run_text(run)} was lost {run.crashes} times; its job allows {rules.crashes_allowed}")


def _paused(run: RunSeen, tried: list[AttemptSeen], rules: JobRules, slack: int) -> Iterator[Violation]:
    failures = 0
    for before, after in pairwise(tried):
        if before.outcome not in FAILED:
            continue
        failures += 1
        pause_s = rules.pauses_s[min(failures, len(rules.pauses_s)) - 1] if rules.pauses_s else 0.0
        if before.ended_us is None or after.started_us is None:
            continue
        if after.started_us < before.ended_us + round(pause_s * SECOND_US) - slack:
            yield Violation(
                NAME,
                f"{run_text(run)} was tried again {(after.started_us - before.ended_us) / SECOND_US:.3f} s after a "
                f"failure; its pause is {pause_s} s",
                f"{attempt_text(before)}; {attempt_text(after)}",
            )


def _exclusive(evidence: Evidence, attempts: dict[int, list[AttemptSeen]]) -> Iterator[Violation]:
    by_key: dict[str, list[AttemptSeen]] = defaultdict(list)
    for run in evidence.runs:
        if key := exclusive_key(run, evidence.jobs.get(run.job)):
            by_key[key].extend(attempts.get(run.id, []))
    for key, found in by_key.items():
        yield from _disjoint(key, sorted(found, key=lambda each: each.token), slack_us(evidence))


def exclusive_key(run: RunSeen, rules: JobRules | None) -> str | None:
    """Return under which key a run excludes others: its own, or that which its job's rules ask for."""
    if run.exclusive_key is not None:
        return run.exclusive_key
    return f"job:{run.job}" if rules is not None and rules.overlap != "allow" else None


def _disjoint(key: str, attempts: list[AttemptSeen], slack: int) -> Iterator[Violation]:
    for before, after in pairwise(attempts):
        both = f"{attempt_text(before)}; {attempt_text(after)}"
        if before.token == after.token:
            yield Violation(NAME, f"two attempts under key {key!r} have one token", both)
        is_open = before.ended_us is None
        if is_open or (after.started_us is not None and after.started_us < (before.ended_us or 0) - slack):
            yield Violation(NAME, f"two attempts under key {key!r} were under way at once", both)
