"""How large a chunk should be: worked out from what some pages of the job's own input are like. Nothing is written.

**Not promised.** That writing keeps up with reading: only a run measures that, and adapts to it where it was given
limits of bytes, time or memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fencepost.bulk.partition import COPIES_BESIDE_READ_AHEAD
from fencepost.bulk.plan import packed_values
from fencepost.bulk.reader import WHOLE, Slice
from fencepost.core.sizing import OVERHEAD_BYTES, MeasuredChunk, Sizing, bytes_of, memory_bytes
from fencepost.errors import InvalidBulk

if TYPE_CHECKING:
    from fencepost.bulk.definition import Step
    from fencepost.bulk.reader import Surroundings

_MB = 1024**2
DEFAULT_BUDGET = 256 * _MB
_PAGE = 1000
_CHUNK_S = 0.1  # of reading: then what a transaction costs by itself, a few milliseconds, does not count
_CHUNK_BYTES = 8 * _MB
_LEAST, _MOST = 100, 10_000


class InputSample(NamedTuple):
    """What some of the input was like. `is_all`: there was no more."""

    items: int
    pages: int
    bytes_per_item: float
    took_s: float
    is_all: bool

    @property
    def rate(self) -> float:
        """Items read per second."""
        return self.items / self.took_s if self.took_s > 0 else 0.0


class Limit(NamedTuple):
    """How many items something allows a chunk to have."""

    items: int
    why: str


@dataclass(frozen=True, slots=True)
class Tuning:
    """The arithmetic of one step: what its options give, and what would be better."""

    sample: InputSample
    sizing: Sizing
    copies: int
    workers: int

    @property
    def limits(self) -> list[Limit]:
        """What the step's own options allow."""
        size = max(self.sample.bytes_per_item, 1.0)
        found = [Limit(self.sizing.chunk, f"chunk={self.sizing.chunk}")]
        if self.sizing.chunk_bytes is not None:
            found.append(Limit(int(self.sizing.chunk_bytes / size), f"chunk_bytes={mb(self.sizing.chunk_bytes)}"))
        if self.sizing.memory_bytes is not None:
            found.append(self._by_memory(self.sizing.memory_bytes, f"memory={mb(self.sizing.memory_bytes)}"))
        return found

    @property
    def chunk(self) -> int:
        """How many items a chunk has by the step's options, as far as reading tells."""
        sizing = Sizing(self.sizing.chunk, self.sizing.chunk_bytes, None, self.sizing.memory_bytes)
        measured = MeasuredChunk(self.sample.items, self.sample.bytes_per_item, 0.0)
        return sizing.items(measured, copies=self.copies, workers=self.workers)

    @property
    def is_beyond_budget(self) -> bool:
        """Whether the workers alone take what `memory` allows, before their first item."""
        budget = self.sizing.memory_bytes
        return budget is not None and budget <= self.workers * OVERHEAD_BYTES

    def peak_bytes(self, chunk: int) -> int:
        """Return what the job takes at its peak with chunks of so many items."""
        return memory_bytes(chunk, self.sample.bytes_per_item, copies=self.copies, workers=self.workers)

    @property
    def suggested(self) -> Limit:
        """Return how many items a chunk should have, and what decides it."""
        size = max(self.sample.bytes_per_item, 1.0)
        budget = self.sizing.memory_bytes or max(DEFAULT_BUDGET, 2 * self.workers * OVERHEAD_BYTES)
        enough = max(int(self.sample.rate * _CHUNK_S), _LEAST)
        wishes = [
            Limit(enough, f"{_CHUNK_S:g} s of reading: the cost of a transaction is then small beside it"),
            Limit(int(_CHUNK_BYTES / size), f"no more than {mb(_CHUNK_BYTES)} in one transaction"),
            self._by_memory(budget, f"{mb(budget)} of memory for all workers"),
            Limit(
                _MOST,
                f"no more than {_MOST:,}: what is done again after a crash, and how long locks are held, grow with it",
            ),
        ]
        least = min(wishes)
        return Limit(rounded(max(least.items, 1)), least.why)

    def _by_memory(self, budget: int, why: str) -> Limit:
        size = max(self.sample.bytes_per_item, 1.0)
        room = max(budget / self.workers - OVERHEAD_BYTES, 0)
        return Limit(max(int(room / (size * self.copies)), 1), why)


def tune(step: Step, surroundings: Surroundings, *, pages: int) -> Tuning:
    """Read some pages of a step's input, and work it out."""
    options = step.options
    return Tuning(
        sample=measure(step, surroundings, pages=pages),
        sizing=options.sizing,
        copies=options.read_ahead + COPIES_BESIDE_READ_AHEAD,
        workers=options.partitions,
    )


def measure(step: Step, surroundings: Surroundings, *, pages: int) -> InputSample:
    """Read up to so many pages, as a run would."""
    if step.read is None:
        raise InvalidBulk(f"step {step.name!r} reads nothing, so there is nothing to measure")
    runtime, after = surroundings.runtime, None
    items, took_s, size, done, is_all = 0, 0.0, 0.0, 0, False
    feed = step.read.open(_slice(step), surroundings)
    try:
        while done < pages and not is_all:
            begun_at = runtime.monotonic()
            page = feed.read(after, min(_PAGE, step.options.sizing.chunk))
            took_s += runtime.monotonic() - begun_at
            done, is_all = done + 1, page.is_last or not page.items
            if page.items:
                items += len(page.items)
                size += page.size_bytes or bytes_of(page.items) * len(page.items)
                after = page.position_after(len(page.items) - 1)
    finally:
        feed.close()
    return InputSample(items, done, size / items if items else 0.0, took_s, is_all)


def _slice(step: Step) -> Slice:
    """Return what to read: all of it, or the first of partitions that were given."""
    given = step.options.given
    return {"values": packed_values(given[0])} if given else WHOLE


def rounded(items: int) -> int:
    """Round down to a number that people would write.

    >>> [rounded(each) for each in (7, 160, 2700, 9999)]
    [5, 100, 2000, 5000]
    """
    power: int = 10 ** (len(str(items)) - 1)
    return next(each * power for each in (5, 2, 1) if each * power <= items)


def mb(size: float) -> str:
    """Spell a size.

    >>> [mb(300), mb(48 * 1024**2), mb(1.5 * 1024**2)]
    ['300 B', '48 MB', '1.5 MB']
    """
    if size < 1024:
        return f"{size:.0f} B"
    unit, name = (1024**3, "GB") if size >= 1024**3 else (_MB, "MB") if size >= _MB else (1024, "KB")
    return f"{size / unit:.4g} {name}" if size / unit < 100 else f"{size / unit:.0f} {name}"
