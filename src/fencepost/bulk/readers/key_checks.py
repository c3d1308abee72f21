"""Whether a key is what a reader takes it for: unique, never NULL, and compared as it is read back.

Where it is not, rows would be passed over at the end of a page, or read for ever. Each page is looked at before any of
it is handed out, for about as much as it takes to go once through its keys.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, islice
from operator import eq
from typing import Any

from fencepost.errors import BrokenInput

_MOST_AGAIN = 16

Ask = Callable[[Any, Any, int], list[Any]]
"""The keys behind one (None: from the beginning) up to another, so many at most."""


class KeyChecks:
    """Looks at the pages of one feed, one after the other."""

    def __init__(self, names: tuple[str, ...], ask: Ask) -> None:
        self._names = names
        self._ask = ask
        self._ahead: tuple[Any, Any, Any] | None = None  # a page's last key, the one before it, and the one behind it
        self._is_case_told = False  # the database was seen to tell letters by their case

    def page(self, keys: list[Any], after: Any) -> None:
        """Look at the keys of a page that was read behind a key, None at the beginning."""
        if any(map(eq, keys, islice(keys, 1, None))):
            raise self._not_unique(*_first_pair(keys, eq))
        self._refuse_null(keys)
        if after is not None:
            self._refuse_standstill(keys, after)
            self._refuse_passed_over(keys, after)
        if keys and isinstance(_text_of(keys[0]), str) and not self._is_case_told:
            self._refuse_same_but_for_case(keys)

    def expect(self, keys: list[Any], limit: int, after: Any) -> None:
        """Remember what follows a page that has one key too many."""
        before = keys[limit - 2] if limit > 1 else after
        self._ahead = (keys[limit - 1], before, keys[limit])

    def _refuse_null(self, keys: list[Any]) -> None:
        if not keys:
            return
        # NULL is first or last in the order of one column; in that of several it may be anywhere.
        looked_at = chain.from_iterable(keys) if isinstance(keys[0], tuple) else (keys[0], keys[-1])
        if any(each is None for each in looked_at):
            raise BrokenInput(null_message(self._names))

    def _refuse_standstill(self, keys: list[Any], after: Any) -> None:
        if keys and type(after) is int and type(keys[0]) is int and keys[0] < after:
            raise BrokenInput(
                f"the query returned {self._names[0]} {keys[0]} for the page behind {after}: what is behind a key does "
                "not depend on the key alone; put parentheses around an OR of its WHERE"
            )
        if keys and keys[0] == after:
            raise BrokenInput(
                f"the key {', '.join(self._names)} does not compare as it is read: {after!r} comes again behind itself"
                ", and so it would for ever. Numbers with a floating point are rounded when they are read; take "
                "another key, or cast it in the query to what compares exactly"
            )

    def _refuse_passed_over(self, keys: list[Any], after: Any) -> None:
        """Refuse a key that was seen behind the last one of a page, is still there, and yet is not behind it."""
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
        self._is_case_told = True

    def _not_unique(self, one: Any, other: Any) -> BrokenInput:
        what = f"{one!r} occurs twice" if one == other else f"{one!r} and {other!r} are the same to the database"
        return BrokenInput(
            f"the key {', '.join(self._names)} is not unique: {what}. Rows would be missed at the end of a page; add a "
            f"column to the key, in the query (WHERE, ORDER BY) and in key=: as in key=({self._names[0]!r}, 'id')"
        )


def null_message(names: tuple[str, ...]) -> str:
    """Say that a key is NULL."""
    return (
        f"the key {', '.join(names)} is NULL in some row, and nothing comes after NULL: such rows would never be read. "
        f"Leave them out by AND {names[0]} IS NOT NULL, or take another key"
    )


def _first_pair(keys: list[Any], same: Callable[[Any, Any], bool]) -> tuple[Any, Any]:
    return next(pair for pair in zip(keys, islice(keys, 1, None), strict=False) if same(*pair))


def _text_of(key: Any) -> Any:
    return key[-1] if isinstance(key, tuple) else key


def _folded(key: Any) -> Any:
    if isinstance(key, tuple):
        return (*key[:-1], _folded(key[-1]))
    return key.casefold() if isinstance(key, str) else key
