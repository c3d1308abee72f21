"""16. A run that no living node can execute does not stay queued for more than ten minutes without a warning.

``notes["stranded"]`` lists such runs: ``run``, ``job``, ``waited_s``, and ``warned``, whether a node has logged a
warning.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.proof.evidence import Evidence, Violation

NAME = "nobody can run it"
TEN_MINUTES_S = 600.0  # nodes warn after as long (`WARNED_AFTER_US`)


def check(evidence: Evidence) -> Iterator[Violation]:
    """Report runs that wait without a warning."""
    for seen in evidence.notes.get("stranded", ()):
        if seen["waited_s"] >= TEN_MINUTES_S and not seen["warned"]:
            yield Violation(
                NAME,
                f"run {seen['run']} of job {seen['job']!r} has been queued for {seen['waited_s']:.0f} s, no node that "
                "lives can run it, and nobody was warned",
            )
