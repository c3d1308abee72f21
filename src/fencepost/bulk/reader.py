"""The contract of readers, which return bulk items page by page from a position that a checkpoint stores.

::

    Reader   what the code declares: a query, a file, a generator. Immutable, shared by all partitions
    Slice    which part of the input a partition reads, as JSON: key bounds, or one number out of several
    Feed     reads one slice of a reader, and has a connection or a file open
    Page     items, and the position after each of them
    Unread   takes the place of an item whose record could not be parsed

**Promises of a feed.** `read(after, limit)` returns the items that follow `after`, in the reader's order, each once.
Called again with the same position, it returns the same items, unless the input has changed in the meantime. Two slices
of one plan have no item in common, and all slices together are the whole input.

**Records that cannot be parsed.** If a reader knows where a bad record ends, the record counts as an item that has
failed: an `Unread` on the page, also listed in `unread`. It is counted as read, never processed, and stored as a dead
letter if the skip limit allows it. If the end is not known either, reading fails with `BrokenInput`. A reader with a
method ``reread(raw, context)`` can parse such a record in a replay, or raise `BrokenInput` again.

**Not promised.** That items which are added to the input before a partition's position are read: a run reads what is
there when it gets there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from fencepost.core.runtime import Runtime

Position = Any
"""How far a partition has read, as plain JSON values. None is the beginning of its slice."""

Slice = Mapping[str, Any]
"""What a partition reads, as plain JSON values that the reader chose. The empty slice is the whole input."""

WHOLE: Slice = {}


class Unread(NamedTuple):
    """A record that could not be parsed, but whose end is known. `place` is its label, like `Reader.label` of an item.

    `raw` is the record as it is in the input. `context` (JSON) is what else the reader needs to parse it again.
    """

    raw: str | bytes
    why: str
    place: str
    context: Any = None


@dataclass(frozen=True, slots=True)
class Page:
    """Items that were read. `position_after(index)` is the position after that item; `is_last`: nothing follows.

    `size_bytes` is the size of the items, if the reader knows it better than an estimate from the items. `unread` has
    the `Unread` items by their index. It is nearly always empty, and saves checking each item.
    """

    items: Sequence[Any]
    position_after: Callable[[int], Position]
    is_last: bool
    size_bytes: int | None = None
    unread: Mapping[int, Unread] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a reader works with: the database to read from, if any, and the values of the query parameters."""

    runtime: Runtime
    source: Any = None  # anything that `fencepost.bulk.reading` accepts
    values: Mapping[str, Any] = field(default_factory=dict)  # the run's parameters, window_start and window_end
    warn: Callable[[str], None] = lambda _: None


class Feed(Protocol):
    """Reads one slice of a reader. Used by one thread at a time."""

    def read(self, after: Position, limit: int) -> Page:
        """Return up to `limit` items after a position."""
        ...

    def close(self) -> None:
        """Release connections and files."""
        ...


class Reader(Protocol):
    """Where the items of a step come from."""

    @property
    def shape(self) -> str:
        """Identifies the meaning of this reader's positions. A checkpoint with another shape is refused."""
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
        """Estimate quickly how many items a slice has; None if that is unknown."""
        ...

    def check(self, surroundings: Surroundings) -> None:
        """Check the input before the first page: raise for errors, warn of slow queries."""
        ...

    def label(self, item: Any) -> str:
        """Return a label of an item for people, such as its key or its line."""
        ...
