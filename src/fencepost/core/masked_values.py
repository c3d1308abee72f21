"""The values of secrets that this process knows, and where they stand in texts.

A value joins them before the job gets it, and stays until the process ends: what a run leaves behind may still be
written. They are all masked in every text that `fencepost.core.secrets` masks, whichever run wrote it.

**Promises.** A value is masked as it is, in JSON, as Python's ``repr`` writes it, percent-encoded, HTML-escaped, and in
Base64. Of a value of several lines, each line is masked by itself, too. In a stream of bytes it is masked wherever the
pieces begin and end.

**Not promised.** A value in any other form: reversed, in parts, hashed, encrypted, encoded together with other text. A
line of a longer value with fewer than eight characters. Values of fewer than `SHORTEST` characters are refused: they
stand in too many other words.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple
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

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where values stand in a text."""
        if self._known is not None:
            yield from (match.span() for match in self._known.in_text.finditer(text))

    def masked(self, text: str) -> str:
        """Return a text without them."""
        return text if self._known is None else self._known.in_text.sub(MASK, text)

    def masked_bytes(self, text: bytes) -> bytes:
        """Return bytes without them."""
        return text if self._known is None else self._known.in_bytes.sub(MASK.encode(), text)

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
    """Masks one stream of bytes, piece by piece. What may be the beginning of a value waits for the next piece."""

    __slots__ = ("_held", "_values")

    def __init__(self, values: MaskedValues) -> None:
        self._values = values
        self._held = b""

    def masked(self, piece: bytes) -> bytes:
        """Return what can be passed on."""
        if not self._values and not self._held:
            return piece
        text = self._values.masked_bytes(self._held + piece)
        place = self._values.begins_at(text)
        self._held = text[place:]
        return text[:place]

    def rest(self) -> bytes:
        """Return what waits: nothing will follow."""
        rest, self._held = self._held, b""
        return rest


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
