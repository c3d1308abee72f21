"""The progress of a bulk job, by step and partition, from its checkpoints; and the results of acts on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fencepost.app.records.record import LedgerRecord

if TYPE_CHECKING:
    from fencepost.bulk.checkpoint import Counts


@dataclass(frozen=True, slots=True)
class CountsRecord(LedgerRecord):
    """Counts of items so far: ``read = written + filtered + skipped``, in `chunks` chunks."""

    read: int
    written: int
    filtered: int
    skipped: int
    chunks: int

    @staticmethod
    def of(counts: Counts) -> CountsRecord:
        """Read the counts of a checkpoint."""
        return CountsRecord(counts.read, counts.written, counts.filtered, counts.skipped, counts.chunks)


@dataclass(frozen=True, slots=True)
class PartitionRecord(LedgerRecord):
    """A partition of a step. `slice` is what it reads; `position` is how far it has read, None before the beginning.

    `counts` is None if nothing of it has been written. `run_id` is the run that wrote last, or that is to begin with
    it; `run_state` is None if that run is no longer on record.
    """

    number: int
    slice: Mapping[str, Any] = field(hash=False)
    position: Any = field(hash=False)
    done: bool
    counts: CountsRecord | None
    run_id: int | None
    run_state: str | None


@dataclass(frozen=True, slots=True)
class BulkStepRecord(LedgerRecord):
    """A step of a bulk job. `state` is ``not begun``, ``begun`` or ``done``; `done_by` is the run that completed it.

    `other_code`: the code has changed since it was begun, so it cannot be continued.
    """

    name: str
    state: str
    done_by: int | None
    other_code: bool
    counts: CountsRecord
    partitions: Sequence[PartitionRecord]

    @property
    def partitions_done(self) -> int:
        """How many partitions are done."""
        return sum(each.done for each in self.partitions)


@dataclass(frozen=True, slots=True)
class BulkRecord(LedgerRecord):
    """The instance that a run of a bulk job works on, and its progress. `state` is that of the run `run_id`."""

    run_id: int
    job: str
    state: str
    instance: str
    steps: Sequence[BulkStepRecord]


@dataclass(frozen=True, slots=True)
class BulkAgainRecord(LedgerRecord):
    """A new run `run_id`, which repeats the instance of run `again_of`."""

    run_id: int
    again_of: int


@dataclass(frozen=True, slots=True)
class BulkForgottenRecord(LedgerRecord):
    """How many `checkpoints` of a run's instance were removed, and how many items had been `written`."""

    run_id: int
    instance: str
    checkpoints: int
    written: int
