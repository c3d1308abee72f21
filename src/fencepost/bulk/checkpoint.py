"""Checkpoints: how far a partition has come, in the database of its effects, moved in the transaction of each chunk.

The row is the truth about what has landed. It is moved by compare-and-set from the position that the chunk was read
from: of two that would write the same chunk the second finds it moved, and its effects are rolled back with that. So a
chunk lands once even where no fence could tell the two apart.

::

    bulk:<job>@<instance>/<step>       the plan of a step: its slices, and whether it is done
    bulk:<job>@<instance>/<step>#<n>   one partition: its position, its counts, and whether it is done

Before the instance stands the identity of its ledger, as in ``bulk:settle@1f0c62d7a9be:run-42/main`` (`bulk.labels`).
An *instance* is what a bulk job is asked to do once: a window with its parameters, or one request with all its
repetitions. A repetition goes on from its checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fencepost.bulk.reader import Position
from fencepost.core.identity import canonical_json, fitted
from fencepost.errors import CheckpointMismatch, FencepostError
from fencepost.fence.effect_statements import EffectStatements
from fencepost.fence.final_update import FinalUpdate
from fencepost.fence.writer import Writer

_MOST_AT_ONCE = 500


class CheckpointMoved(FencepostError):
    """Somebody else has moved the checkpoint: this chunk, or a later one, has landed by another hand."""


class Counts(NamedTuple):
    """What became of the items so far: ``read = written + filtered + skipped``."""

    read: int = 0
    written: int = 0
    filtered: int = 0
    skipped: int = 0
    chunks: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sum of both."""
        return Counts(*map(sum, zip(self, other, strict=True)))

    def to_json(self) -> str:
        """Write them."""
        return canonical_json(self._asdict())

    @staticmethod
    def from_json(text: str | None) -> Counts:
        """Read them."""
        stored = json.loads(text) if text else {}
        return Counts(**{name: stored.get(name, 0) for name in Counts._fields})


@dataclass(frozen=True, slots=True)
class Care:
    """How carefully to go on at a place where workers were lost. Among the next `suspects` items, `few` at a time.

    `lost` counts since it last moved, or became more careful. An item that is alone when that comes to a limit is what
    ends its worker.
    """

    lost: int = 0
    suspects: int = 0
    few: int = 0  # zero: as many as usual

    def after_losses(self, losses: int, *, chunk: int) -> Care:
        """Return the care for whoever goes on after so many losses at this place; `chunk` is the usual size."""
        lost = self.lost + losses
        if losses and self.few > 1:  # it was one of these few
            return Care(0, self.few, _fewer(self.few))
        if not self.few and lost >= _SUSPICIOUS:
            return Care(0, chunk, _fewer(chunk))
        return replace(self, lost=lost)

    def after_items(self, items: int) -> Care:
        """Return the care when so many more have landed."""
        if not self.lost and not self.few:
            return self
        left = self.suspects - items
        return Care(0, left, self.few) if left > 0 else CARELESS

    def to_json(self) -> list[int]:
        """Write it."""
        return [self.lost, self.suspects, self.few]


_SUSPICIOUS = 2
_AT_ONCE = 64  # into how many a suspected chunk is divided: so one of 4,000 takes two more losses to find its item
CARELESS = Care()


def _fewer(items: int) -> int:
    return -(-items // _AT_ONCE)


@dataclass(frozen=True, slots=True)
class CheckpointMark:
    """What a checkpoint says. `number` rises with every move, so that no two say the same.

    `run` and `crashes`: which run moved it last, or took it over, and how often that had been lost by then. Who is lost
    at the same place again and again is told by it.
    """

    number: int = 0
    after: Position = None
    is_done: bool = False
    run: int | None = None
    crashes: int = 0
    care: Care = CARELESS
    more: dict[str, Any] = field(default_factory=dict)

    def moved(self, after: Position, *, by: tuple[int, int], items: int = 0, is_done: bool = False) -> CheckpointMark:
        """Return where it stands after a chunk; `by` is the run, and how often it was lost."""
        care = self.care.after_items(items)
        return replace(self, number=self.number + 1, after=after, is_done=is_done, run=by[0], crashes=by[1], care=care)

    def taken(self, *, by: tuple[int, int], care: Care = CARELESS) -> CheckpointMark:
        """Return it in the hands of a run that begins here."""
        return replace(self, number=self.number + 1, run=by[0], crashes=by[1], care=care)

    def to_json(self) -> str:
        """Write it."""
        told = {"number": self.number, "after": self.after, "done": self.is_done}
        care = {} if self.care == CARELESS else {"care": self.care.to_json()}
        return canonical_json({**self.more, **told, **care, "run": self.run, "crashes": self.crashes})

    @staticmethod
    def from_json(text: str) -> CheckpointMark:
        """Read it."""
        stored = json.loads(text)
        number, after, is_done = stored.pop("number"), stored.pop("after"), stored.pop("done")
        run, crashes, care = stored.pop("run"), stored.pop("crashes"), Care(*stored.pop("care", ()))
        return CheckpointMark(number, after, is_done, run, crashes, care, stored)


class StoredCheckpoint(NamedTuple):
    """A checkpoint as it was read."""

    mark: CheckpointMark
    counts: Counts
    shape: str | None
    token: int | None


class Checkpoint:
    """One row, by its name. Every method works within the caller's transaction."""

    def __init__(self, name: str, shape: str | None, writer: Writer) -> None:
        self.name = name
        self._row = fitted(name)
        self._shape = shape
        self._writer = writer
        self.meanwhile: Callable[[], None] | None = None  # what there is to do while a move is committed

    def __repr__(self) -> str:
        return f"<Checkpoint {self.name}>"

    def read(self, tx: Any) -> StoredCheckpoint | None:
        """Return what it says; None if there is none yet. One of another shape is refused."""
        landing = EffectStatements(tx, self._writer)
        query = f"SELECT position, counts, shape, token FROM {landing.table('checkpoint')} WHERE name = %s"  # noqa: S608 - ours
        rows = landing.execute(query, [self._row]).rows
        if not rows:
            return None
        position, counts, shape, token = rows[0]
        if self._shape is not None and shape != self._shape:
            raise CheckpointMismatch(
                f"the checkpoint {self.name!r} was made by other code: what its position means has changed since. "
                "Nothing was written. Finish the unfinished run with the code it was begun with, or begin anew: "
                "fencepost bulk forget RUN --reason '…'"
            )
        return StoredCheckpoint(CheckpointMark.from_json(position), Counts.from_json(counts), shape, token)

    def begin(self, tx: Any, mark: CheckpointMark, counts: Counts | None = None) -> bool:
        """Make the row; False if there is one."""
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
        """Move on from `before` to `after`; `CheckpointMoved` unless it is where the caller believed it to be."""
        change = self.moving(tx, before, after, counts)
        if EffectStatements(tx, self._writer).execute(change.sql, change.values).count != 1:
            raise change.missed

    def moving(self, tx: Any, before: CheckpointMark, after: CheckpointMark, counts: Counts) -> FinalUpdate:
        """Return the change that `move` makes, for the end of a transaction."""
        landing = EffectStatements(tx, self._writer)
        sets = f"position = %s, counts = %s, token = %s, updated_at = {landing.now}"
        statement = f"UPDATE {landing.table('checkpoint')} SET {sets} WHERE name = %s AND position = %s"  # noqa: S608 - ours
        values = (after.to_json(), counts.to_json(), self._writer.token, self._row, before.to_json())
        missed = CheckpointMoved(f"the checkpoint {self.name!r} is no longer where this chunk began")
        return FinalUpdate(statement, values, missed, self.meanwhile)


def kept_at(tx: Any, names: Sequence[str], writer: Writer) -> list[StoredCheckpoint | None]:
    """Read many checkpoints at once, of whatever shape; None where there is none."""
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
    """Name the checkpoint of a step's plan."""
    return f"bulk:{job}@{instance}/{step}"


def partition_name(job: str, instance: str, step: str, number: int) -> str:
    """Name the checkpoint of a partition."""
    return f"{plan_name(job, instance, step)}#{number}"
