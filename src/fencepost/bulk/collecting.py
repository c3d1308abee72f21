"""Sparing the garbage collector what is there already while many items come and go.

Items are many and live for a chunk or two, which is long enough to be counted as long-lived; and each time enough of
them were, Python goes through every object of the process in search of cycles: modules, classes, drivers. That was
measured to be a third of the time of a chunk. So what is there when a partition begins is left out while it works
(`gc.freeze`).

**Not promised.** That cycles among objects from before are found meanwhile; they are when it has ended.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_at_work: set[object] = set()


@contextmanager
def sparing_what_is_there() -> Iterator[None]:
    """Leave what is there out of collections; of several at once, until the last has ended."""
    mine = object()
    _at_work.add(mine)
    gc.freeze()
    try:
        yield
    finally:
        _at_work.discard(mine)
        if not _at_work:
            gc.unfreeze()
