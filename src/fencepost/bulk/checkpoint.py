"""Checkpoints: how far a partition has come, in the database of its effects, moved in the transaction of each chunk.

The row is the truth about what has landed. It is moved by compare-and-set from the position that the chunk was read
from: of two that would write the same chunk the second finds it moved, and its effects are rolled back with that. So a
chunk lands once even where no fence could tell the two apart.

::

    bulk:<job>@<instance>/<step>       the plan of a step: its slices, and whether it is done
    bulk:<job>@<instance>/<step>#<n>   one partition: its position, its counts, and whether it is done

An *instance* is what a bulk job is asked to do once: a window with its parameters, or one request with all its
repetitions. A repetition goes on from its checkpoints.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fencepost.bulk.reader import Position
from fencepost.core.identity import canonical_json, fitted
from fencepost.errors import CheckpointMismatch, FencepostError
from fencepost.fence.landing import Landing
from fencepost.fence.writer import Writer


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
class Mark:
    """What a checkpoint says. `number` rises with every move, so that no two say the same.

    `run` and `crashes`: which run moved it last, or took it over, and how often that had been lost by then. Who is lost
    at the same place again and again is told by it.
    """

    number: int = 0
    after: Position = None
    is_done: bool = False
    run: int | None = None
    crashes: int = 0
    more: dict[str, Any] = field(default_factory=dict)

    def moved(self, after: Position, *, by: tuple[int, int], is_done: bool = False) -> Mark:
        """Return where it stands after a chunk; `by` is the run, and how often it was lost."""
        return replace(self, number=self.number + 1, after=after, is_done=is_done, run=by[0], crashes=by[1])

    def taken(self, *, by: tuple[int, int]) -> Mark:
        """Return it taken over by another run."""
        return replace(self, number=self.number + 1, run=by[0], crashes=by[1])

    def losses(self, *, by: tuple[int, int]) -> int:
        """Return how often this run was lost since it last moved."""
        return max(by[1] - self.crashes, 0) if by[0] == self.run else 0

    def to_json(self) -> str:
        """Write it."""
        told = {"number": self.number, "after": self.after, "done": self.is_done}
        return canonical_json({**self.more, **told, "run": self.run, "crashes": self.crashes})

    @staticmethod
    def from_json(text: str) -> Mark:
        """Read it."""
        stored = json.loads(text)
        number, after, is_done = stored.pop("number"), stored.pop("after"), stored.pop("done")
        return Mark(number, after, is_done, stored.pop("run"), stored.pop("crashes"), stored)


class Kept(NamedTuple):
    """A checkpoint as it was read."""

    mark: Mark
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

    def __repr__(self) -> str:
        return f"<Checkpoint {self.name}>"

    def read(self, tx: Any) -> Kept | None:
        """Return what it says; None if there is none yet. One of another shape is refused."""
        landing = Landing(tx, self._writer)
        query = f"SELECT position, counts, shape, token FROM {landing.table('checkpoint')} WHERE name = %s"  # noqa: S608 - ours
        rows = landing.execute(query, [self._row]).rows
        if not rows:
            return None
        position, counts, shape, token = rows[0]
        if self._shape is not None and shape != self._shape:
            raise CheckpointMismatch(
                f"the checkpoint {self.name!r} was made by other code: what its position means has changed since. "
                "Nothing was written. Finish the unfinished run with the code it was begun with, or begin anew: "
                "fencepost bulk forget"
            )
        return Kept(Mark.from_json(position), Counts.from_json(counts), shape, token)

    def begin(self, tx: Any, mark: Mark, counts: Counts | None = None) -> bool:
        """Make the row; False if there is one."""
        landing = Landing(tx, self._writer)
        values: dict[str, tuple[str, list[Any]]] = {
            "name": ("%s", [self._row]),
            "position": ("%s", [mark.to_json()]),
            "shape": ("%s", [self._shape]),
            "token": ("%s", [self._writer.token]),
            "counts": ("%s", [(counts or Counts()).to_json()]),
            "updated_at": (landing.now, []),
        }
        return landing.insert("checkpoint", values)

    def move(self, tx: Any, before: Mark, after: Mark, counts: Counts) -> None:
        """Move on from `before` to `after`; `CheckpointMoved` unless it is where the caller believed it to be."""
        landing = Landing(tx, self._writer)
        sets = f"position = %s, counts = %s, token = %s, updated_at = {landing.now}"
        statement = f"UPDATE {landing.table('checkpoint')} SET {sets} WHERE name = %s AND position = %s"  # noqa: S608 - ours
        values = [after.to_json(), counts.to_json(), self._writer.token, self._row, before.to_json()]
        if landing.execute(statement, values).count != 1:
            raise CheckpointMoved(f"the checkpoint {self.name!r} is no longer where this chunk began")


def plan_name(job: str, instance: str, step: str) -> str:
    """Name the checkpoint of a step's plan."""
    return f"bulk:{job}@{instance}/{step}"


def partition_name(job: str, instance: str, step: str, number: int) -> str:
    """Name the checkpoint of a partition."""
    return f"{plan_name(job, instance, step)}#{number}"
