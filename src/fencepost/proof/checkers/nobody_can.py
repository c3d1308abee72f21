"""16. Nothing waits in a queue for longer than ten minutes that no living node can run, without a warning.

``notes["stranded"]`` lists such runs as they were seen from outside: ``run``, ``job``, ``waited_s``, and ``warned``,
whether some node has said so.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.proof.evidence import Evidence, Violation

NAME = "nobody can run it"
TEN_MINUTES_S = 600.0


def check(evidence: Evidence) -> Iterator[Violation]:
    """Report what waits in silence."""
    for seen in evidence.notes.get("stranded", ()):
        if seen["waited_s"] >= TEN_MINUTES_S and not seen["warned"]:
            yield Violation(
                NAME,
                f"run {seen['run']} of job {seen['job']!r} has been queued for {seen['waited_s']:.0f} s, no node that "
                "lives can run it, and nobody was warned",
            )
