"""The log of an attempt as the ledger keeps it: chunks of lines, numbered, with what is missing between them.

Chunks of the beginning are numbered from 0, and are all kept. Chunks of the end are numbered from `FIRST_OF_TAIL`;
while the attempt goes on, the older of them are removed again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

FIRST_OF_TAIL = 1_000_000  # more chunks than 64 kB of beginning can have
_LARGEST = 2**31 - 1  # what databases take for a number of this size


class LogChunk(NamedTuple):
    """A row of the ledger. `text` is compressed, `size` its length in bytes before that.

    `dropped`: how many lines came before it that are not in the beginning. Zero for chunks of the beginning.
    """

    run_id: int
    attempt: int
    seq: int
    first_at: int
    lines: int
    size: int
    dropped: int
    text: bytes


class Position(NamedTuple):
    """How far somebody has read: the last chunk, and what is needed to tell how many lines are missing after it."""

    attempt: int = 0
    seq: int = -1
    tail_lines: int = 0  # of the lines after the beginning, how many have been passed, read or missing

    @staticmethod
    def parse(text: str) -> Position:
        """Read what `str` wrote. Raises `ValueError`."""
        attempt, seq, tail_lines = map(int, text.split("."))
        return Position(min(attempt, _LARGEST), min(seq, _LARGEST), tail_lines)

    def __str__(self) -> str:
        return ".".join(map(str, self))


def with_missing(chunks: Iterable[LogChunk], after: Position) -> Iterator[tuple[LogChunk, int, Position]]:
    """Yield each chunk with the number of lines that are missing before it, and the position after it."""
    for chunk in chunks:
        if chunk.attempt != after.attempt:
            after = Position(chunk.attempt)
        if chunk.seq < FIRST_OF_TAIL:
            after = after._replace(seq=chunk.seq)
            yield chunk, 0, after
        else:
            missing = max(chunk.dropped - after.tail_lines, 0)
            after = after._replace(seq=chunk.seq, tail_lines=chunk.dropped + chunk.lines)
            yield chunk, missing, after


_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links, other strings
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_OVERWRITTEN = re.compile(r"[^\r\n]*\r+(?=[^\r\n])")


def plain(text: str) -> str:
    """Return a text without control sequences, as it is safe to show in a terminal.

    Of a line that was overwritten (a progress bar), the last state is left.
    """
    return _CONTROLS.sub("", _OVERWRITTEN.sub("", _SEQUENCES.sub("", text)).replace("\r", ""))
