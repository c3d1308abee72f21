"""Lines of a text file, and exactly how many bytes each of them took: what CSV and JSON lines are read by.

A line is decoded by itself, so nothing is read ahead of a position but bytes that the next reader will read again.
Files whose names end in ``.gz`` are read as well; their positions count unpacked bytes, so to go on in one of them
means to unpack it from its beginning, and it cannot be divided.

**What a position holds.** ``{"file": "in/orders.csv", "offset": 8192, "line": 97, "last": 84, "seen": 2774301}``: the
bytes and lines before it, and a checksum of the file's first bytes and of the line before it, which has `last` bytes.
All of that lies before the position: the file may be mended behind it, and it may grow.

**What is put aside.** A line that is not in the encoding ends where every line ends, so one can go on behind it: who
reads records by lines makes an `Unread` of it, with its bytes; of a line that was decoded, with its text. What cannot
be gone on from is `BrokenInput`: a last line without an end that is not understood, and a stream that does not unpack.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import sys
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from fencepost.bulk.reader import Position, Unread
from fencepost.bulk.readers.files import Batch, Span, broken, changed, missing
from fencepost.errors import BrokenInput, InvalidBulk

LONGEST_LINE = 64 * 1024 * 1024
UNPACKABLE = (EOFError, gzip.BadGzipFile, zlib.error)  # what a compressed file raises that is none, or not whole
_HEAD = 512  # bytes at the beginning that a position vouches for
_BUFFER = 256 * 1024
_SAMPLE_RECORDS, _SAMPLE_BYTES = 500, 64 * 1024
_KEPT = 64 * 1024  # of a record that is put aside: more than a dead letter holds, so no part of one is taken for all


def line_encoding(encoding: str) -> str:
    """Return the codec's own name; `InvalidBulk` unless a line can be told in it by its bytes."""
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, TypeError):
        raise InvalidBulk(f"there is no encoding {encoding!r}; 'utf-8' and 'latin-1' are two") from None
    if name in ("utf-8", "utf-8-sig"):
        return "utf-8"
    try:
        is_plain = "\r\n".encode(name) == b"\r\n"
    except (LookupError, UnicodeError):
        is_plain = False
    if not is_plain:
        raise InvalidBulk(
            f"lines of a file in {encoding} cannot be told by their bytes; convert it: iconv -f {encoding} -t utf-8"
        )
    return name


def is_packed(file: str) -> bool:
    """Say whether a file is compressed."""
    return file.lower().endswith(".gz")


class Lines:
    """The lines of one span. `offset` and `line` are how far it is: after the line that was given last."""

    def __init__(self, span: Span, encoding: str) -> None:
        self.file = span.file
        self.name = os.path.basename(span.file)
        self.encoding = encoding
        self.offset = self.line = self.last = 0
        self.counts_lines = True  # not in the middle of a file, where nobody has counted them
        self.is_cut = False  # the line that was given last has no end
        self.has_unread = False  # since that was last asked
        self._undecoded: tuple[bytes, str] | None = None  # a line that follows, and what is wrong with it
        self._head = self.seen = 0
        self._upto: int | None = None
        self._opened = _opened(span.file)
        self._size = 0 if is_packed(span.file) else os.fstat(self._opened.fileno()).st_size
        try:
            self._begin(span)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._opened.close()

    def go_to(self, position: Position) -> None:
        """Go on from a position; `BrokenInput` if the file before it is not what it was."""
        offset, last = position["offset"], position["last"]
        self._opened.seek(0)
        self._head = zlib.crc32(self._bytes(min(_HEAD, offset)))
        self._opened.seek(offset - last)
        before = self._bytes(last)
        if len(before) < last:
            raise changed(self.file, f"it is shorter than the {offset} bytes that it had")
        self.seen = zlib.crc32(before, self._head)
        if self.seen != position["seen"]:
            raise changed(self.file, f"what comes before byte {offset} is not what was read there")
        self.offset, self.last, self.counts_lines = offset, last, position["line"] is not None
        self.line = position["line"] or 0

    def texts(self) -> Iterator[str]:
        """Yield what follows, line by line, each with its end."""
        readline, encoding, crc32, longest = self._opened.readline, self.encoding, zlib.crc32, LONGEST_LINE
        offset, head, upto = self.offset, self._head, sys.maxsize if self._upto is None else self._upto
        while offset < upto:
            try:
                raw = readline(longest)
                text = raw.decode(encoding)
            except (*UNPACKABLE, UnicodeDecodeError) as error:
                raise self._unreadable(error) from None
            if raw[-1:] != b"\n" and self._is_over_at(raw):
                return
            if offset < _HEAD:
                self._head = head = crc32(raw[: _HEAD - offset], head)
            self.last = len(raw)
            self.offset = offset = offset + self.last
            self.line += 1
            self.seen = crc32(raw, head)
            yield text

    def passed_over(self, trouble: BrokenInput) -> str:
        """Go on behind a line that is not in the encoding, and say what is wrong with it; other trouble is raised."""
        if self._undecoded is None:
            raise trouble
        (raw, what), self._undecoded = self._undecoded, None
        if self.offset < _HEAD:
            self._head = zlib.crc32(raw[: _HEAD - self.offset], self._head)
        self.last = len(raw)
        self.offset += self.last
        self.line += 1
        self.seen = zlib.crc32(raw, self._head)
        return what

    def raw(self, offset: int) -> bytes:
        """Return once more what was read from a byte on. That lies in the buffer as a rule, also of a packed file."""
        self._opened.seek(offset)
        return self._bytes(self.offset - offset)

    def unread(self, what: str, *, line: int, offset: int, context: Any = None) -> Unread:
        """Return what stands for a record that begins there and ends here."""
        self.has_unread = True
        raw = self.raw(offset)
        why = f"{self.file}, {self.where(line=line, offset=offset)}: {what}"
        return Unread(
            _kept(raw, self.encoding), why, f"{self.label()} {line if self.counts_lines else offset}", context
        )

    def is_over(self) -> bool:
        """Say whether nothing follows, not even an empty line."""
        if self._upto is not None and self.offset >= self._upto:
            return True
        try:
            return not self._opened.peek(1)
        except (EOFError, OSError, zlib.error):  # told when it is read
            return False

    def where(self, *, line: int | None = None, offset: int | None = None) -> str:
        """Name a place in the file for people: of the line that follows, if nothing else is said."""
        byte = f"byte {self.offset if offset is None else offset}"
        return f"line {self.line + 1 if line is None else line} ({byte})" if self.counts_lines else byte

    def broken(self, what: str, *, line: int | None = None, offset: int | None = None) -> BrokenInput:
        """Return the error about what follows, or about a place that is named."""
        return broken(self.file, self.where(line=line, offset=offset), what)

    def label(self) -> str:
        """Return how items are named, before their number."""
        return f"{self.name} {'line' if self.counts_lines else 'byte'}"

    def positions(self, kept: Sequence[Sequence[int]], index: int) -> Position:
        """Return one of the places that were kept as numbers."""
        offsets, lines, lasts, seens = kept
        return self._position(offsets[index], lines[index], lasts[index], seens[index])

    def _position(self, offset: int, line: int, last: int, seen: int) -> Position:
        told = line if self.counts_lines else None
        return {"file": self.file, "offset": offset, "line": told, "last": last, "seen": seen}

    def _begin(self, span: Span) -> None:
        if span.end is not None:
            self.go_to(span.end)
            self._upto = self.offset
        if span.begin is not None:
            self.go_to(span.begin)
            return
        self._opened.seek(0)
        self.offset = self.line = self.last = self._head = self.seen = 0
        self.counts_lines = True
        if self.encoding == "utf-8" and self._peek().startswith(codecs.BOM_UTF8):
            self._head = self.seen = zlib.crc32(self._bytes(len(codecs.BOM_UTF8)))
            self.offset = len(codecs.BOM_UTF8)

    def _peek(self) -> bytes:
        try:
            return self._opened.peek(len(codecs.BOM_UTF8))
        except UNPACKABLE:  # told when it is read
            return b""

    def _bytes(self, count: int) -> bytes:
        try:
            return self._opened.read(count)
        except UNPACKABLE as error:
            raise self._unpackable(error) from None

    def _is_over_at(self, raw: bytes) -> bool:
        """Judge a line that has no end: it is the last one, or it is none, and so nothing follows."""
        if len(raw) == LONGEST_LINE:
            raise self.broken(f"a line is longer than {LONGEST_LINE} bytes; is this a file of lines?")
        self.is_cut = True
        if not raw and self.offset < max(self._size, self._upto or 0):
            raise changed(self.file, f"it was cut to {self.offset} bytes while it was read")
        return not raw

    def _unreadable(self, error: Exception) -> BrokenInput:
        if not isinstance(error, UnicodeDecodeError):
            return self._unpackable(error)
        raw, at = error.object, self.offset + error.start
        if not raw.endswith(b"\n") and error.end == len(raw) < LONGEST_LINE:
            return self.broken("the file ends in the middle of a record, even of a character", offset=at)
        what = f"this is no {self.encoding}: {error.reason} {raw[error.start :][:4]!r}"
        if raw.endswith(b"\n"):
            self._undecoded = raw, f"{what} at byte {at}"
        return self.broken(what, offset=at)

    def _unpackable(self, error: Exception) -> BrokenInput:
        how = "it ends in the middle" if isinstance(error, EOFError) else str(error)
        return self.broken(f"the compressed file cannot be unpacked from here on: {how}")


def decoded(raw: str | bytes, encoding: str) -> str:
    """Return the text of a record that was put aside; `BrokenInput` if it is still not in the encoding."""
    try:
        return raw if isinstance(raw, str) else raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise BrokenInput(f"this is no {encoding}: {error.reason} {raw[error.start :][:4]!r}") from None


def _kept(raw: bytes, encoding: str) -> str | bytes:
    try:
        return raw.decode(encoding)[:_KEPT]
    except UnicodeDecodeError:
        return raw[:_KEPT]


def _opened(file: str) -> io.BufferedReader[Any]:
    try:
        return io.BufferedReader(gzip.GzipFile(file, "rb") if is_packed(file) else io.FileIO(file), _BUFFER)
    except FileNotFoundError:
        raise missing(file) from None


class LineCursor:
    """Records that are made of lines. `records` yields them; after each of them `lines` is where it ends."""

    def __init__(self, lines: Lines, records: Iterator[Any]) -> None:
        self.lines = lines
        self._records = records
        self._trouble: BrokenInput | None = None

    def take(self, limit: int) -> Batch:
        """Return up to `limit` records; what cannot be read is raised when nothing comes before it."""
        if self._trouble is not None:
            raise self._trouble
        lines, items, keep = self.lines, list[Any](), tuple(array("q") for _ in range(4))
        offsets, numbers, lasts, seens = (each.append for each in keep)
        try:
            for item in islice(self._records, limit):
                items.append(item)
                offsets(lines.offset)
                numbers(lines.line)
                lasts(lines.last)
                seens(lines.seen)
        except BrokenInput as trouble:
            if not items:
                raise
            self._trouble = trouble
        is_end = self._trouble is None and (len(items) < limit or lines.is_over())
        return Batch(items, lambda index: lines.positions(keep, index), is_end, self._unread(items))

    def _unread(self, items: list[Any]) -> dict[int, Unread]:
        if not self.lines.has_unread:
            return {}
        self.lines.has_unread = False
        return {index: item for index, item in enumerate(items) if type(item) is Unread}

    def close(self) -> None:
        """Close the file."""
        self.lines.close()


def counting(cursor: LineCursor) -> Callable[[Span], float] | None:
    """Return what estimates the records of a span by a sample of what follows; None if nothing does."""
    header = cursor.lines.offset
    try:
        count = len(cursor.take(_SAMPLE_RECORDS).items)
    except BrokenInput:  # told when it is read
        return None
    finally:
        cursor.close()
    size = (cursor.lines.offset - header) / max(count, 1)
    return (lambda span: max(_unpacked_size(span) - header, 0) / size) if count else None


def _unpacked_size(span: Span) -> float:
    """Return how many bytes of text a span has; estimated from its beginning if it is compressed."""
    if not is_packed(span.file):
        return span.size
    with open(span.file, "rb") as packed:
        sample = packed.read(_SAMPLE_BYTES)
    unpacking = zlib.decompressobj(wbits=31)
    try:
        text = unpacking.decompress(sample)
    except zlib.error:
        return span.size
    return span.size * len(text) / max(len(sample) - len(unpacking.unused_data), 1)


def line_ends(span: Span, count: int) -> list[Position]:
    """Return up to `count` - 1 places at ends of lines that divide a file about evenly; nobody counts their lines."""
    places: list[Position] = []
    with _opened(span.file) as file:
        head = file.read(_HEAD)
        for number in range(1, count):
            file.seek(max(span.size * number // count - 1, 0))
            file.readline(LONGEST_LINE)
            offset = file.tell()
            if offset >= span.size:
                break
            if not places or offset > places[-1]["offset"]:
                places.append(_place_at(file, span.file, offset, head))
    return places


def _place_at(file: io.BufferedReader[Any], name: str, offset: int, head: bytes) -> Position:
    last = min(offset, _HEAD)
    file.seek(offset - last)
    seen = zlib.crc32(file.read(last), zlib.crc32(head[:offset]))
    return {"file": name, "offset": offset, "line": None, "last": last, "seen": seen}
