"""17. A loss counts against a run only if its process was killed while it had the run; a failure, only if it failed.

``notes["hits"]`` maps a run to how often its process was killed. A graceful restart does not count, nor does a clock
that was set. ``notes["failures"]`` maps a run to how often its function itself raised. Without such a note, that part
is not checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.proof.evidence import Evidence, RunSeen, Violation
from fencepost.proof.telling import run_text

NAME = "fair ends"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Compare the counts in the ledger with what happened."""
    hits, failures = evidence.notes.get("hits"), evidence.notes.get("failures")
    for run in evidence.runs:
        if hits is not None and run.crashes > hits.get(run.id, 0):
            yield _unfair(run, f"has {run.crashes} crashes on record, and was killed {hits.get(run.id, 0)} times")
        if failures is not None and run.failures > failures.get(run.id, 0):
            yield _unfair(
                run, f"has {run.failures} failures on record, and its function failed {failures.get(run.id, 0)} times"
            )


def _unfair(run: RunSeen, what: str) -> Violation:
    return Violation(NAME, f"{run_text(run)} {what}", f"{run.attempts} attempts")
