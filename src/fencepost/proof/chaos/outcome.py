"""The outcome: faults by kind, the states of due times, violations, and durations of takeovers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.proof.chaos.faults import Fault
from fencepost.proof.chaos.gathering import lost_writes
from fencepost.proof.chaos.takeovers import GRACE_S, Takeover, quantile, takeovers
from fencepost.proof.checkers import CHECKERS
from fencepost.proof.evidence import Evidence, Violation
from fencepost.proof.history import EntryKind

_RAN = frozenset({"succeeded", "dead", "cancelled"})


@dataclass(frozen=True, slots=True)
class Fires:
    """What became of due times."""

    due: int
    ran: int
    skipped: int
    misfired: int
    under_way: int
    lost_attempts: int


@dataclass(frozen=True, slots=True)
class Participants:
    """The actors, those that ended unexpectedly, and whether all of it was in one file."""

    names: tuple[str, ...]
    fallen: tuple[str, ...] = ()
    is_one_file: bool = False


@dataclass(frozen=True, slots=True)
class ChaosOutcome:
    """All of it."""

    seed: int
    ttl_s: float
    faults: tuple[Fault, ...]
    fires: Fires
    grants: int
    effects: int
    checks: dict[str, tuple[Violation, ...]]
    takeovers: tuple[Takeover, ...]

    @property
    def violations(self) -> list[Violation]:
        """Every promise that was broken."""
        return [violation for found in self.checks.values() for violation in found]

    @property
    def undisturbed(self) -> list[float]:
        """The durations of takeovers with an undisturbed peer."""
        return [each.took_s for each in self.takeovers if not each.was_disturbed]

    @property
    def disturbed(self) -> list[float]:
        """The durations of the other takeovers."""
        return [each.took_s for each in self.takeovers if each.was_disturbed]

    @property
    def by_kind(self) -> dict[str, int]:
        """Faults, counted."""
        return dict(Counter(str(fault.kind) for fault in self.faults).most_common())

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "seed": self.seed,
            "ttl_s": self.ttl_s,
            "faults": {"together": len(self.faults), **self.by_kind},
            "fires": {name: getattr(self.fires, name) for name in Fires.__slots__},
            "grants": self.grants,
            "effects": self.effects,
            "violations": {name: list(map(str, found)) for name, found in self.checks.items()},
            "takeover": {
                "count": len(self.undisturbed),
                "p50_s": quantile(self.undisturbed, 0.5),
                "p99_s": quantile(self.undisturbed, 0.99),
                "bound_s": self.ttl_s + GRACE_S,
                "disturbed": {"count": len(self.disturbed), "longest_s": max(self.disturbed, default=None)},
            },
        }


def outcome_of(evidence: Evidence, faults: Sequence[Fault], *, seed: int, around: Participants) -> ChaosOutcome:
    """Check everything, and count."""
    ttl_s = evidence.timing.ttl_s
    taken = takeovers(evidence, faults, names=around.names, is_one_file=around.is_one_file)
    checks = {name: tuple(check(evidence)) for name, check in CHECKERS}
    checks["effects"] = tuple(lost_writes(evidence))
    checks["processes"] = tuple(Violation("processes", each) for each in around.fallen)
    checks["takeover"] = tuple(_too_slow(taken, ttl_s + GRACE_S))
    granted = [entry for entry in evidence.history.of("acquire") if entry.kind is EntryKind.OK]
    return ChaosOutcome(
        seed, ttl_s, tuple(faults), _fires(evidence), len(granted), len(evidence.effects), checks, tuple(taken)
    )


def _fires(evidence: Evidence) -> Fires:
    states: Counter[str] = Counter()
    first_us, last_us = min((due.at_us for due in evidence.due), default=0), _end_us(evidence)
    for run in evidence.runs:
        if run.is_tick and first_us <= run.span_us[0] and run.span_us[1] <= last_us:
            states[run.state] += run.ticks
    ran = sum(states[state] for state in _RAN)
    return Fires(
        due=len(evidence.due),
        ran=ran,
        skipped=states["skipped"],
        misfired=states["misfired"],
        under_way=sum(states.values()) - ran - states["skipped"] - states["misfired"],
        lost_attempts=sum(attempt.outcome == "lost" for attempt in evidence.attempts),
    )


def _end_us(evidence: Evidence) -> int:
    return max((due.at_us for due in evidence.due), default=0)


def _too_slow(taken: Sequence[Takeover], bound_s: float) -> list[Violation]:
    """Compare the 99th percentile with its bound."""
    p99_s = quantile([each.took_s for each in taken if not each.was_disturbed], 0.99)
    if p99_s is None or p99_s <= bound_s:
        return []
    slow = [each for each in taken if each.took_s > bound_s and not each.was_disturbed]
    return [
        Violation("takeover", f"p99 is {p99_s:.2f} s, and should be at most {bound_s:g} s", "; ".join(map(str, slow)))
    ]
