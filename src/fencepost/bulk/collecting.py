"""Sparing the garbage collector what is there already while many items come and go.

Items are many and live for a chunk or two, which is long enough to be counted as long-lived; and each time enough of
them were, Python goes through every object of the process in search of cycles: modules, classes, drivers. That was
measured to be a third of the time of a chunk. So what is there when a partition begins is left out while it works
(`gc.freeze`), and new objects are looked at when there are more of them than a chunk or two usually have.

**Not promised.** That cycles among objects from before are found meanwhile; they are when it has ended.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_MANY = 10_000  # objects that came and did not go, before the youngest are looked at

_at_work: set[object] = set()
_usual: list[tuple[int, int, int]] = []  # what it was set to before, while it is not


@contextmanager
def sparing_what_is_there() -> Iterator[None]:
    """Leave what is there out of collections; of several at once, until the last has ended."""
    mine, before = object(), gc.get_threshold()
    _at_work.add(mine)
    gc.freeze()
    if 0 < before[0] < _MANY:  # zero is never
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
