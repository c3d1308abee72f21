"""The contract of readers: where bulk items come from, page by page, from a position that a checkpoint keeps.

::

    Reader   what stands in the code: a query, a file, a generator. Immutable, shared by all partitions
    Slice    which part of the input a partition reads, as JSON: bounds of the key, or a number out of several
    Feed     a reader at work on one slice: it has a connection or a file open
    Page     items, and the position after each of them
    Unread   stands among the items for a record that could not be understood

**Promises of a feed.** `read(after, limit)` returns the items that follow `after`, in the reader's order, each once;
asked again from the same position it returns the same ones, but for what has changed in the input meanwhile. Two slices
of one plan have no item in common, and all of them together are the whole input.

**Records that cannot be understood.** Where a reader knows where a bad record ends, the record is an item that has
failed already: an `Unread` on the page, which names it in `unread`. It is counted as read, never processed, and put
aside as a dead letter if the skip limit allows it. Where the end is not known either, reading ends by `BrokenInput`.
A reader with a method ``reread(raw, context)`` makes an item of one in a replay, or raises `BrokenInput` once more.

**Not promised.** That what comes into the input behind a partition's position is read: a run reads what is there when
it comes by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from fencepost.core.runtime import Runtime

Position = Any
"""Where a partition is in its input: plain JSON values. None is the beginning of its slice."""

Slice = Mapping[str, Any]
"""What a partition reads: plain JSON values that the reader made. The empty one is the whole input."""

WHOLE: Slice = {}


class Unread(NamedTuple):
    """A record whose end was found, but not its meaning. `place` names it for people, as `Reader.label` does an item.

    `raw` is what stands in the input, `context` what the reader must know besides (JSON) to read that once more.
    """

    raw: str | bytes
    why: str
    place: str
    context: Any = None


@dataclass(frozen=True, slots=True)
class Page:
    """Items that were read. `position_after(index)` is where to go on after that item; `is_last`: nothing follows.

    `size_bytes` is what the items take, if the reader knows it better than by looking at them. `unread` has those of
    the items that are `Unread`, by their index: nearly always none, so that nobody need look at each.
    """

    items: Sequence[Any]
    position_after: Callable[[int], Position]
    is_last: bool
    size_bytes: int | None = None
    unread: Mapping[int, Unread] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a reader works with: the database to read from, if any, and the values that queries may name."""

    runtime: Runtime
    source: Any = None  # as `fencepost.bulk.reading` takes it
    values: Mapping[str, Any] = field(default_factory=dict)  # the run's parameters, window_start and window_end
    warn: Callable[[str], None] = lambda _: None


class Feed(Protocol):
    """A reader at work on one slice. Used by one thread at a time."""

    def read(self, after: Position, limit: int) -> Page:
        """Return up to `limit` items after a position."""
        ...

    def close(self) -> None:
        """Let go of connections and files."""
        ...


class Reader(Protocol):
    """Where the items of a step come from."""

    @property
    def shape(self) -> str:
        """What a position of this reader means. A checkpoint of another shape is refused."""
        ...

    @property
    def needs_source(self) -> bool:
        """Whether it reads from a database."""
        ...

    def open(self, part: Slice, surroundings: Surroundings) -> Feed:
        """Begin to read a slice."""
        ...

    def slices(self, count: int, surroundings: Surroundings) -> list[Slice]:
        """Divide the input into up to `count` slices of about the same size; `InvalidBulk` if it cannot be divided."""
        ...

    def expected(self, part: Slice, surroundings: Surroundings) -> int | None:
        """Estimate how many items a slice has, quickly; None if nobody knows."""
        ...

    def check(self, surroundings: Surroundings) -> None:
        """Look before the first page for what would go wrong or be slow: raise, or warn."""
        ...

    def label(self, item: Any) -> str:
        """Name an item for people: its key, its line."""
        ...
