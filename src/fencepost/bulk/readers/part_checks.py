"""Checks that partitions by ``:part`` and ``:parts`` are complete and disjoint.

``id % :parts = :part`` misses all ids below zero, and half of the rows if a hash may be negative. Parts that are
counted from one miss a part. This would go unnoticed: the rows are in no partition, and each partition is done.

The first rows are read as a whole, as part 0 of 1, and then part by part. **Not promised**: that a later row which
differs from all of these is in a partition.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from fencepost.errors import BrokenInput

if TYPE_CHECKING:
    from fencepost.bulk.readers.page_feed import PageFeed

_ROWS = 64  # finds a condition that leaves out or doubles keys at the very beginning, where most are found
_MOST_PARTS = 64  # with more, the check takes too long: it needs one query for each part


def refuse_parts_that_miss(feed: PageFeed, count: int, names: tuple[str, ...]) -> None:
    """Refuse a query if one of the first rows is in no partition, or in several."""
    if count > _MOST_PARTS:
        return
    suspects = _astray(feed, count)
    # Rows may be added and deleted meanwhile, so a row must fail the check twice.
    if suspects and (suspects := suspects & _astray(feed, count)):
        raise BrokenInput(
            f"the row with {', '.join(names)} {next(iter(suspects))!r} is not in exactly one of the {count} partitions "
            "that the query selects by :part and :parts, so it would be missed or land twice. Parts count from 0 to "
            ":parts - 1, and a remainder may be negative: write abs(id) % :parts = :part, or "
            "(hash % :parts + :parts) % :parts = :part"
        )


def _astray(feed: PageFeed, count: int) -> set[Any]:
    """Return the keys of the first rows that are not in exactly one partition."""
    whole = feed.keys_between(None, None, _ROWS, part=0, parts=1)
    last = whole[-1] if whole else None
    found: Counter[Any] = Counter()
    for part in range(count) if whole else (1,):  # if part 0 of 1 is empty, the parts may be counted from one
        found.update(feed.keys_between(None, last, _ROWS, part=part, parts=count))
    return {key for key in {*whole, *found} if found[key] != 1 or key not in whole}
