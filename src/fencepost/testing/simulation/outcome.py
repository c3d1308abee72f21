"""The outcome of one seed, and the hash that shows that the same seed gives the same."""

from __future__ import annotations

import gc
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from fencepost.core.events import Event
from fencepost.proof.evidence import Evidence, Violation
from fencepost.testing.simulation.cluster import Cluster
from fencepost.testing.simulation.scenario import Scenario

Patch = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """The outcome of one seed."""

    seed: int
    violations: tuple[Violation, ...]
    trace_hash: str
    evidence: Evidence
    plan: Scenario
    counts: Counter[str] = field(default_factory=Counter)
    emitted: tuple[tuple[float, str, Event], ...] = ()  # the events of nodes, and when they came


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection meanwhile: its time depends on what ran before."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def unexpected(cluster: Cluster) -> list[Violation]:
    """Return tasks that died of an exception: no checker reports those."""
    return [
        Violation("no task dies", f"{task} of {process} ended by {error!r}", "")
        for process, task, error in cluster.hub.failures
    ]


def counted(cluster: Cluster, evidence: Iterable[Evidence]) -> Counter[str]:
    """Count what happened."""
    counts = Counter({"switches": cluster.hub.switches, "statements": _statements(cluster)})
    counts["takeovers"] = cluster.events["node died"]
    for each in evidence:
        counts["runs"] += len(each.runs)
        counts["attempts"] += len(each.attempts)
        counts["effects"] += len(each.effects)
    for fault in cluster.plan.faults:
        counts[f"fault: {fault.kind}"] += 1
    return counts


def trace_hash(cluster: Cluster, evidence: Iterable[Evidence]) -> str:
    """Return a hash of all that happened, and in which order."""
    digest = hashlib.sha256(cluster.history.fingerprint().encode())
    for each in evidence:
        for part in (each.runs, each.attempts, each.transitions, each.effects):
            digest.update(repr(part).encode())
    digest.update(json.dumps([cluster.hub.switches, _statements(cluster), cluster.hub.now]).encode())
    return digest.hexdigest()[:16]


def _statements(cluster: Cluster) -> int:
    return sum(server.statements for server in cluster.servers.values())
