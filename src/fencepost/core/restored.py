"""Decides whether a ledger is still the same, or was restored or copied. Pure rules.

The rules compare what the ledger has recorded, what its database shows, and what a living node remembers.

::

    as recorded                                     same
    another database, table or file than recorded   changed: held for an operator (`fencepost restored`)
    a node remembers up to five minutes more        behind: advanced past what the node knows, and work continues
    a node remembers more than that                 behind by more: held for an operator

A logical restore or a copy creates new tables, so the evidence differs. After a physical restore (a snapshot, or a
promoted replica that lacks the last moments) the evidence is the same; only a node that was running before can notice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LONGEST_GAP_US = 5 * 60 * 1_000_000
"""How much may be missing before an operator has to decide: as much as a promoted replica may lack."""

LEASES = "leases"
"""The part of the evidence that identifies a lease store that is separate from the ledger."""

Evidence = Mapping[str, str]
"""What distinguishes a database, table or file from a restored or copied one. Parts missing on one side are ignored."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a node knows of a ledger: the last heartbeat, the highest id, and how far schedules were planned.

    `era` counts how often an operator has accepted the ledger after a restore. `top_id` is None if the database does
    not show it.
    """

    ledger_id: str | None = None
    era: int = 0
    beat_us: int = 0
    top_id: int | None = None
    planned: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Same:
    """The ledger has not changed."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The database, table or file is not the recorded one."""

    what: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Behind:
    """The ledger lacks something that a living node knows; at least `by_us` of its history is missing."""

    by_us: int

    @property
    def is_small(self) -> bool:
        """Whether the ledger may be advanced without an operator's decision."""
        return self.by_us <= LONGEST_GAP_US


def differences(noted: Evidence, present: Evidence) -> tuple[str, ...]:
    """Return the names of the parts that both sides have and that differ."""
    return tuple(name for name in sorted(noted) if name in present and present[name] != noted[name])


def judge(noted: Evidence | None, present: Evidence, memory: Memory, ledger: Memory) -> Same | Changed | Behind:
    """Compare the recorded evidence with the present one, and a node's memory with the ledger."""
    changed = differences(noted or {}, present)
    if changed:
        return Changed(changed)
    if memory.ledger_id != ledger.ledger_id or memory.era < ledger.era:
        return Same()  # an operator has decided since
    if memory.era > ledger.era:
        return Behind(LONGEST_GAP_US + 1)  # it is older than a decision that this node has seen
    gap_us = max(memory.beat_us - ledger.beat_us, 0)
    return Behind(gap_us) if gap_us or is_ahead(memory, ledger) else Same()


def is_ahead(memory: Memory, ledger: Memory) -> bool:
    """Whether a node knows of ids or planned due times that the ledger does not have."""
    if ledger.top_id is not None and (memory.top_id or 0) > ledger.top_id:
        return True
    return any(through_us < memory.planned.get(name, 0) for name, through_us in ledger.planned.items())
