"""7. A finished bulk job's effects are its input, less what it recorded as skipped, each once.

Bulk work is told in ``notes["bulk"]``, a list of mappings: ``resource`` that received the effects, ``input`` all keys,
``skipped`` those put aside with a record, ``run`` and ``finished``. While it is not finished nothing may be there that
is not of its input, nor anything twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fencepost.proof.evidence import Evidence, Violation

NAME = "bulk once"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Count the effects of each bulk job."""
    for bulk in evidence.notes.get("bulk", ()):
        counts = Counter(effect.key for effect in evidence.effects if effect.resource == bulk["resource"])
        for what, keys in _wrong(bulk, counts):
            if keys:
                yield Violation(NAME, f"bulk work into {bulk['resource']!r} {what}: {_some(keys)}", _about(bulk))


def _wrong(bulk: Mapping[str, Any], counts: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    given, skipped = set(bulk["input"]), set(bulk.get("skipped", ()))
    yield "has what was not its input", sorted(set(counts) - given)
    yield "has something twice", sorted(key for key, count in counts.items() if count > 1)
    yield "has what it recorded as skipped", sorted(skipped & set(counts))
    yield "skipped what was not its input", sorted(skipped - given)
    if bulk.get("finished", True):
        yield "is finished and lacks part of its input", sorted(given - skipped - set(counts))


def _some(keys: Iterable[str], most: int = 5) -> str:
    shown = list(keys)
    return ", ".join(map(repr, shown[:most])) + (f" and {len(shown) - most} more" if len(shown) > most else "")


def _about(bulk: Mapping[str, Any]) -> str:
    return f"run {bulk['run']}" if "run" in bulk else ""
