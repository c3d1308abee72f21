"""Checks that a key is unique, never NULL, and compares equal to itself after it was read.

Otherwise rows would be skipped at the end of a page, or read forever. Each page is checked before any of it is
returned, at about the cost of one pass over its keys.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, islice
from operator import eq
from typing import Any

from fencepost.errors import BrokenInput

_MOST_AGAIN = 16  # keys to compare again: rows that were added meanwhile may come first

Ask = Callable[[Any, Any, int], list[Any]]
"""Returns the keys after one (None: from the beginning) up to another, with a limit."""


class KeyChecks:
    """Checks the pages of one feed, one after the other."""

    def __init__(self, names: tuple[str, ...], ask: Ask) -> None:
        self._names = names
        self._ask = ask
        self._ahead: tuple[Any, Any, Any] | None = None  # a page's last key, the one before it, and the one after it
        self._is_case_sensitive = False  # the database is known to compare case-sensitively

    def page(self, keys: list[Any], after: Any) -> None:
        """Check the keys of a page that was read after a key; None at the beginning."""
        if any(map(eq, keys, islice(keys, 1, None))):
            raise self._not_unique(*_first_pair(keys, eq))
        self._refuse_null(keys)
        if after is not None:
            self._refuse_standstill(keys, after)
            self._refuse_passed_over(keys, after)
        if keys and isinstance(_text_of(keys[0]), str) and not self._is_case_sensitive:
            self._refuse_same_but_for_case(keys)

    def expect(self, keys: list[Any], limit: int, after: Any) -> None:
        """Remember the key that follows a page, which was read as one more than the limit."""
        before = keys[limit - 2] if limit > 1 else after
        self._ahead = (keys[limit - 1], before, keys[limit])

    def _refuse_null(self, keys: list[Any]) -> None:
        if not keys:
            return
        # With one column, NULL sorts first or last. With several columns it may be anywhere.
        looked_at = chain.from_iterable(keys) if isinstance(keys[0], tuple) else (keys[0], keys[-1])
        if any(each is None for each in looked_at):
            raise BrokenInput(null_message(self._names))

    def _refuse_standstill(self, keys: list[Any], after: Any) -> None:
        if keys and type(after) is int and type(keys[0]) is int and keys[0] < after:
            raise BrokenInput(
                f"the query returned {self._names[0]} {keys[0]} for the page after {after}, so its condition does not "
                "depend on the key alone; put parentheses around an OR in its WHERE"
            )
        if keys and keys[0] == after:
            raise BrokenInput(
                f"the key {', '.join(self._names)} changes when it is read: {after!r} comes again after itself, and "
                "would do so forever. Floating-point numbers are rounded when they are read; use another key, or cast "
                "it in the query to a type that compares exactly"
            )

    def _refuse_passed_over(self, keys: list[Any], after: Any) -> None:
        """Refuse a key that followed the last key of a page, still exists, and is not on the next page."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] != after or ahead[2] in keys[:_MOST_AGAIN]:
            return
        last, before, missed = ahead
        if missed in keys or missed not in self._ask(before, missed, _MOST_AGAIN):
            return
        raise self._not_unique(last, missed)

    def _refuse_same_but_for_case(self, keys: list[Any]) -> None:
        folded = list(map(_folded, keys))
        if not any(map(eq, folded, islice(folded, 1, None))):
            return
        one, other = _first_pair(keys, lambda a, b: bool(_folded(a) == _folded(b)))
        if not self._ask(one, other, 1):
            raise self._not_unique(one, other)
        self._is_case_sensitive = True

    def _not_unique(self, one: Any, other: Any) -> BrokenInput:
        what = f"{one!r} occurs twice" if one == other else f"{one!r} and {other!r} are the same to the database"
        return BrokenInput(
            f"the key {', '.join(self._names)} is not unique: {what}. Rows would be missed at the end of a page; add a "
            f"column to the key, both in the query (WHERE, ORDER BY) and in key=, as in key=({self._names[0]!r}, 'id')"
        )


def null_message(names: tuple[str, ...]) -> str:
    """Return the message for a key that is NULL."""
    return (
        f"the key {', '.join(names)} is NULL in some row, and no key compares greater than NULL, so such rows would "
        f"never be read. Exclude them with AND {names[0]} IS NOT NULL, or use another key"
    )


def _first_pair(keys: list[Any], same: Callable[[Any, Any], bool]) -> tuple[Any, Any]:
    return next(pair for pair in zip(keys, islice(keys, 1, None), strict=False) if same(*pair))


def _text_of(key: Any) -> Any:
    return key[-1] if isinstance(key, tuple) else key


def _folded(key: Any) -> Any:
    if isinstance(key, tuple):
        return (*key[:-1], _folded(key[-1]))
    return key.casefold() if isinstance(key, str) else key
