"""11. When faults stop, everything due starts within ttl + poll + 2 s (2·ttl if the store was away).

So does what was lost: it is noticed within that time, and tried again within that time.

A run may start when it is due (or available), when faults have ended, and when its exclusive key is free.
When it began is read from the history's `begin`, whose clock is true, else from the ledger. What misfired or was
skipped has no start. ``notes["start_slack_s"]`` is added where nodes have fewer slots than there is work. With
``notes["all_have_left"]`` every node has left in good order, and nothing may be running any more: what is, belongs to a
node that died unnoticed, or to one that does not know of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from fencepost.proof.checkers.limits import exclusive_key
from fencepost.proof.evidence import AttemptSeen, Evidence, RunSeen, Violation, attempts_by_run
from fencepost.proof.slack import SECOND_US, bound_s, end_us, quiet_us, wall_us
from fencepost.proof.telling import attempt_text, run_text, time_text

NAME = "prompt start"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Measure from when each run could start to when it did."""
    bound_us = round((bound_s(evidence) + float(evidence.notes.get("start_slack_s", 0.0))) * SECOND_US)
    begins = _begins(evidence)
    holders = _holders(evidence)
    tries = attempts_by_run(evidence.attempts)
    yield from _lost_late(evidence, bound_us)
    for run in evidence.runs:
        if run.waits_for == "person" or (run.has_ended and not run.attempts):
            continue
        others = [each for each in holders.get(_key(evidence, run), []) if each.run_id != run.id]
        yield from _first_start(evidence, run, begins.get(run.id), others, bound_us)
        yield from _second_start(evidence, run, tries.get(run.id, []), others, bound_us)
        yield from _left_lying(evidence, run, others, bound_us)
        yield from _left_running(evidence, run)


def _key(evidence: Evidence, run: RunSeen) -> str:
    return exclusive_key(run, evidence.jobs.get(run.job)) or ""


def _begins(evidence: Evidence) -> dict[int, int]:
    """Return when each run first began, by the true clock where that is known."""
    found: dict[int, int] = {}
    for attempt in evidence.attempts:
        if attempt.started_us is not None:
            found[attempt.run_id] = min(found.get(attempt.run_id, attempt.started_us), attempt.started_us)
    noted: dict[int, int] = {}
    for entry in evidence.history.of("begin"):
        if entry.name.isdigit():
            noted.setdefault(int(entry.name), wall_us(evidence, entry.at))
    return found | {run_id: min(at_us, found.get(run_id, at_us)) for run_id, at_us in noted.items()}


def _holders(evidence: Evidence) -> dict[str, list[AttemptSeen]]:
    keys = {run.id: _key(evidence, run) for run in evidence.runs}
    found: dict[str, list[AttemptSeen]] = defaultdict(list)
    for attempt in evidence.attempts:
        if keys.get(attempt.run_id):
            found[keys[attempt.run_id]].append(attempt)
    return found


def _first_start(
    evidence: Evidence, run: RunSeen, began_us: int | None, others: list[AttemptSeen], bound_us: int
) -> Iterator[Violation]:
    if run.due_us is None or not run.is_tick or began_us is None:
        return
    could_us = max(run.due_us, quiet_us(evidence), _freed_us(others, began_us))
    if began_us > could_us + bound_us:
        yield Violation(
            NAME,
            f"{run_text(run)} began {(began_us - could_us) / SECOND_US:.1f} s after it could have; promised are "
            f"{bound_us / SECOND_US:.1f} s",
            f"could begin {time_text(could_us)}, began {time_text(began_us)}",
        )


def _lost_late(evidence: Evidence, bound_us: int) -> Iterator[Violation]:
    """Report what was given up long after the last fault: a dead node was noticed late, or a living one given up."""
    for attempt in evidence.attempts:
        ended_us = attempt.ended_us or 0
        if attempt.outcome != "lost" or not quiet_us(evidence) + bound_us < ended_us <= end_us(evidence):
            continue
        late_s = (ended_us - quiet_us(evidence)) / SECOND_US
        yield Violation(
            NAME,
            f"attempt {attempt.number} of run {attempt.run_id} was given up as lost {late_s:.1f} s after the last "
            f"fault; promised are {bound_us / SECOND_US:.1f} s",
            attempt_text(attempt),
        )


def _second_start(
    evidence: Evidence, run: RunSeen, tried: list[AttemptSeen], others: list[AttemptSeen], bound_us: int
) -> Iterator[Violation]:
    """Report attempts that followed a lost one too late."""
    for before, after in pairwise(tried):
        if before.outcome != "lost" or before.ended_us is None or after.started_us is None:
            continue
        could_us = max(before.ended_us, quiet_us(evidence), _freed_us(others, after.started_us))
        if after.started_us > could_us + bound_us:
            yield Violation(
                NAME,
                f"{run_text(run)} was lost, and tried again {(after.started_us - could_us) / SECOND_US:.1f} s after it "
                f"could have been; promised are {bound_us / SECOND_US:.1f} s",
                f"{attempt_text(before)}; {attempt_text(after)}",
            )


def _freed_us(others: list[AttemptSeen], until_us: int) -> int:
    """Return when the last of those who had the key before then let go of it."""
    return max((each.ended_us for each in others if each.ended_us is not None and each.ended_us <= until_us), default=0)


def _left_lying(evidence: Evidence, run: RunSeen, others: list[AttemptSeen], bound_us: int) -> Iterator[Violation]:
    """Report a run that is still to start in the end, though it could have for long enough."""
    if run.has_ended or run.state == "running" or any(each.ended_us is None for each in others):
        return
    freed_us = max((each.ended_us or 0 for each in others), default=0)
    available_us = max(run.due_us or 0, run.available_us or 0)
    could_us = max(available_us, quiet_us(evidence), freed_us)
    if could_us + bound_us < end_us(evidence):
        waited_s = (end_us(evidence) - could_us) / SECOND_US
        yield Violation(
            NAME,
            f"{run_text(run)} could start for {waited_s:.1f} s and did not; promised are {bound_us / SECOND_US:.1f} s",
            f"waits for {run.waits_for}, available {time_text(available_us)}, its key was free {time_text(freed_us)}",
        )


def _left_running(evidence: Evidence, run: RunSeen) -> Iterator[Violation]:
    if evidence.notes.get("all_have_left") and run.state == "running":
        yield Violation(NAME, f"{run_text(run)} is still running, and every node has left: nobody answers for it")
