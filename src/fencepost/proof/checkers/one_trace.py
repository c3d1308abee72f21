"""12. One seed, one trace: histories of the same seed are the same, entry by entry.

``notes["fingerprints"]`` are those of other simulations of the same seed. `same` compares two histories, and reports
where they first differ.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.proof.evidence import Evidence, Violation
from fencepost.proof.history import History

NAME = "one trace"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Compare with earlier histories of the same seed."""
    others = evidence.notes.get("fingerprints", ())
    if not others:
        return
    mine = evidence.history.fingerprint()
    for other in others:
        if other != mine:
            yield Violation(NAME, f"the same seed gave another history before: {mine[:12]} now, {other[:12]} then")


def same(first: History, second: History) -> Iterator[Violation]:
    """Compare two histories, and report the first entry in which they differ."""
    pairs = zip(first.entries, second.entries, strict=False)
    for number, (one, other) in enumerate(pairs):
        if one != other:
            yield Violation(NAME, f"entry {number} differs at {one.at:.6f} s", f"{one}; {other}")
            return
    if len(first.entries) != len(second.entries):
        yield Violation(NAME, f"one history has {len(first.entries)} entries, the other {len(second.entries)}")
