"""Checkpoints: the position of a partition, in the database of its effects, moved in the transaction of each chunk.

The row is the truth about what has landed. It is moved by compare-and-set from the position that the chunk was read
from. If two attempts write the same chunk, the second finds the checkpoint moved, and its effects are rolled back. So a
chunk lands once even if a fence could not distinguish the two.

::

    bulk:<job>@<instance>/<step>       the plan of a step: its slices, and whether it is done
    bulk:<job>@<instance>/<step>#<n>   one partition: its position, its counts, and whether it is done

The identity of the ledger comes before the instance, as in ``bulk:settle@1f0c62d7a9be:run-42/main`` (`bulk.labels`).
An *instance* is what a bulk job has to do once: a window with its parameters, or one request with all its repetitions.
A repetition continues from the checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fencepost.bulk.reader import Position
from fencepost.core.identity import canonical_json, fitted
from fencepost.errors import CheckpointMismatch, FencepostError
from fencepost.fence.effect_statements import EffectStatements
from fencepost.fence.final_update import FinalUpdate
from fencepost.fence.writer import Writer

_MOST_AT_ONCE = 500  # parameters per statement stay below every driver's limit


class CheckpointMoved(FencepostError):
    """Another attempt has moved the checkpoint: it has landed this chunk or a later one."""


class Counts(NamedTuple):
    """The number of items so far, by result: ``read = written + filtered + skipped``."""

    read: int = 0
    written: int = 0
    filtered: int = 0
    skipped: int = 0
    chunks: int = 0

    def plus(self, other: Counts) -> Counts:
        return Counts(*map(sum, zip(self, other, strict=True)))

    def to_json(self) -> str:
        return canonical_json(self._asdict())

    @staticmethod
    def from_json(text: str | None) -> Counts:
        stored = json.loads(text) if text else {}
        return Counts(**{name: stored.get(name, 0) for name in Counts._fields})


@dataclass(frozen=True, slots=True)
class Care:
    """How to continue where workers were lost: of the next `suspects` items, process `few` at a time.

    `lost` counts the losses since the checkpoint last moved, or since `few` became smaller. If a single item reaches
    the limit, it is the one that crashes its worker.
    """

    lost: int = 0
    suspects: int = 0
    few: int = 0  # zero: as many as usual

    def after_losses(self, losses: int, *, chunk: int) -> Care:
        """Return the care for the next attempt after `losses` more losses here; `chunk` is the normal size."""
        lost = self.lost + losses
        if losses and self.few > 1:  # one of these items is the cause
            return Care(0, self.few, _fewer(self.few))
        if not self.few and lost >= _SUSPICIOUS:
            return Care(0, chunk, _fewer(chunk))
        return replace(self, lost=lost)

    def after_items(self, items: int) -> Care:
        """Return the care after `items` more items have landed."""
        if not self.lost and not self.few:
            return self
        left = self.suspects - items
        return Care(0, left, self.few) if left > 0 else CARELESS

    def to_json(self) -> list[int]:
        return [self.lost, self.suspects, self.few]


_SUSPICIOUS = 2  # losses at one place: a single one may have any cause
_AT_ONCE = 64  # a suspected chunk is divided into this many: so for one of 4,000, two more losses find the item
CARELESS = Care()


def _fewer(items: int) -> int:
    return -(-items // _AT_ONCE)


@dataclass(frozen=True, slots=True)
class CheckpointMark:
    """The content of a checkpoint. `number` rises with every move, so that no two are equal.

    `run` and `crashes`: which run moved it last, or took it over, and how often that run had been lost by then. This
    shows whether runs are lost at the same place again and again.
    """

    number: int = 0
    after: Position = None
    is_done: bool = False
    run: int | None = None
    crashes: int = 0
    care: Care = CARELESS
    more: dict[str, Any] = field(default_factory=dict)

    def moved(self, after: Position, *, by: tuple[int, int], items: int = 0, is_done: bool = False) -> CheckpointMark:
        """Return the mark after a chunk; `by` is the run, and how often it was lost."""
        care = self.care.after_items(items)
        return replace(self, number=self.number + 1, after=after, is_done=is_done, run=by[0], crashes=by[1], care=care)

    def taken(self, *, by: tuple[int, int], care: Care = CARELESS) -> CheckpointMark:
        """Return the mark for a run that takes over here."""
        return replace(self, number=self.number + 1, run=by[0], crashes=by[1], care=care)

    def to_json(self) -> str:
        place = {"number": self.number, "after": self.after, "done": self.is_done}
        care = {} if self.care == CARELESS else {"care": self.care.to_json()}
        return canonical_json({**self.more, **place, **care, "run": self.run, "crashes": self.crashes})

    @staticmethod
    def from_json(text: str) -> CheckpointMark:
        stored = json.loads(text)
        number, after, is_done = stored.pop("number"), stored.pop("after"), stored.pop("done")
        run, crashes, care = stored.pop("run"), stored.pop("crashes"), Care(*stored.pop("care", ()))
        return CheckpointMark(number, after, is_done, run, crashes, care, stored)


class StoredCheckpoint(NamedTuple):
    """A checkpoint as read from the database."""

    mark: CheckpointMark
    counts: Counts
    shape: str | None
    token: int | None


def total_counts(partitions: Iterable[StoredCheckpoint | None]) -> Counts:
    """Return the sum over partitions; None stands for one that has not begun."""
    total = Counts()
    for each in partitions:
        total = total if each is None else total.plus(each.counts)
    return total


class Checkpoint:
    """One row, by its name. Every method uses the caller's transaction."""

    def __init__(self, name: str, shape: str | None, writer: Writer) -> None:
        self.name = name
        self._row = fitted(name)
        self._shape = shape
        self._writer = writer
        self.meanwhile: Callable[[], None] | None = None  # called while a move is being committed

    def __repr__(self) -> str:
        return f"<Checkpoint {self.name}>"

    def read(self, tx: Any) -> StoredCheckpoint | None:
        """Return the stored checkpoint; None if there is none yet. Refuse one with another shape."""
        landing = EffectStatements(tx, self._writer)
        query = f"SELECT position, counts, shape, token FROM {landing.table('checkpoint')} WHERE name = %s"  # noqa: S608 - ours
        rows = landing.execute(query, [self._row]).rows
        if not rows:
            return None
        position, counts, shape, token = rows[0]
        if self._shape is not None and shape != self._shape:
            raise CheckpointMismatch(
                f"the checkpoint {self.name!r} was made by other code, and the meaning of its position has changed. "
                "Nothing was written. Finish the unfinished run with the code it was begun with, or start over: "
                "fencepost bulk forget RUN --reason '…'"
            )
        return StoredCheckpoint(CheckpointMark.from_json(position), Counts.from_json(counts), shape, token)

    def begin(self, tx: Any, mark: CheckpointMark, counts: Counts | None = None) -> bool:
        """Insert the row; False if it exists."""
        landing = EffectStatements(tx, self._writer)
        values: dict[str, tuple[str, list[Any]]] = {
            "name": ("%s", [self._row]),
            "position": ("%s", [mark.to_json()]),
            "shape": ("%s", [self._shape]),
            "token": ("%s", [self._writer.token]),
            "counts": ("%s", [(counts or Counts()).to_json()]),
            "updated_at": (landing.now, []),
        }
        return landing.insert("checkpoint", values)

    def move(self, tx: Any, before: CheckpointMark, after: CheckpointMark, counts: Counts) -> None:
        """Move the checkpoint from `before` to `after`; `CheckpointMoved` if it is not at `before`."""
        change = self.moving(tx, before, after, counts)
        if EffectStatements(tx, self._writer).execute(change.sql, change.values).count != 1:
            raise change.missed

    def moving(self, tx: Any, before: CheckpointMark, after: CheckpointMark, counts: Counts) -> FinalUpdate:
        """Return the change that `move` makes, to execute it at the end of a transaction."""
        landing = EffectStatements(tx, self._writer)
        sets = f"position = %s, counts = %s, token = %s, updated_at = {landing.now}"
        statement = f"UPDATE {landing.table('checkpoint')} SET {sets} WHERE name = %s AND position = %s"  # noqa: S608 - ours
        values = (after.to_json(), counts.to_json(), self._writer.token, self._row, before.to_json())
        missed = CheckpointMoved(f"the checkpoint {self.name!r} is no longer where this chunk began")
        return FinalUpdate(statement, values, missed, self.meanwhile)


def kept_at(tx: Any, names: Sequence[str], writer: Writer) -> list[StoredCheckpoint | None]:
    """Read many checkpoints at once, with any shape; None where there is none."""
    landing = EffectStatements(tx, writer)
    found: dict[str, StoredCheckpoint] = {}
    rows = [fitted(name) for name in names]
    for start in range(0, len(rows), _MOST_AT_ONCE):
        some = rows[start : start + _MOST_AT_ONCE]
        marks = ", ".join(["%s"] * len(some))
        query = (
            f"SELECT name, position, counts, shape, token FROM {landing.table('checkpoint')} WHERE name IN ({marks})"  # noqa: S608 - ours
        )
        for name, position, counts, shape, token in landing.execute(query, some).rows:
            found[name] = StoredCheckpoint(CheckpointMark.from_json(position), Counts.from_json(counts), shape, token)
    return [found.get(row) for row in rows]


def plan_name(job: str, instance: str, step: str) -> str:
    """Return the name of the checkpoint of a step's plan."""
    return f"bulk:{job}@{instance}/{step}"


def partition_name(job: str, instance: str, step: str, number: int) -> str:
    """Return the name of the checkpoint of a partition."""
    return f"{plan_name(job, instance, step)}#{number}"
