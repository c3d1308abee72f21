"""What keeps a job from running now, beside what became of its due times: pauses, and that no living node has it."""

from __future__ import annotations

import shlex

from fencepost.core.duration import spelled
from fencepost.core.tick import spelled_us
from fencepost.ledger import jobs
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.nodes import living_nodes
from fencepost.ledger.queue_pauses import EVERYTHING, queue_pauses
from fencepost.ledger.schedule_rows import StoredSchedule
from fencepost.ledger.serving import queue_of

_START = "fencepost run APP starts one"


def obstacles(ledger: Ledger, job: str, row: StoredSchedule | None, sentence: str) -> tuple[str, ...]:
    """Return sentences about what keeps a job from running now, each with the command that changes it.

    What `sentence` says already is not repeated. `row`: the schedule in question, if there is one.
    """
    if row is not None and row.deleted_at is not None:
        return ()
    queue = policy_queue(ledger, job)
    found = [
        (str(each), "resume --all" if each.queue == EVERYTHING else f"resume --queue {shlex.quote(each.queue)}")
        for each in queue_pauses(ledger)
        if each.concerns(queue)
    ]
    if row is not None and _is_paused(ledger, row):
        found.insert(0, (schedule_pause(row), f"schedules resume {shlex.quote(row.id)}"))
    lines = [
        f"To resume it: fencepost {command}"
        if words in sentence
        else f"{words[0].upper()}{words[1:]}. fencepost {command}"
        for words, command in found
    ]
    without = _without_node(ledger, job, queue)
    if without is not None and "no living node" not in sentence:
        lines.append(f"{without[0].upper()}{without[1:]}")
    return tuple(lines)


def is_due_in(ledger: Ledger, job: str, wait_us: int) -> str:
    """Say how long it is until a due time, and who has the job now."""
    queue = policy_queue(ledger, job)
    wait = spelled(max(1, round(wait_us / 1_000_000)))
    without = _without_node(ledger, job, queue)
    if without is not None:
        return f"it is due in {wait}, and {without}"
    count = _able(ledger, job, queue)
    return f"it is due in {wait}; {count} living {'node has' if count == 1 else 'nodes have'} the job"


def schedule_pause(row: StoredSchedule) -> str:
    """Say since when a schedule has been paused, by whom, until when, and why."""
    by = f" by {row.paused_by}" if row.paused_by else ""
    until = "" if row.paused_until is None else f", until {spelled_us(row.paused_until)}"
    reason = f": {row.pause_reason}" if row.pause_reason else ""
    since = "?" if row.paused_at is None else spelled_us(row.paused_at)
    return f"the schedule has been paused since {since}{by}{until}{reason}"


def policy_queue(ledger: Ledger, job: str) -> str:
    """Return the queue that the runs of a job are put into, as its policy on record says."""
    return next((queue_of(row.policy) for row in jobs.jobs(ledger, names=[job])), queue_of("{}"))


def _is_paused(ledger: Ledger, row: StoredSchedule) -> bool:
    """Whether it is paused, and the pause has not ended by itself."""
    return row.paused_at is not None and (row.paused_until is None or row.paused_until > ledger.now_us())


def _able(ledger: Ledger, job: str, queue: str) -> int:
    """Return how many living nodes have the job, take runs from the queue, and do not drain."""
    return sum(job in node.jobs and queue in node.queues and node.draining_at is None for node in living_nodes(ledger))


def _without_node(ledger: Ledger, job: str, queue: str) -> str | None:
    """Say that no living node can run the job, and what helps; None if one can."""
    if _able(ledger, job, queue):
        return None
    having = [node for node in living_nodes(ledger) if job in node.jobs]
    if not having:
        return f"no living node has the job now: {_START}"
    if any(queue in node.queues for node in having):
        return f"each living node that has the job drains: {_START}"
    return f"no living node that has the job takes runs from its queue {queue!r}: fencepost nodes shows queues"
