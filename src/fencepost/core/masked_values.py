"""The values of secrets that this process knows, and where they stand in texts.

A value joins them before the job gets it, and stays until the process ends: what a run leaves behind may still be
written. They are all masked in every text that `fencepost.core.secrets` masks, whichever run wrote it.

**Promises.** A value is masked as it is, in JSON, as Python's ``repr`` writes it, percent-encoded, HTML-escaped, and in
Base64. Of a value of several lines, each line is masked by itself, too. Values that overlap, or begin alike, are masked
as far as one of them reaches, with one mask. In a stream of bytes all this holds wherever the pieces begin and end.

**Not promised.** A value in any other form: reversed, in parts, hashed, encrypted, encoded together with other text. A
line of a longer value with fewer than eight characters. Values of fewer than `SHORTEST` characters are refused: they
stand in too many other words.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, AnyStr, NamedTuple
from urllib.parse import quote, quote_plus

SHORTEST = 4
LONGEST = 8_000
_SHORTEST_LINE = 8
_MOST = 2_000  # values: more than a process ever has, unless they are made anew for each run
MASK = "***"


class MaskedValues:
    """Values that are masked. `told` is called with each that is new, before it is used."""

    def __init__(self) -> None:
        self._forms: dict[str, tuple[str, ...]] = {}  # by value
        self._known: _Known | None = None
        self.told: Callable[[str], None] | None = None

    def add(self, value: str) -> None:
        """Mask a value from now on."""
        if value in self._forms or len(value) < SHORTEST:
            return
        if self.told is not None:
            self.told(value)
        while len(self._forms) >= _MOST:
            self._forms.pop(next(iter(self._forms)), None)
        self._forms[value] = _forms_of(value)
        values: list[str] = []
        while value not in values or values != list(self._forms):  # another thread has added one meanwhile
            values = list(self._forms)
            self._known = _Known.of({form for each in values for form in self._forms.get(each, ())})

    def __bool__(self) -> bool:
        return self._known is not None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return where values stand in a text, in order. Spans do not overlap."""
        return [] if self._known is None else _spans(self._known.in_text, text)

    def spans_of_bytes(self, text: bytes) -> list[tuple[int, int]]:
        """Return where values stand in bytes, as `spans` does."""
        return [] if self._known is None else _spans(self._known.in_bytes, text)

    def masked(self, text: str) -> str:
        """Return a text without them."""
        return text if self._known is None else _without(text, self.spans(text), MASK)

    def masked_bytes(self, text: bytes) -> bytes:
        """Return bytes without them."""
        return text if self._known is None else _without(text, self.spans_of_bytes(text), MASK.encode())

    def masked_json(self, text: str) -> str:
        """Return JSON without them, in texts and numbers alike; it stays JSON."""
        if self._known is None:
            return text
        value = json.loads(text)
        clean = self._masked_value(value)
        return text if clean == value else json.dumps(clean, separators=(",", ":"))

    def begins_at(self, text: bytes) -> int:
        """Return where the end of the bytes may be the beginning of a value; their length if it is not."""
        forms = () if self._known is None else self._known.forms
        return min((_begins_at(text, form) for form in forms), default=len(text))

    def _masked_value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.masked(name): self._masked_value(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._masked_value(each) for each in value]
        if isinstance(value, str):
            return self.masked(value)
        spelled = json.dumps(value)
        return MASK if isinstance(value, int | float) and self.masked(spelled) != spelled else value


class _Known(NamedTuple):
    """All forms of all values; replaced as a whole, because other threads are reading."""

    forms: tuple[bytes, ...]
    in_text: re.Pattern[str]
    in_bytes: re.Pattern[bytes]

    @staticmethod
    def of(forms: Collection[str]) -> _Known:
        longest_first = sorted(forms, key=len, reverse=True)
        as_bytes = tuple(form.encode("utf-8", "surrogatepass") for form in longest_first)
        in_text, in_bytes = "|".join(map(re.escape, longest_first)), b"|".join(map(re.escape, as_bytes))
        return _Known(as_bytes, re.compile(in_text), re.compile(in_bytes))


def _spans(pattern: re.Pattern[AnyStr], text: AnyStr) -> list[tuple[int, int]]:
    """Return the union of all matches, also of those that overlap. The longest match at each place is enough for it."""
    found: list[tuple[int, int]] = []
    match = pattern.search(text)
    while match is not None:
        _join(found, *match.span())
        match = pattern.search(text, match.start() + 1)
    return found


def _join(spans: list[tuple[int, int]], start: int, end: int) -> None:
    """Add a span that begins after the others begin; it becomes one with the last if they overlap."""
    if spans and start < spans[-1][1]:
        start, end = spans[-1][0], max(spans.pop()[1], end)
    spans.append((start, end))


def _without(text: AnyStr, spans: Sequence[tuple[int, int]], mask: AnyStr) -> AnyStr:
    kept: list[AnyStr] = []
    place = 0
    for start, end in spans:
        kept += (text[place:start], mask)
        place = end
    kept.append(text[place:])
    return text[:0].join(kept)


def _begins_at(text: bytes, form: bytes) -> int:
    """Return where the longest beginning of `form` stands that the text ends with."""
    first, few = max(0, len(text) - len(form) + 1), max(0, len(text) - len(form[:SHORTEST]) + 1)
    place = text.find(form[:SHORTEST], first)
    while place >= 0:
        if form.startswith(text[place:]):
            return place
        place = text.find(form[:SHORTEST], place + 1)
    return next((each for each in range(few, len(text)) if form.startswith(text[each:])), len(text))


class StreamMask:
    """Masks one stream of bytes, piece by piece. What may be the beginning of a value waits for the next piece.

    It waits as it was written: a value that has ended may be the beginning of a longer one, or overlap the next. No
    more waits than the longest value has, because a mask is passed on while the end of what it covers waits.
    """

    __slots__ = ("_covered", "_held", "_values")

    def __init__(self, values: MaskedValues) -> None:
        self._values = values
        self._held = b""
        self._covered = 0  # so many bytes of what waits are under a mask that was passed on

    def masked(self, piece: bytes) -> bytes:
        """Return what can be passed on."""
        if not self._values and not self._held:
            return piece
        text = self._held + piece
        return self._passed(text, self._values.begins_at(text))

    def rest(self) -> bytes:
        """Return what waits: nothing will follow."""
        return self._passed(self._held, len(self._held))

    def _passed(self, text: bytes, place: int) -> bytes:
        """Return the text before `place`, masked, and keep the rest. No value that begins before it is incomplete."""
        was_covered = self._covered > 0
        spans = [(0, self._covered)] if was_covered else []
        for span in self._values.spans_of_bytes(text):
            _join(spans, *span)
        begun = [span for span in spans if span[0] < place or (span[0] == 0 and was_covered)]
        end = max(begun[-1][1], place) if begun else place
        passed = _without(text[:end], begun, MASK.encode())
        self._held, self._covered = text[place:], end - place
        return passed.removeprefix(MASK.encode()) if was_covered else passed


def _forms_of(value: str) -> tuple[str, ...]:
    """Return how a value may be written."""
    lines = [line.strip() for line in value.splitlines()] if "\n" in value or "\r" in value else []
    parts = [value, *(line for line in lines if len(line) >= _SHORTEST_LINE)]
    return tuple(form for each in parts for form in _spellings(each) if len(form) >= SHORTEST)


def _spellings(text: str) -> set[str]:
    coded = text.encode("utf-8", "surrogatepass")
    plain, safe = base64.b64encode(coded).decode(), base64.urlsafe_b64encode(coded).decode()
    return {
        text,
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        repr(text)[1:-1],
        repr(coded)[2:-1],
        quote(coded),
        quote(coded, safe=""),
        quote_plus(coded),
        html.escape(text),
        plain.rstrip("="),
        safe.rstrip("="),
    }


MASKED = MaskedValues()
"""The values of this process."""
