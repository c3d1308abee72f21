"""The values of secrets that this process knows, and where they stand in texts.

A value joins them before the job gets it, and stays as long as it is held: by a run that uses it, or for a worker that
told it (`fencepost.core.told_values`). Of the others those that were used last stay, `_MOST` of them: what a run leaves
behind may still be written. All are masked in every text that `fencepost.core.secrets` masks, whichever run wrote it.

**Promises.** A value is masked as it is, in JSON, as Python's ``repr`` writes it, percent-encoded, HTML-escaped, and in
Base64, in the dialects that `fencepost.core.spellings` lists; with and without spaces and line breaks around it. Of a
value of several lines, each line is masked by itself, too. Values that overlap, or begin alike, are masked as far as
one of them reaches, with one mask. In a stream of bytes all this holds wherever the pieces begin and end.

**Not promised.** A value in any other form: reversed, in parts, hashed, encrypted, encoded together with other text or
twice, or in lines of Base64 that other text stands between. A line of a longer value with fewer than eight characters.
Values of fewer than `SHORTEST` characters are refused: they stand in too many other words. A value that nobody holds,
when 2,000 others were used since.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, AnyStr
from weakref import ref

from fencepost.core.known_forms import KnownForms, Span, join
from fencepost.core.spellings import spellings, wrapped

SHORTEST = 4  # characters; shorter values stand in too many other words
LONGEST = 8_000  # characters; a stream holds back so much while it may be the beginning of a value
_SHORTEST_LINE = 8  # a line of a longer value is no secret by itself if many texts have it, such as a brace
_MOST = 2_000  # values: more than a process ever has, unless they are made anew for each run
_AT_ONCE = 500  # are forgotten: to go through the others takes some 10 ms
MASK = "***"


class HeldValue:
    """A value that is not forgotten as long as this object exists."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: str) -> None:
        self.value = value


class MaskedValues:
    """Values that are masked. `told` is called with each that a run is about to use."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[bytes, ...]] = {}  # with the forms of each; the one that was used last is last
        self._known = KnownForms()  # replaced as a whole where some are forgotten: other threads are reading
        self._held: set[ref[HeldValue]] = set()
        self._forget_beyond = _MOST + _AT_ONCE
        self.told: Callable[[str], None] | None = None

    def add(self, value: str) -> HeldValue:
        """Mask a value from now on, at least as long as somebody keeps what is returned."""
        held = HeldValue(value)
        if len(value) < SHORTEST:
            return held
        self._held.add(ref(held, self._held.discard))  # before it is looked for: see `_forget`
        if self.told is not None:
            self.told(value)
        self._values[value] = forms = self._values.pop(value, ()) or _forms_of(value)
        while not (known := self._known).has(forms):  # another thread may be replacing it
            known.add(forms)
        if len(self._values) > self._forget_beyond:
            self._forget()
        return held

    def _forget(self) -> None:
        """Forget those that were used longest ago, but none that is held. Other threads may add some meanwhile."""
        held = self._held_values()
        gone = {each: self._values.pop(each, ()) for each in [v for v in list(self._values) if v not in held][:-_MOST]}
        for each in self._held_values() & gone.keys():
            self._values.setdefault(each, gone[each])
        self._known = KnownForms({form for forms in list(self._values.values()) for form in forms})
        for forms in list(self._values.values()):
            if not self._known.has(forms):
                self._known.add(forms)
        self._forget_beyond = len(self._values) + _AT_ONCE

    def _held_values(self) -> set[str]:
        return {held.value for each in list(self._held) if (held := each()) is not None}

    def __bool__(self) -> bool:
        return bool(self._known)

    def spans(self, text: str) -> list[Span]:
        """Return where values stand in a text, in order. Spans do not overlap."""
        if not self._known:
            return []
        coded = text.encode("utf-8", "surrogatepass")
        spans = self.spans_of_bytes(coded)
        return spans if len(coded) == len(text) else _in_characters(coded, spans)

    def spans_of_bytes(self, text: bytes) -> list[Span]:
        """Return where values stand in bytes, as `spans` does."""
        known = self._known
        return known.spans(text, known.places(text))

    def spans_and_end(self, text: bytes) -> tuple[list[Span], int]:
        """Return the same, and where the end of the bytes may be the beginning of a value, or else their length."""
        known = self._known
        places = known.places(text)
        return known.spans(text, places), known.begins_at(text, places)

    def masked(self, text: str) -> str:
        """Return a text without them."""
        return _without(text, spans, MASK) if (spans := self.spans(text)) else text

    def masked_bytes(self, text: bytes) -> bytes:
        """Return bytes without them."""
        return _without(text, spans, MASK.encode()) if (spans := self.spans_of_bytes(text)) else text

    def masked_json(self, text: str) -> str:
        """Return JSON without them, in texts and numbers alike; it stays JSON."""
        if not self._known:
            return text
        value = json.loads(text)
        clean = self._masked_value(value)
        return text if clean == value else json.dumps(clean, separators=(",", ":"))

    def _masked_value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.masked(name): self._masked_value(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._masked_value(each) for each in value]
        if isinstance(value, str):
            return self.masked(value)
        spelled = json.dumps(value)
        return MASK if isinstance(value, int | float) and self.masked(spelled) != spelled else value


def _in_characters(coded: bytes, spans: list[Span]) -> list[Span]:
    """Count the places of spans in characters instead of bytes."""
    places, place, count = list[int](), 0, 0
    for each in (each for span in spans for each in span):
        count += len(coded[place:each].decode("utf-8", "surrogatepass"))
        place = each
        places.append(count)
    return list(zip(places[::2], places[1::2], strict=True))


def _without(text: AnyStr, spans: Sequence[Span], mask: AnyStr) -> AnyStr:
    kept: list[AnyStr] = []
    place = 0
    for start, end in spans:
        kept += (text[place:start], mask)
        place = end
    kept.append(text[place:])
    return text[:0].join(kept)


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
        return self._passed(text, *self._values.spans_and_end(text))

    def waiting(self) -> bytes:
        """Return what waits, as `rest` would, and let it wait: something may follow elsewhere."""
        before = self._held, self._covered
        rest = self.rest()
        self._held, self._covered = before
        return rest

    def rest(self) -> bytes:
        """Return what waits: nothing will follow."""
        return self._passed(self._held, self._values.spans_of_bytes(self._held), len(self._held)) if self._held else b""

    def _passed(self, text: bytes, found: list[Span], place: int) -> bytes:
        """Return the text before `place`, masked, and keep the rest. No value that begins before it is incomplete."""
        was_covered = self._covered > 0
        spans = [(0, self._covered)] if was_covered else []
        for span in found:
            join(spans, *span)
        begun = [span for span in spans if span[0] < place or (span[0] == 0 and was_covered)]
        end = max(begun[-1][1], place) if begun else place
        passed = _without(text[:end], begun, MASK.encode())
        self._held, self._covered = text[place:], end - place
        return passed.removeprefix(MASK.encode()) if was_covered else passed


def _forms_of(value: str) -> tuple[bytes, ...]:
    """Return how a value may be written, also without the line break at its end, and each of several lines.

    White space before it is no secret: a line would have to wait for the next one, which might be the value.
    """
    wholes = {value.lstrip(), value.strip()} if len(value.strip()) >= SHORTEST else {value}
    lines = [line.strip() for line in value.splitlines()] if "\n" in value or "\r" in value else []
    parts = {*wholes, *(line for line in lines if len(line) >= _SHORTEST_LINE)}
    spelled = [*map(spellings, parts), *map(wrapped, wholes)]
    forms = {form for each in spelled for form in each if len(form) >= SHORTEST}
    return tuple(form.encode("utf-8", "surrogatepass") for form in forms)


MASKED = MaskedValues()
"""The values of this process."""
