"""8. What was committed took effect once: every event, and the effect of every run that promises one.

- An effect with one key lands once in a resource, however often it is requested. ``notes["at_least_once"]`` lists
  resources without this promise.
- ``notes["events"]`` maps a resource to its events: key → whether it was committed. A committed event took effect once,
  an event that was rolled back never.
- ``notes["effects_of"]`` maps a job to a resource (None: any). There, each run of the job that succeeded left exactly
  one effect, and each run that was never tried left none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from fencepost.proof.evidence import Effect, Evidence, Violation
from fencepost.proof.telling import run_text

NAME = "effects once"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Count the effects by key and by run."""
    yield from _twice(evidence)
    yield from _events(evidence)
    yield from _of_runs(evidence)


def _twice(evidence: Evidence) -> Iterator[Violation]:
    exempt = frozenset(evidence.notes.get("at_least_once", ()))
    landed: dict[tuple[str, str], list[Effect]] = defaultdict(list)
    for effect in evidence.effects:
        if effect.resource not in exempt:
            landed[effect.resource, effect.key].append(effect)
    for (resource, key), effects in landed.items():
        if len(effects) > 1:
            sentence = "; ".join(f"run {each.run_id} under token {each.token}" for each in effects)
            yield Violation(NAME, f"{key!r} took effect {len(effects)} times in {resource!r}", sentence)


def _events(evidence: Evidence) -> Iterator[Violation]:
    for resource, events in evidence.notes.get("events", {}).items():
        counts = Counter(effect.key for effect in evidence.effects if effect.resource == resource)
        for key, is_committed in events.items():
            if is_committed and not counts[key]:
                yield Violation(NAME, f"event {key!r} was committed and took no effect in {resource!r}")
            if not is_committed and counts[key]:
                yield Violation(NAME, f"event {key!r} was not committed and took effect in {resource!r}")


def _of_runs(evidence: Evidence) -> Iterator[Violation]:
    for job, resource in evidence.notes.get("effects_of", {}).items():
        counts = Counter(effect.run_id for effect in evidence.effects if resource in (None, effect.resource))
        where = f" in {resource!r}" if resource else ""
        for run in evidence.runs:
            if run.job != job:
                continue
            if run.state == "succeeded" and counts[run.id] != 1:
                yield Violation(NAME, f"{run_text(run)} left {counts[run.id]} effects{where}, not one")
            if run.has_ended and not run.attempts and counts[run.id]:
                yield Violation(NAME, f"{run_text(run)} was never tried, and left an effect{where}")
