"""Everything that began, wrote or was claimed belongs to a recorded attempt, with its token. Part of 2 and 4.

- A function that began (`begin`, with the run as the name, and its token) has an attempt, and began after the claim.
- An effect of a run was committed with the token of one of its attempts.
- An attempt that succeeded has begun, if beginnings are recorded for the job. No attempt ended before it began.
- If transitions are known, every run has some, and claims and attempts have the same tokens. A claim that was handed
  back leaves no attempt; such a run is queued again, or cancelled if that was requested.
- If it is known when each node's end was recorded (``notes["nodes_ended_us"]``), an attempt was lost with its node, and
  was not taken from a node that lived on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fencepost.proof.evidence import AttemptSeen, Evidence, Transition, Violation
from fencepost.proof.slack import slack_us, wall_us
from fencepost.proof.telling import attempt_text, run_text, time_text

NAME = "attempts on record"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Find the attempt of everything that happened."""
    attempts = {(attempt.run_id, attempt.token): attempt for attempt in evidence.attempts}
    yield from _begun(evidence, attempts)
    yield from _written(evidence, attempts)
    yield from _backwards(evidence)
    yield from _taken_from_the_living(evidence)
    if evidence.transitions:
        yield from _claimed(evidence, attempts)


def _begun(evidence: Evidence, attempts: dict[tuple[int, int], AttemptSeen]) -> Iterator[Violation]:
    jobs = {run.id: run.job for run in evidence.runs}
    begun: set[tuple[int, int]] = set()
    for entry in evidence.history.of("begin"):
        if not entry.name.isdigit() or entry.token is None or int(entry.name) not in jobs:
            continue
        begun.add((int(entry.name), entry.token))
        attempt = attempts.get((int(entry.name), entry.token))
        sentence = f"run {entry.name} began on {entry.node} at {entry.at:.3f} s under token {entry.token}"
        if attempt is None:
            yield Violation(NAME, f"{sentence}, and no attempt of that token is on record")
        elif (attempt.started_us or 0) - slack_us(evidence) > wall_us(evidence, entry.at):
            yield Violation(
                NAME, f"{sentence}, and was claimed only {time_text(attempt.started_us)}", attempt_text(attempt)
            )
    noted = {jobs[run_id] for run_id, _ in begun}
    for attempt in evidence.attempts:
        is_noted = jobs.get(attempt.run_id) in noted and attempt.outcome == "succeeded"
        if is_noted and (attempt.run_id, attempt.token) not in begun:
            yield Violation(NAME, f"{attempt_text(attempt)}, and its function was never seen to begin")


def _written(evidence: Evidence, attempts: dict[tuple[int, int], AttemptSeen]) -> Iterator[Violation]:
    known = {run.id for run in evidence.runs}
    for effect in evidence.effects:
        if effect.run_id is None:
            continue
        sentence = f"{effect.resource!r} has {effect.key!r} of run {effect.run_id} under token {effect.token}"
        if effect.run_id not in known:
            yield Violation(NAME, f"{sentence}, and no such run is on record")
        elif (effect.run_id, effect.token) not in attempts:
            yield Violation(NAME, f"{sentence}, which no attempt of that run was given")


def _backwards(evidence: Evidence) -> Iterator[Violation]:
    for attempt in evidence.attempts:
        if attempt.started_us is None or attempt.ended_us is None:
            continue
        if attempt.ended_us < attempt.started_us - slack_us(evidence):
            yield Violation(NAME, f"{attempt_text(attempt)}: it ended before it began")


def _taken_from_the_living(evidence: Evidence) -> Iterator[Violation]:
    ended_us: dict[str, int] = evidence.notes.get("nodes_ended_us", {})
    for attempt in evidence.attempts:
        if attempt.outcome != "lost" or attempt.ended_us is None or attempt.node not in ended_us:
            continue
        lived_us = ended_us[attempt.node] - attempt.ended_us
        if lived_us > slack_us(evidence):
            sentence = attempt_text(attempt)
            yield Violation(
                NAME, f"{sentence}: it was taken from a node that lived for {lived_us / 1e6:.1f} s after that"
            )


def _claimed(evidence: Evidence, attempts: dict[tuple[int, int], AttemptSeen]) -> Iterator[Violation]:
    by_run: dict[int, list[Transition]] = defaultdict(list)
    for step in evidence.transitions:
        by_run[step.run_id].append(step)
    claims = {(step.run_id, step.token) for step in evidence.transitions if step.after == "running"}
    for run in evidence.runs:
        if run.id not in by_run:
            yield Violation(NAME, f"{run_text(run)} was never seen to come to be")
    for steps in by_run.values():
        yield from _lasting(steps, attempts)
    for attempt in evidence.attempts:
        if (attempt.run_id, attempt.token) not in claims:
            yield Violation(NAME, f"{attempt_text(attempt)}, and there was no claim for it")


def _lasting(steps: list[Transition], attempts: dict[tuple[int, int], AttemptSeen]) -> Iterator[Violation]:
    """Report claims without an attempt that were not handed back. Functions that began are checked separately."""
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        is_back = after is not None and after.after in ("queued", "cancelled")
        if step.after != "running" or step.token is None or is_back:
            continue
        if (step.run_id, step.token) not in attempts:
            path = " → ".join(["new", *(each.after for each in steps)])
            sentence = f"run {step.run_id} was claimed under token {step.token}, and has no such attempt"
            yield Violation(NAME, sentence, path)
