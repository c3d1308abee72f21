"""Computes how many items a chunk has: as many as its limits allow, from measurements. Pure.

::

    memory = workers × (items × bytes per item × copies + overhead)

`copies` counts what one worker has in memory at once: the chunk that is being written, its results, and the pages that
were read ahead. The equation is solved for items. Together with the limits on the bytes and the time of one chunk, the
smallest number applies.

**Promises.** A chunk has at least one item and at most `chunk`. Its size shrinks at once when a measurement demands it,
and at most doubles from one chunk to the next, so that a single unusual page has little effect.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from fencepost.core.duration import Duration, seconds
from fencepost.errors import InvalidBulk

OVERHEAD_BYTES = 48 * 1024 * 1024  # a worker process with its drivers, before the first item
_SAMPLE = 16  # items per measurement: enough for an average, and cheap for every chunk
_DEPTH = 6  # levels of nesting that are measured: deeper ones are rare, and cycles must end
_UNITS = {"": 1, "b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


class MeasuredChunk(NamedTuple):
    """Measurements of one chunk. `took_s` is the time from the first item to the commit."""

    items: int
    bytes_per_item: float
    took_s: float


@dataclass(frozen=True, slots=True)
class Sizing:
    """The limits of a chunk. `chunk` is the largest number of items; the other limits are None if not set."""

    chunk: int
    chunk_bytes: int | None = None
    chunk_time_s: float | None = None
    memory_bytes: int | None = None

    @staticmethod
    def of(
        *, chunk: Any, chunk_bytes: int | str | None, chunk_time: Duration | None, memory: int | str | None
    ) -> Sizing:
        """Parse the limits as users write them: ``chunk=2000, chunk_bytes="8MB", chunk_time="5s", memory="256MB"``."""
        if isinstance(chunk, bool) or not isinstance(chunk, int) or not 1 <= chunk <= 1_000_000:
            raise InvalidBulk(f"chunk {chunk!r} must be a whole number from 1 to 1,000,000")
        time_s = None if chunk_time is None else seconds(chunk_time, what="chunk_time")
        if time_s is not None and time_s <= 0:
            raise InvalidBulk(f"chunk_time {chunk_time!r} must be more than zero")
        return Sizing(
            chunk,
            None if chunk_bytes is None else size_bytes(chunk_bytes, "chunk_bytes"),
            time_s,
            None if memory is None else _budget(memory),
        )

    def items(self, measured: MeasuredChunk, *, copies: int, workers: int) -> int:
        """Return how many items a chunk may have, according to the measurements."""
        size = max(measured.bytes_per_item, 1.0)
        limits = [float(self.chunk)]
        if self.chunk_bytes is not None:
            limits.append(self.chunk_bytes / size)
        if self.chunk_time_s is not None and measured.items and measured.took_s > 0:
            limits.append(self.chunk_time_s * measured.items / measured.took_s)
        if self.memory_bytes is not None:
            per_worker = self.memory_bytes / max(workers, 1) - OVERHEAD_BYTES
            limits.append(max(per_worker, 0.0) / (size * copies))
        return max(int(min(limits)), 1)

    def following(self, size: int, measured: MeasuredChunk, *, copies: int, workers: int) -> int:
        """Return how many items the next chunk has, after a chunk of `size` items."""
        return min(self.items(measured, copies=copies, workers=workers), size * 2)

    @property
    def is_fixed(self) -> bool:
        """Whether no measurements are needed."""
        return self.chunk_bytes is None and self.chunk_time_s is None and self.memory_bytes is None

    def first(self) -> int:
        """Return how many items the first chunk has, before there are measurements."""
        return self.chunk if self.is_fixed else min(self.chunk, 100)


def memory_bytes(items: int, bytes_per_item: float, *, copies: int, workers: int) -> int:
    """Return the peak memory of a job."""
    return int(workers * (items * bytes_per_item * copies + OVERHEAD_BYTES))


def size_bytes(value: Any, what: str) -> int:
    """Parse a size such as ``"256MB"``.

    >>> size_bytes("8MB", "memory")
    8388608
    """
    found = _SIZE.fullmatch(str(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None
    unit = found.group(2).lower() if found else None
    if found is None or unit not in _UNITS:
        raise InvalidBulk(f'{what} {value!r} is not a valid size; write it as "256MB"')
    size = int(float(found.group(1)) * _UNITS[unit])
    if size < 1:
        raise InvalidBulk(f"{what} {value!r} must be more than zero")
    return size


def _budget(value: Any) -> int:
    size = size_bytes(value, "memory")
    if size <= OVERHEAD_BYTES:
        raise InvalidBulk(
            f"memory {value!r} is less than a worker needs before its first item ({OVERHEAD_BYTES // 1024**2} MB)"
        )
    return size


def bytes_of(items: Sequence[Any]) -> float:
    """Estimate the size of an item in memory, from a sample spread over `items`."""
    if not items:
        return 0.0
    step = max(len(items) // _SAMPLE, 1)
    sample = list(islice(items, 0, None, step))
    return sum(_deep_size(each, _DEPTH) for each in sample) / len(sample)


def _deep_size(value: Any, depth: int) -> int:
    size = sys.getsizeof(value)
    if depth == 0 or isinstance(value, str | bytes | int | float):
        return size
    inner: Iterable[Any] = ()
    if isinstance(value, Mapping):
        inner = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        inner = value
    elif hasattr(value, "__dict__"):
        inner = vars(value).values()
    return size + sum(_deep_size(each, depth - 1) for each in inner)
