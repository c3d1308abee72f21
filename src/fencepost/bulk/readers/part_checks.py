"""Whether partitions that a query tells by ``:part`` and ``:parts`` are the whole, and have nothing in common.

``id % :parts = :part`` misses all ids below zero, and a hash that may be negative half of the rows; parts that are
counted from one miss a part. Nobody would notice: those rows are in no partition, and each partition is done.

The first rows are asked for as a whole, part 0 of 1, and then part by part. **Not promised**: that a row further on,
which is unlike all of them, is in a partition.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from fencepost.errors import BrokenInput

if TYPE_CHECKING:
    from fencepost.bulk.readers.page_feed import PageFeed

_ROWS = 64
_MOST_PARTS = 64  # beyond which it would take longer than it is worth


def refuse_parts_that_miss(feed: PageFeed, count: int, names: tuple[str, ...]) -> None:
    """Refuse a query that leaves some of the first rows out of every partition, or has them in several."""
    if count > _MOST_PARTS:
        return
    suspects = _astray(feed, count)
    # Rows come and go meanwhile: who was astray twice is.
    if suspects and (suspects := suspects & _astray(feed, count)):
        raise BrokenInput(
            f"the row with {', '.join(names)} {next(iter(suspects))!r} is not in exactly one of the {count} partitions "
            "that the query tells by :part and :parts, so it would be missed, or land twice. Parts count from 0 to "
            ":parts - 1, and a remainder may be negative: write abs(id) % :parts = :part, or "
            "(hash % :parts + :parts) % :parts = :part"
        )


def _astray(feed: PageFeed, count: int) -> set[Any]:
    """Return the keys of the first rows that are not in one partition each."""
    whole = feed.keys_between(None, None, _ROWS, part=0, parts=1)
    last = whole[-1] if whole else None
    found: Counter[Any] = Counter()
    for part in range(count) if whole else (1,):  # of nothing, one is asked for: it may be that they count from one
        found.update(feed.keys_between(None, last, _ROWS, part=part, parts=count))
    return {key for key in {*whole, *found} if found[key] != 1 or key not in whole}
