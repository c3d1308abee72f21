"""7. The effects of a finished bulk job are its input without skipped items, each once, and its counts are right.

``notes["bulk"]`` describes the bulk work. It is a list of mappings, one for each instance:

==============  ====================================================================================================
``resource``    the resource that received the effects; with several writers, ``resource/writer``
``input``       all keys
``filtered``    keys that should be left out
``skipped``     keys of dead letters, one for each letter
``skippable``   keys that may become dead letters, if known
``counts``      read, written, filtered and skipped, as committed with the chunks
``totals``      the same as in the job's results, one for each result
``finished``    whether the job is recorded as done; and ``run``, its run
``given_up``    runs that failed for good although only faults were injected
``left``        runs that have not ended, although there was enough time
==============  ====================================================================================================

Even if it is not finished, nothing may be there twice, or that is not in its input, and the counts match what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fencepost.proof.evidence import Evidence, Violation

NAME = "bulk once"
_COUNTED = ("read", "written", "filtered", "skipped")


def check(evidence: Evidence) -> Iterator[Violation]:
    """Count the effects of each bulk job."""
    for bulk in evidence.notes.get("bulk", ()):
        landed = _landed(evidence, bulk["resource"])
        for what, keys in _wrong(bulk, landed):
            if keys:
                yield Violation(NAME, f"bulk work into {bulk['resource']!r} {what}: {_some(keys)}", _about(bulk))
        for what in _miscounted(bulk, landed):
            yield Violation(NAME, f"bulk work into {bulk['resource']!r} {what}", _about(bulk))


def _landed(evidence: Evidence, resource: str) -> Counter[str]:
    within = f"{resource}/"
    return Counter(
        effect.key for effect in evidence.effects if effect.resource == resource or effect.resource.startswith(within)
    )


def _wrong(bulk: Mapping[str, Any], landed: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    given, filtered = set(bulk["input"]), set(bulk.get("filtered", ()))
    letters = Counter(bulk.get("skipped", ()))
    skipped = set(letters)
    yield "has what was not its input", sorted(set(landed) - given)
    yield "has something twice", sorted(key for key, count in landed.items() if count > 1)
    yield "has what it recorded as skipped", sorted(skipped & set(landed))
    yield "has what was to be left out", sorted(filtered & set(landed))
    yield "skipped what was not its input", sorted(skipped - given)
    yield "recorded something twice as skipped", sorted(key for key, count in letters.items() if count > 1)
    yield "was given up for no reason of its own, in runs", [str(run) for run in bulk.get("given_up", ())]
    yield "does not come to its end, in runs", [str(run) for run in bulk.get("left", ())]
    if "skippable" in bulk:
        yield "skipped what nothing was wrong with", sorted(skipped - set(bulk["skippable"]))
    if bulk.get("finished", True):
        yield "is finished and lacks part of its input", sorted(given - filtered - skipped - set(landed))


def _miscounted(bulk: Mapping[str, Any], landed: Counter[str]) -> Iterator[str]:
    counts = bulk.get("counts")
    if counts is None:
        return
    read, written, filtered, skipped = (counts.get(name, 0) for name in _COUNTED)
    if read != written + filtered + skipped:
        yield f"counted {read} as read, and {written} + {filtered} + {skipped} as written, filtered and skipped"
    if written != landed.total():
        yield f"counted {written} as written, and {landed.total()} are there"
    if skipped != len(bulk.get("skipped", ())):
        yield f"counted {skipped} as skipped, and {len(bulk.get('skipped', ()))} are on record"
    if bulk.get("finished", True) and read != len(bulk["input"]):
        yield f"is finished, and counted {read} of {len(bulk['input'])} as read"
    for reported in bulk.get("totals", ()):
        if any(reported.get(name, 0) != counts.get(name, 0) for name in _COUNTED):
            yield f"reported {_spelled(reported)}, and its chunks have counted {_spelled(counts)}"


def _spelled(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts.get(name, 0)} {name}" for name in _COUNTED)


def _some(keys: Iterable[str], most: int = 5) -> str:
    shown = list(keys)
    return ", ".join(map(repr, shown[:most])) + (f" and {len(shown) - most} more" if len(shown) > most else "")


def _about(bulk: Mapping[str, Any]) -> str:
    return f"run {bulk['run']}" if "run" in bulk else ""
