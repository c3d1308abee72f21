"""Text for runs and times in violations."""

from __future__ import annotations

from fencepost.core.tick import spelled_us
from fencepost.proof.evidence import AttemptSeen, RunSeen


def time_text(at_us: int | None) -> str:
    """Format a time of the ledger."""
    return "never" if at_us is None else spelled_us(at_us)


def run_text(run: RunSeen) -> str:
    """Describe a run, with its due times."""
    tick = "" if run.schedule is None else f", tick {time_text(run.due_us)} of {run.schedule!r}"
    stretch = "" if run.ticks == 1 else f" and {run.ticks - 1} before it since {time_text(run.from_us)}"
    return f"run {run.id} of job {run.job!r} ({run.state}{tick}{stretch})"


def attempt_text(attempt: AttemptSeen) -> str:
    """Describe an attempt, with its times."""
    return (
        f"attempt {attempt.number} of run {attempt.run_id} on {attempt.node} under token {attempt.token}, "
        f"from {time_text(attempt.started_us)} to {time_text(attempt.ended_us)}, {attempt.outcome or 'not ended'}"
    )
