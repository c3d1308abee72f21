"""Masks secrets in the log of an attempt, which arrives in pieces.

Each piece is complete lines. It is looked at together with the lines before it, so that a secret is also masked if its
name, or its beginning, stood in the piece before: a private key over many lines, a quoted value over two. A line that
is cut because it is too long is cut where no secret stands.

**Not promised.** That a secret is recognized if it stands alone and looks like any other word; see
`fencepost.core.secrets`.
"""

from __future__ import annotations

from fencepost.core.secrets import scrubbed_from, secret_spans

_CONTEXT = 2000  # characters: longer than a value that extends over several lines
_LONGEST_KEY = 32_000  # the longest private key that is found across lines
_KEY_BEGINS, _KEY_ENDS = "-----BEGIN", "-----END"
_AROUND_A_CUT = 4096  # the longest secret that is found where a long line is cut
_LONGEST_CHARACTER = 4  # bytes
_NAME = 200  # what stands before a secret and tells that it is one


class LogMask:
    """Masks one attempt's pieces, in their order."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before = ""

    def masked(self, piece: str) -> str:
        """Return the piece without secrets."""
        text = self._before + piece
        clean = scrubbed_from(text, len(self._before))
        self._before = _context(text)
        return clean


def _context(text: str) -> str:
    """Return the end of a text; all of a private key that has not ended, within limits."""
    place = text.rfind(_KEY_BEGINS)
    if place >= 0 and "PRIVATE KEY" in text[place : place + 64] and text.find(_KEY_ENDS, place) < 0:
        return text[max(place, len(text) - _LONGEST_KEY) :]
    return text[-_CONTEXT:]


def safe_cut(line: bytes, place: int) -> int:
    """Return where to cut a long line: at `place`, or well before a secret that stands there, which stays whole."""
    start = max(place - _AROUND_A_CUT, 1)
    around = line[start : place + _AROUND_A_CUT].decode("latin-1")  # one character per byte: places are the same
    cut = place
    for begins, ends in reversed(secret_spans(around)):
        if start + begins - _NAME <= cut < start + ends:
            cut = start + begins - _NAME  # its name, or the beginning of its URL, is needed to recognize it
    if cut <= start:
        cut = place  # secrets without an end
    return whole(line, cut)


def whole(text: bytes, cut: int) -> int:
    """Return where to cut instead, if the place is in the middle of a character in UTF-8."""
    for place in range(cut, max(cut - _LONGEST_CHARACTER, 0), -1):
        if text[place] & 0xC0 != 0x80:
            return place
    return cut  # bytes that are no characters
