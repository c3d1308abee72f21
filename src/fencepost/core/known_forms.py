"""Finds any of very many byte strings in a text, at a cost that hardly depends on how many there are.

Each string has at least four bytes. The first four of all strings, their *words*, are kept in one set. While there are
few words, a text is searched for each. If there are more, it is read as numbers of four bytes, at each of its places,
and compared with the set, without a loop in Python. Only where a word stands, the strings that begin with it are
compared. To add a string takes about as long as to read one line.

Other threads may search, and add, while strings are added: each step is one that the interpreter does at once. A string
is found when the last of them is done, and `has` it.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator

Span = tuple[int, int]
_WORD = 4  # bytes
_FEW = 16  # words, which are found faster one by one


class KnownForms:
    """The byte strings."""

    def __init__(self, forms: Iterable[bytes] = ()) -> None:
        self._forms: set[bytes] = set()
        self._beginning: dict[bytes, list[bytes]] = {}  # those that begin with a word, in order
        self._sizes: dict[bytes, set[int]] = {}  # of these
        self._words: dict[int, bytes] = {}
        self._starts: set[bytes] = set()  # the first one to three bytes of each
        self._longest = 0
        self.add(sorted(forms))

    def add(self, forms: Iterable[bytes]) -> None:
        """Find these, too."""
        for form in forms:
            word = form[:_WORD]
            beginning = self._beginning.setdefault(word, [])
            if form not in self._forms:
                insort(beginning, form)
            self._sizes.setdefault(word, set()).add(len(form))
            self._starts.update((form[:1], form[:2], form[:3]))
            self._longest = max(self._longest, len(form))
            self._words[int.from_bytes(word, sys.byteorder)] = word
            self._forms.add(form)

    def __bool__(self) -> bool:
        return bool(self._forms)

    def has(self, forms: Iterable[bytes]) -> bool:
        """Whether all of these are found."""
        return self._forms.issuperset(forms)

    def places(self, text: bytes) -> list[int]:
        """Return where one of them may begin, in order."""
        if len(self._words) <= _FEW:
            return _places_of([word for word in list(self._words.values()) if word in text], text)
        views = [(first, _as_numbers(text, first)) for first in range(_WORD)]
        found = {number for _, view in views for number in self._words.keys() & view}
        if len(found) <= _FEW:
            return _places_of([self._words[number] for number in found], text)
        return sorted(
            [first + _WORD * at for first, view in views for at, number in enumerate(view) if number in found]
        )

    def spans(self, text: bytes, places: Collection[int]) -> list[Span]:
        """Return the union of all that stand there, also of those that overlap. The longest at a place is enough."""
        spans: list[Span] = []
        for place in places:
            if end := self._ends_at(text, place):
                join(spans, place, end)
        return spans

    def begins_at(self, text: bytes, places: list[int]) -> int:
        """Return where the end of the text may be the beginning of one of them; its length if it is not."""
        size = len(text)
        for place in places[bisect_left(places, size - self._longest + 1) :]:
            if self._goes_on(text, place):
                return place
        short = (each for each in (3, 2, 1) if each <= size and text[size - each :] in self._starts)
        return size - next(short, 0)

    def _ends_at(self, text: bytes, place: int) -> int:
        """Return where the longest that begins at a place ends; 0 if none stands there."""
        for size in sorted(self._sizes[text[place : place + _WORD]], reverse=True):
            if text[place : place + size] in self._forms:
                return min(place + size, len(text))
        return 0

    def _goes_on(self, text: bytes, place: int) -> bool:
        """Whether one of them begins with all that stands from here on, and is longer."""
        word = text[place : place + _WORD]
        if max(self._sizes[word]) <= len(text) - place:
            return False
        rest, beginning = text[place:], self._beginning[word]
        first = bisect_right(beginning, rest)
        return any(form.startswith(rest) for form in beginning[first : first + 1])


def join(spans: list[Span], start: int, end: int) -> None:
    """Add a span that begins after the others begin; it becomes one with the last if they overlap."""
    if spans and start < spans[-1][1]:
        start, end = spans[-1][0], max(spans.pop()[1], end)
    spans.append((start, end))


def _as_numbers(text: bytes, first: int) -> memoryview[int]:
    """Read a text from a place on as numbers of four bytes."""
    return memoryview(text)[first : max(first, len(text) - (len(text) - first) % _WORD)].cast("I")


def _places_of(words: list[bytes], text: bytes) -> list[int]:
    return sorted([place for word in words for place in _all_places(word, text)]) if words else []


def _all_places(word: bytes, text: bytes) -> Iterator[int]:
    """Return where a word stands, also where it overlaps itself."""
    place = text.find(word)
    while place >= 0:
        yield place
        place = text.find(word, place + 1)
