"""The rows, and what is to become of each. Keys have gaps, as those of real tables do."""

from __future__ import annotations

from collections.abc import Iterator

TABLE, EFFECTS = "bulk_material", "bulk_effect"
GAP = 3
_EVERY_FILTERED, _EVERY_POISON, _EVERY_REFUSED = 997, 99_991, 149_993


def keys(rows: int) -> range:
    """All keys, in their order."""
    return range(GAP, GAP * rows + 1, GAP)


def amount(key: int) -> int:
    """What a row is to amount to; below nought for those that the database refuses."""
    made = key * 7919 % 100_003
    return -1 - made if is_refused(key) else made


def is_filtered(key: int) -> bool:
    """Whether process() leaves it out."""
    return _number(key) % _EVERY_FILTERED == 5


def is_poison(key: int) -> bool:
    """Whether process() cannot cope with it."""
    return _number(key) % _EVERY_POISON == 101


def is_refused(key: int) -> bool:
    """Whether the database does not take its effect, so that its chunk is divided until it is found."""
    return _number(key) % _EVERY_REFUSED == 203


def is_put_aside(key: int) -> bool:
    """Whether it is to end as a dead letter."""
    return not is_filtered(key) and (is_poison(key) or is_refused(key))


def landing(rows: int) -> Iterator[int]:
    """Return the keys that are to have an effect."""
    return (key for key in keys(rows) if not is_filtered(key) and not is_put_aside(key))


def _number(key: int) -> int:
    return key // GAP
