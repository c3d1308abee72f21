"""Reads JSON lines: one JSON value per line, as in exports and logs.

::

    json_lines("in/orders.jsonl")
    json_lines("in/orders-*.jsonl.gz")

An item is what `json.loads` returns for a line; an object is a dict. Empty lines are skipped.

**Promises.** A position is a byte offset at the end of a line. A file is divided into partitions at line ends. A line
that is not valid JSON, or not in the encoding, becomes an `Unread`, which is stored with its text if the skip limit
allows it. It is labelled by its line number, or by its byte offset if the partition begins in the middle of a file,
where line numbers are unknown. A file that ends in the middle of a record is `BrokenInput`.

**Not promised.** That a truncated number is noticed at the end of a file: the rest is a valid number. Truncated objects
and lists are noticed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from fencepost.bulk.reader import Position, Unread
from fencepost.bulk.readers.files import FileReader, Given, Span
from fencepost.bulk.readers.lines import (
    LineCursor,
    Lines,
    counting,
    decoded,
    is_packed,
    line_encoding,
    line_ends,
)
from fencepost.core.texts import beginning
from fencepost.errors import BrokenInput

_SHOWN = 60  # characters of the broken record in the error about it


def json_lines(path: Given, *, encoding: str = "utf-8") -> JsonLines:
    """Read one or more files with a JSON value on each line."""
    return JsonLines(path, encoding)


class JsonLine(dict[str, Any]):
    """The object of a line: a dict that also has its place in the file, as `_place`."""

    __slots__ = ("_place",)
    _place: tuple[str, int]


class JsonLines(FileReader):
    """A reader of files with JSON lines."""

    kind = "json_lines"

    def __init__(self, given: Given, encoding: str) -> None:
        super().__init__(given)
        self.encoding = line_encoding(encoding)

    def options(self) -> list[Any]:
        """Return what else the text of a line depends on."""
        return [self.encoding]

    def cursor(self, span: Span, after: Position) -> LineCursor:
        """Open a file at a position."""
        lines = Lines(span, self.encoding)
        try:
            if after is not None:
                lines.go_to(after)
        except BaseException:
            lines.close()
            raise
        return LineCursor(lines, _records(lines))

    def reread(self, raw: str | bytes, context: Any) -> Any:
        """Parse an `Unread` record; `BrokenInput` if it still cannot be parsed."""
        try:
            return json.loads(decoded(raw, self.encoding))
        except (ValueError, RecursionError) as error:
            raise BrokenInput(_no_json(error)) from None

    def divided(self, span: Span, count: int) -> list[Span]:
        """Divide a file at line ends."""
        if is_packed(span.file) or count < 2:
            return [span]
        bounds = [None, *line_ends(span, count), None]
        offsets = [0, *(each["offset"] for each in bounds if each is not None), span.size]
        sizes = [upto - after for after, upto in pairwise(offsets)]
        return [Span(span.file, size, begin, end) for size, (begin, end) in zip(sizes, pairwise(bounds), strict=True)]

    def undivided(self, file: str) -> str | None:
        return "a compressed file can only be read from its beginning" if is_packed(file) else None

    def counter(self, spans: Sequence[Span]) -> Callable[[Span], float] | None:
        """Estimate from the first lines."""
        return counting(self.cursor(max(spans, key=lambda span: span.size), None))


def _records(lines: Lines) -> Iterator[Any]:
    label, counts_lines, offset = lines.label(), lines.counts_lines, lines.offset
    while True:
        try:
            for text in lines.texts():
                if not text.isspace():
                    try:
                        item = json.loads(text)
                    except (ValueError, RecursionError) as error:
                        item = _misread(text, lines, error, offset)
                    if type(item) is dict:
                        item = JsonLine(item)
                        item._place = (label, lines.line if counts_lines else offset)
                    yield item
                offset = lines.offset
        except BrokenInput as trouble:
            what = lines.passed_over(trouble)
        else:
            return
        yield lines.unread(what, line=lines.line, offset=offset)
        offset = lines.offset


def _misread(text: str, lines: Lines, error: Exception, offset: int) -> Unread:
    if lines.is_cut:
        what = f"the file ends in the middle of a record: {beginning(text, _SHOWN)!r}"
        raise lines.broken(what, line=lines.line, offset=offset) from None
    return lines.unread(_no_json(error), line=lines.line, offset=offset)


def _no_json(error: Exception) -> str:
    return f"this line is not valid JSON: {error}"
