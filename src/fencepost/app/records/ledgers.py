"""What a ledger is, if it may have been restored or copied; and what was done to it or to a job as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fencepost.app.records.record import LedgerRecord

if TYPE_CHECKING:
    from fencepost.ledger.restoring import Restored


@dataclass(frozen=True, slots=True)
class StandingRecord(LedgerRecord):
    """Whether a ledger is the one it was. `held`: nodes do nothing with it until a person has decided.

    `changed` names what differs between what was `noted` and what is `present`; `why` is the reason that a node has
    recorded. `id` is the ledger's identity, None before a node has given it one.
    """

    held: bool
    changed: Sequence[str]
    id: str | None
    noted: Mapping[str, str] | None = field(hash=False)
    present: Mapping[str, str] = field(hash=False)
    why: str | None


@dataclass(frozen=True, slots=True)
class DecisionRecord(LedgerRecord):
    """What a decision about a restored or copied ledger has changed.

    `skipped` is the number of schedules whose due times since the dump were skipped, `runs` that of unfinished runs
    that were held or cancelled, `paused` that of schedules made at run time that were paused.
    """

    copy: bool
    skipped: int
    runs: int
    paused: int

    @staticmethod
    def of(done: Restored, *, copy: bool) -> DecisionRecord:
        """Read what was done."""
        return DecisionRecord(copy, done.skipped, done.runs, done.paused)


@dataclass(frozen=True, slots=True)
class RenamedJobRecord(LedgerRecord):
    """A job that has another name now, and how many rows of each kind got it.

    Where it joined another job: the ids of its schedules that were deleted, and how many permissions on it were taken.
    """

    name: str
    formerly: str
    schedules: int
    runs: int
    checkpoints: int
    letters: int
    schedules_deleted: Sequence[str] = ()
    permissions_taken: int = 0
