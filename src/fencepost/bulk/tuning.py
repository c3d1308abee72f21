"""Suggests a chunk size from a sample of the job's own input. Nothing is written.

**Not promised.** That writing keeps up with reading. Only a run measures that, and adapts if it has limits of bytes,
time or memory.
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
DEFAULT_BUDGET = 256 * _MB  # for all workers together, unless the job has memory=
_PAGE = 1000  # enough rows for the size of an item
_CHUNK_S = 0.1  # of reading: the fixed cost of a transaction, a few milliseconds, is small beside it
_CHUNK_BYTES = 8 * _MB  # keeps each transaction small, whatever the size of an item
_LEAST, _MOST = 100, 10_000  # below, transactions cost too much; above, a crash repeats too much


class InputSample(NamedTuple):
    """What a sample of the input was like. `is_all`: it was the whole input."""

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
    """A limit on the items of a chunk, and the reason."""

    items: int
    why: str


@dataclass(frozen=True, slots=True)
class Tuning:
    """The calculation for one step: the chunk size from its options, and a suggested one."""

    sample: InputSample
    sizing: Sizing
    copies: int
    workers: int

    @property
    def limits(self) -> list[Limit]:
        """The limits from the step's own options."""
        size = max(self.sample.bytes_per_item, 1.0)
        found = [Limit(self.sizing.chunk, f"chunk={self.sizing.chunk}")]
        if self.sizing.chunk_bytes is not None:
            found.append(Limit(int(self.sizing.chunk_bytes / size), f"chunk_bytes={mb(self.sizing.chunk_bytes)}"))
        if self.sizing.memory_bytes is not None:
            found.append(self._by_memory(self.sizing.memory_bytes, f"memory={mb(self.sizing.memory_bytes)}"))
        return found

    @property
    def chunk(self) -> int:
        """How many items a chunk has with the step's options, as far as reading shows."""
        sizing = Sizing(self.sizing.chunk, self.sizing.chunk_bytes, None, self.sizing.memory_bytes)
        measured = MeasuredChunk(self.sample.items, self.sample.bytes_per_item, 0.0)
        return sizing.items(measured, copies=self.copies, workers=self.workers)

    @property
    def is_beyond_budget(self) -> bool:
        """Whether the workers alone use all of `memory`, before their first item."""
        budget = self.sizing.memory_bytes
        return budget is not None and budget <= self.workers * OVERHEAD_BYTES

    def peak_bytes(self, chunk: int) -> int:
        """Return the job's peak memory with this chunk size."""
        return memory_bytes(chunk, self.sample.bytes_per_item, copies=self.copies, workers=self.workers)

    @property
    def suggested(self) -> Limit:
        """The suggested chunk size, and the reason for it."""
        size = max(self.sample.bytes_per_item, 1.0)
        budget = self.sizing.memory_bytes or max(DEFAULT_BUDGET, 2 * self.workers * OVERHEAD_BYTES)
        enough = max(int(self.sample.rate * _CHUNK_S), _LEAST)
        wishes = [
            Limit(enough, f"{_CHUNK_S:g} s of reading: the cost of a transaction is then small beside it"),
            Limit(int(_CHUNK_BYTES / size), f"at most {mb(_CHUNK_BYTES)} in one transaction"),
            self._by_memory(budget, f"{mb(budget)} of memory for all workers"),
            Limit(
                _MOST,
                f"at most {_MOST:,}: larger chunks repeat more work after a crash, and hold locks longer",
            ),
        ]
        least = min(wishes)
        return Limit(rounded(max(least.items, 1)), least.why)

    def _by_memory(self, budget: int, why: str) -> Limit:
        size = max(self.sample.bytes_per_item, 1.0)
        room = max(budget / self.workers - OVERHEAD_BYTES, 0)
        return Limit(max(int(room / (size * self.copies)), 1), why)


def tune(step: Step, surroundings: Surroundings, *, pages: int) -> Tuning:
    """Read some pages of a step's input, and calculate its chunk size."""
    options = step.options
    return Tuning(
        sample=measure(step, surroundings, pages=pages),
        sizing=options.sizing,
        copies=options.read_ahead + COPIES_BESIDE_READ_AHEAD,
        workers=options.partitions,
    )


def measure(step: Step, surroundings: Surroundings, *, pages: int) -> InputSample:
    """Read up to `pages` pages, as a run would."""
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
    """Return what to read: the whole input, or the first of the listed partitions."""
    given = step.options.given
    return {"values": packed_values(given[0])} if given else WHOLE


def rounded(items: int) -> int:
    """Round down to a round number.

    >>> [rounded(each) for each in (7, 160, 2700, 9999)]
    [5, 100, 2000, 5000]
    """
    power: int = 10 ** (len(str(items)) - 1)
    return next(each * power for each in (5, 2, 1) if each * power <= items)


def mb(size: float) -> str:
    """Format a size in bytes.

    >>> [mb(300), mb(48 * 1024**2), mb(1.5 * 1024**2)]
    ['300 B', '48 MB', '1.5 MB']
    """
    if size < 1024:
        return f"{size:.0f} B"
    unit, name = (1024**3, "GB") if size >= 1024**3 else (_MB, "MB") if size >= _MB else (1024, "KB")
    return f"{size / unit:.4g} {name}" if size / unit < 100 else f"{size / unit:.0f} {name}"
