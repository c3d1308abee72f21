"""Ranges of a key for partitions, about even: from samples of the key, not from a count of all rows."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fencepost.bulk.reader import WHOLE, Slice, Surroundings
from fencepost.bulk.reading import Reading
from fencepost.bulk.sql import changed
from fencepost.core.positions import packed

if TYPE_CHECKING:
    from fencepost.bulk.readers.keyset import Keyset


def hashed_slices(count: int) -> list[Slice]:
    """Return slices that are told by a number out of several, which the query names."""
    return [{"part": number, "parts": count} for number in range(count)]


def sampled_slices(reader: Keyset, count: int, surroundings: Surroundings) -> list[Slice]:
    """Return slices by ranges of the key."""
    reading = Reading(surroundings.source)
    try:
        keys = _boundaries(reader, count, reading, dict(surroundings.values))
    finally:
        reading.close()
    bounds: list[Any] = [None, *keys, None]
    slices: list[Slice] = []
    for after, upto in pairwise(bounds):
        each = {"after": after, "upto": upto}
        slices.append({name: value for name, value in each.items() if value is not None})
    return slices or [WHOLE]


def _boundaries(reader: Keyset, count: int, reading: Reading, values: dict[str, Any]) -> list[Any]:
    """Return the last key of each slice but the last."""
    columns = ", ".join(f"q.{key}" for key in reader.keys)
    inner = changed(
        reader.statement(has_after=False, has_upto=False),
        lambda text: text.replace("LIMIT :limit", "").replace("limit :limit", ""),
    )
    ranked = (
        f"SELECT {columns}, row_number() OVER (ORDER BY {columns}) AS n, count(*) OVER () AS total FROM ({inner}) q"  # noqa: S608 - the user's own query
    )
    names = ", ".join(f"r.{key}" for key in reader.keys)
    query = f"SELECT {names}, r.n FROM ({ranked}) r WHERE r.n % (1 + (r.total - 1) / {count}) = 0 ORDER BY r.n"  # noqa: S608 - as above
    rows = reading.fetch(query, {**values, "part": 0, "parts": 1}).rows
    return [packed(row[:-1]) for row in rows][: count - 1]
