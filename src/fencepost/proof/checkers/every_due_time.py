"""4. Every due time of an independent oracle ended as ran, misfired or skipped, and nothing else ran.

A due time is covered by a schedule's own run, alone or within a stretch; the number of ticks a stretch claims is the
number of due times in it. Those so close to the end that they may still be under way are left out, and what was planned
ahead of the end is no fault unless it began.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator

from fencepost.proof.evidence import Due, Evidence, RunSeen, Violation
from fencepost.proof.slack import bound_s, end_us, quiet_us, settle_s, stepped_us, wall_us
from fencepost.proof.telling import attempt_text, run_text, time_text

NAME = "every due time"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Hold what was due against what is on record."""
    if not evidence.due:
        return
    dues: dict[str, list[int]] = defaultdict(list)
    for due in evidence.due:
        dues[due.schedule].append(due.at_us)
    for times in dues.values():
        times.sort()
    runs: dict[str, list[RunSeen]] = defaultdict(list)
    for run in evidence.runs:
        if run.is_tick:
            runs[run.schedule or ""].append(run)
    yield from _missing(evidence, runs)
    for schedule, ticks in runs.items():
        for run in ticks:
            yield from _not_due(evidence, run, dues.get(schedule, []))
    yield from _other_job(evidence)
    yield from _not_ended(evidence)
    yield from _too_early(evidence)
    yield from _without_record(evidence)


def _missing(evidence: Evidence, runs: dict[str, list[RunSeen]]) -> Iterator[Violation]:
    spans = {schedule: sorted(run.span_us for run in ticks) for schedule, ticks in runs.items()}
    last_us = _answerable_until_us(evidence)
    for due in evidence.due:
        if due.at_us <= last_us and not _covers(spans.get(due.schedule, []), due.at_us):
            yield Violation(
                NAME,
                f"tick {time_text(due.at_us)} of {due.schedule!r} (job {due.job!r}) is not on record: it neither ran "
                "nor misfired nor was it skipped",
                _near(due, spans.get(due.schedule, [])),
            )


def _answerable_until_us(evidence: Evidence) -> int:
    """Return the last due time that must be on record: those later may be waiting for faults to end, or to be seen."""
    last_at = evidence.timing.ended_at - bound_s(evidence)
    return wall_us(evidence, last_at) if evidence.timing.quiet_from <= last_at else -1


def _covers(spans: list[tuple[int, int]], at_us: int) -> bool:
    position = bisect_right(spans, (at_us, 1 << 62)) - 1
    return position >= 0 and spans[position][0] <= at_us <= spans[position][1]


def _near(due: Due, spans: list[tuple[int, int]]) -> str:
    before = max((last for _, last in spans if last < due.at_us), default=None)
    after = min((first for first, _ in spans if first > due.at_us), default=None)
    return f"recorded before it: {time_text(before)}; after it: {time_text(after)}"


def _not_due(evidence: Evidence, run: RunSeen, dues: list[int]) -> Iterator[Violation]:
    first_us, last_us = run.span_us
    if last_us > end_us(evidence):
        return  # planned ahead; the oracle looked no further than to the end
    there = dues[bisect_left(dues, first_us) : bisect_right(dues, last_us)]
    if not there or there[0] != first_us or there[-1] != last_us:
        yield Violation(NAME, f"{run_text(run)} stands for a time at which nothing was due", "")
    elif len(there) != run.ticks:
        yield Violation(NAME, f"{run_text(run)} says it stands for {run.ticks} ticks, and stands for {len(there)}")


def _other_job(evidence: Evidence) -> Iterator[Violation]:
    jobs = {(due.schedule, due.at_us): due.job for due in evidence.due}
    for run in evidence.runs:
        wanted = jobs.get((run.schedule or "", run.due_us or 0))
        if run.is_tick and wanted is not None and run.job != wanted:
            yield Violation(NAME, f"{run_text(run)} should have been of job {wanted!r}")


def _not_ended(evidence: Evidence) -> Iterator[Violation]:
    """Report what was due before faults ended and is still open, if the quiet was long enough to end it."""
    quiet_s = evidence.timing.ended_at - evidence.timing.quiet_from
    for run in evidence.runs:
        if not run.is_tick or run.has_ended or run.waits_for == "person":
            continue
        if (run.due_us or 0) <= quiet_us(evidence) and quiet_s >= settle_s(evidence, run.job):
            yield Violation(
                NAME,
                f"{run_text(run)} has not ended, {quiet_s:.1f} s after the last fault",
                f"waits for {run.waits_for}",
            )


def _too_early(evidence: Evidence) -> Iterator[Violation]:
    runs = {run.id: run for run in evidence.runs if run.is_tick}
    for attempt in evidence.attempts:
        run = runs.get(attempt.run_id)
        if run is None or run.due_us is None or attempt.started_us is None:
            continue
        if attempt.started_us < run.due_us - stepped_us(evidence):
            yield Violation(NAME, f"{run_text(run)} began before it was due", attempt_text(attempt))


def _without_record(evidence: Evidence) -> Iterator[Violation]:
    known = {str(run.id) for run in evidence.runs}
    for entry in evidence.history.of("begin"):
        if known and entry.name not in known:
            yield Violation(NAME, f"run {entry.name} began on {entry.node} at {entry.at:.3f} s and is on no record", "")
