"""Reads the items of your own generator, which can continue after a cursor: pages of an API, messages, anything.

::

    def orders(after, *, region):
        for page in shop.pages(since=after, region=region):
            for order in page:
                yield order.number, order       # the cursor to continue after, and the item

    read = iterable(orders)

The function is called with the cursor of the last item that has landed, or with None at the beginning. It also gets
those of the run's parameters, `window_start` and `window_end` that it has as parameters. It yields pairs.

**What it must do.** Called again with a cursor, it must yield what comes after it, in the same order. An item that gets
another cursor or another place may be missed or done twice. Cursors are JSON values, dates, decimals and similar
values; tuples come back as lists.

**Promises.** No more items are requested than a page needs. If the function raises, the items before the error are
returned first, so that they land. The function is then called again after them. If it fails before its first item, the
error is raised.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from fencepost.bulk.reader import Page, Position, Slice, Surroundings
from fencepost.core.identity import fingerprint
from fencepost.core.nearest import suggestion
from fencepost.core.positions import packed, unpacked
from fencepost.core.texts import beginning
from fencepost.errors import BrokenInput, InvalidBulk

_ELSEWHERE: Any = object()  # not equal to any position
_PARTS = ("part", "parts")
_SHOWN = 100  # characters of a label


def iterable(function: Callable[..., Any], *, version: int = 1, label: Callable[[Any], Any] | None = None) -> Iterable:
    """Read what `function(after, **values)` yields: pairs of a cursor and an item.

    A function with the parameters `part` and `parts` can be divided into partitions: it yields the items of its part.
    Raise `version` when the meaning of cursors changes: unfinished runs are then refused instead of misread. `label`
    returns a label of an item for people.
    """
    return Iterable(function, version, label)


class Iterable:
    """A function that yields items after a cursor."""

    needs_source = False

    def __init__(self, function: Callable[..., Any], version: int, label: Callable[[Any], Any] | None) -> None:
        self._accepted = _accepted(function)
        self.function = function
        self.version = version
        self._label = label
        self.can_be_divided = set(_PARTS) <= set(self._accepted or ())

    def __repr__(self) -> str:
        return f"iterable({_name(self.function)})"

    @property
    def shape(self) -> str:
        """The name of the function, and the version of its cursors."""
        return fingerprint(["iterable", _name(self.function), self.version])

    def open(self, part: Slice, surroundings: Surroundings) -> IterableFeed:
        """Begin to read a slice."""
        given = {name: unpacked(value) for name, value in part.get("values", {}).items()}
        values = {"part": 0, "parts": 1, **surroundings.values, **given}
        values |= {name: part[name] for name in _PARTS if name in part}
        return IterableFeed(self, self._taken(values))

    def slices(self, count: int, surroundings: Surroundings) -> list[Slice]:
        """Divide by the parameters `part` and `parts`; `InvalidBulk` if the function does not have them."""
        if not self.can_be_divided:
            raise InvalidBulk(
                f"{self!r} cannot be divided into partitions; add the parameters part and parts, and yield only the "
                f"items of its part, as in def {getattr(self.function, '__name__', 'items')}(after, part, parts): "
                "… if number % parts == part"
            )
        return [{"part": number, "parts": count} for number in range(count)]

    def expected(self, part: Slice, surroundings: Surroundings) -> int | None:
        """Return None: the number of items is unknown."""
        return None

    def check(self, surroundings: Surroundings) -> None:
        """Do nothing: parameters are checked when a slice is opened, because listed partitions add values."""

    def label(self, item: Any) -> str:
        """Return the label from the given function, or the beginning of the item's repr."""
        return beginning(repr(item) if self._label is None else str(self._label(item)), _SHOWN)

    def _taken(self, values: Mapping[str, Any]) -> dict[str, Any]:
        if self._accepted is None:
            return {name: value for name, value in values.items() if name not in _PARTS}
        for name, is_needed in self._accepted.items():
            if is_needed and name not in values:
                raise InvalidBulk(
                    f"{self!r} needs {name!r}, which is not a parameter of this run; {suggestion(name, values)}"
                )
        return {name: values[name] for name in self._accepted if name in values}


class IterableFeed:
    """Reads from the generator of one slice."""

    def __init__(self, reader: Iterable, values: Mapping[str, Any]) -> None:
        self._reader = reader
        self._values = values
        self._pairs: Iterator[Any] | None = None
        self._after: Position = _ELSEWHERE

    def read(self, after: Position, limit: int) -> Page:
        """Return the items after a cursor."""
        if self._pairs is None or after != self._after:
            self.close()
            self._pairs = self._begun(after)
        items: list[Any] = []
        cursors: list[Position] = []
        before, is_interrupted = after, False
        try:
            for pair in islice(self._pairs, limit):
                before = self._kept(pair, before)
                cursors.append(before)
                items.append(pair[1])
        except Exception:
            self.close()
            if not items:
                raise
            is_interrupted = True
        self._after = before
        return Page(items, cursors.__getitem__, is_last=len(items) < limit and not is_interrupted)

    def close(self) -> None:
        """End the generator."""
        pairs, self._pairs, self._after = self._pairs, None, _ELSEWHERE
        close = getattr(pairs, "close", None)
        if close is not None:
            close()

    def _begun(self, after: Position) -> Iterator[Any]:
        made = self._reader.function(unpacked(after), **self._values)
        if not hasattr(made, "__iter__"):
            raise InvalidBulk(f"{self._reader!r} returned {made!r:.60}; it must yield pairs of a cursor and an item")
        return iter(made)

    def _kept(self, pair: Any, before: Position) -> Position:
        """Return the cursor of a pair as JSON."""
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidBulk(f"{self._reader!r} yielded {pair!r:.60}; it must yield pairs: yield cursor, item")
        try:
            cursor = packed(pair[0])
        except TypeError as error:
            raise InvalidBulk(f"{self._reader!r} yielded the cursor {pair[0]!r:.60}: {error}") from None
        if cursor is None:
            raise InvalidBulk(f"{self._reader!r} yielded the cursor None, which means the beginning")
        if cursor == before:
            raise BrokenInput(
                f"{self._reader!r} yielded the cursor {pair[0]!r:.60} twice: items would be missed at the end of a "
                "page. Give each item its own cursor, then restart the run"
            )
        return cursor


def _accepted(function: Any) -> dict[str, bool] | None:
    """Return the parameters besides the cursor, and whether each is required; None if the function takes any."""
    if not callable(function):
        raise InvalidBulk(
            f"{function!r} is not a function; iterable() needs one, as in def orders(after): yield cursor, item"
        )
    if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
        raise InvalidBulk(f"{_name(function)} is async; iterable() needs a normal function. process() may be async")
    all_of_them = list(inspect.signature(function).parameters.values())
    first, others = all_of_them[:1], all_of_them[1:]
    if not first or first[0].kind in (first[0].KEYWORD_ONLY, first[0].VAR_KEYWORD):
        raise InvalidBulk(f"{_name(function)} must have a parameter for the cursor, as in def orders(after)")
    if any(each.kind is each.VAR_KEYWORD for each in others):
        return None
    named = [each for each in others if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    return {each.name: each.default is each.empty for each in named}


def _name(function: Any) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
