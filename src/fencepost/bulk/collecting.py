"""Keeps existing objects out of garbage collections while many items come and go.

There are many items, and they live for a chunk or two, long enough to reach the oldest generation. Each time enough
of them do, Python searches every object of the process for cycles: modules, classes, drivers. That was measured to take
a third of the time of a chunk. So objects that exist when a partition begins are excluded while it works
(`gc.freeze`), and new objects are searched only when there are more of them than a chunk or two usually have.

**Not promised.** That cycles among the excluded objects are found meanwhile. They are found after the partition has
ended.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_MANY = 10_000  # new objects before a collection of the youngest; a chunk or two usually have fewer

_at_work: set[object] = set()
_usual: list[tuple[int, int, int]] = []  # the threshold to restore, while it is changed


@contextmanager
def sparing_what_is_there() -> Iterator[None]:
    """Exclude existing objects from collections. If several partitions work at once, until the last one has ended."""
    mine, before = object(), gc.get_threshold()
    _at_work.add(mine)
    gc.freeze()
    if 0 < before[0] < _MANY:  # zero means that collection is disabled
        gc.set_threshold(_MANY, *before[1:])
        _usual.append(before)
    try:
        yield
    finally:
        _at_work.discard(mine)
        if not _at_work:
            gc.unfreeze()
            while _usual:
                gc.set_threshold(*_usual.pop())
