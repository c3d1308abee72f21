"""Whether a ledger is still the one that was worked with. Pure rules.

Compared are what it has on record, what its database shows, and what a living node remembers.

::

    as noted                                        same
    another database, table or file than noted      changed: held for a person (`fencepost restored`)
    a node remembers more, of five minutes at most  behind: advanced past what the node knows, and work goes on
    a node remembers more than that                 behind by more: held for a person

A logical restore or a copy makes other tables, so the evidence differs. A physical one (a snapshot, a replica that was
promoted and lacks the last moments) has the same evidence; only nodes that live through it can see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LONGEST_GAP_US = 5 * 60 * 1_000_000
"""How much of the ledger may be missing before a person has to decide: what a replica may lack when it is promoted."""

LEASES = "leases"
"""The name of the part that tells one lease store from another, where it is kept apart from the ledger."""

Evidence = Mapping[str, str]
"""What tells a database, its table or file from a restored or copied one. Parts that one side lacks do not count."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a node knows of a ledger: the last sign of life, the highest id, how far schedules were planned.

    `era` counts how often a person has accepted the ledger after a restore; `top_id` is None where nobody may see it.
    """

    ledger_id: str | None = None
    era: int = 0
    beat_us: int = 0
    top_id: int | None = None
    planned: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Same:
    """The ledger is what it was."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Its database, table or file is another one than noted."""

    what: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Behind:
    """It lacks what a living node knows; `by_us` is how much of it is missing, at least."""

    by_us: int

    @property
    def is_small(self) -> bool:
        """Whether it may be advanced without asking anybody."""
        return self.by_us <= LONGEST_GAP_US


def differences(noted: Evidence, present: Evidence) -> tuple[str, ...]:
    """Return the names of what is known on both sides and differs."""
    return tuple(name for name in sorted(noted) if name in present and present[name] != noted[name])


def judge(noted: Evidence | None, present: Evidence, memory: Memory, ledger: Memory) -> Same | Changed | Behind:
    """Compare what is noted with what is there, and what a node remembers with what the ledger has."""
    changed = differences(noted or {}, present)
    if changed:
        return Changed(changed)
    if memory.ledger_id != ledger.ledger_id or memory.era < ledger.era:
        return Same()  # a person has decided since
    if memory.era > ledger.era:
        return Behind(LONGEST_GAP_US + 1)  # it is from before a decision that this node has seen
    gap_us = max(memory.beat_us - ledger.beat_us, 0)
    return Behind(gap_us) if gap_us or is_ahead(memory, ledger) else Same()


def is_ahead(memory: Memory, ledger: Memory) -> bool:
    """Whether a node knows of ids or of planned due times that the ledger does not have."""
    if ledger.top_id is not None and (memory.top_id or 0) > ledger.top_id:
        return True
    return any(through_us < memory.planned.get(name, 0) for name, through_us in ledger.planned.items())
