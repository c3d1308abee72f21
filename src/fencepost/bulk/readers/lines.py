"""Reads the lines of a text file with the exact number of bytes of each line. Used for CSV and JSON lines.

Each line is decoded separately, so beyond a position only bytes are read, which the next reader reads again. Files
whose names end in ``.gz`` are read as well. Their positions count unpacked bytes, so continuing in such a file means to
unpack it from the beginning, and it cannot be divided.

**What a position contains.** ``{"file": "in/orders.csv", "offset": 8192, "line": 97, "last": 84, "seen": 2774301}``:
the bytes and lines before it, and a checksum of the file's first bytes and of the line before it, which has `last`
bytes. All of that is before the position, so after it the file may be corrected, and it may grow.

**Records that cannot be parsed.** A line that is not in the encoding still ends at its line end, so reading can
continue after it. It becomes an `Unread` with its bytes; a line that was decoded becomes one with its text. If reading
cannot continue, it is `BrokenInput`: for a last line without a line end that cannot be parsed, and for a compressed
stream that cannot be unpacked.
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

LONGEST_LINE = 64 * 1024 * 1024  # bytes: a file without line ends must not fill the memory
UNPACKABLE = (EOFError, gzip.BadGzipFile, zlib.error)  # raised for a truncated or invalid compressed file
_HEAD = 512  # bytes at the beginning of the file that are in a position's checksum
_BUFFER = 256 * 1024  # a larger one reads no faster
_SAMPLE_RECORDS, _SAMPLE_BYTES = 500, 64 * 1024  # what an estimate reads: it must not take as long as the work
_KEPT = 64 * 1024  # of an `Unread` record: more than a dead letter can store, so none is stored in part


def line_encoding(encoding: str) -> str:
    """Return the codec's own name; `InvalidBulk` unless line ends are the bytes of ASCII."""
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, TypeError):
        raise InvalidBulk(f"there is no encoding {encoding!r}; 'utf-8' and 'latin-1' are examples") from None
    if name in ("utf-8", "utf-8-sig"):
        return "utf-8"
    try:
        is_plain = "\r\n".encode(name) == b"\r\n"
    except (LookupError, UnicodeError):
        is_plain = False
    if not is_plain:
        raise InvalidBulk(
            f"line ends of a file in {encoding} cannot be found in its bytes; convert it: iconv -f {encoding} -t utf-8"
        )
    return name


def is_packed(file: str) -> bool:
    return file.lower().endswith(".gz")


class Lines:
    """The lines of one span. `offset` and `line` are the bytes and lines up to the end of the last line returned."""

    def __init__(self, span: Span, encoding: str) -> None:
        self.file = span.file
        self.name = os.path.basename(span.file)
        self.encoding = encoding
        self.offset = self.line = self.last = 0
        self.counts_lines = True  # False if it begins in the middle of a file, where line numbers are unknown
        self.is_cut = False  # the last line returned has no line end
        self.has_unread = False  # since the last batch
        self._undecoded: tuple[bytes, str] | None = None  # the next line, and why it cannot be decoded
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
        self._opened.close()

    def go_to(self, position: Position) -> None:
        """Continue from a position; `BrokenInput` if the file has changed before it."""
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
        """Yield the following lines, each with its line end."""
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
        """Skip a line that is not in the encoding, and return the reason. Raise any other error."""
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
        """Return again what was read since an offset. It is usually still in the buffer, also for a packed file."""
        self._opened.seek(offset)
        return self._bytes(self.offset - offset)

    def unread(self, what: str, *, line: int, offset: int, context: Any = None) -> Unread:
        """Return the `Unread` of a record that begins at `offset` and ends here."""
        self.has_unread = True
        raw = self.raw(offset)
        why = f"{self.file}, {self.where(line=line, offset=offset)}: {what}"
        return Unread(
            _kept(raw, self.encoding), why, f"{self.label()} {line if self.counts_lines else offset}", context
        )

    def is_over(self) -> bool:
        """Whether nothing follows, not even an empty line."""
        if self._upto is not None and self.offset >= self._upto:
            return True
        try:
            return not self._opened.peek(1)
        except (EOFError, OSError, zlib.error):  # reported when it is read
            return False

    def where(self, *, line: int | None = None, offset: int | None = None) -> str:
        """Return a place in the file for messages; by default that of the next line."""
        byte = f"byte {self.offset if offset is None else offset}"
        return f"line {self.line + 1 if line is None else line} ({byte})" if self.counts_lines else byte

    def broken(self, what: str, *, line: int | None = None, offset: int | None = None) -> BrokenInput:
        """Return the error for the next line, or for the given place."""
        return broken(self.file, self.where(line=line, offset=offset), what)

    def label(self) -> str:
        """Return the label of items without their number."""
        return f"{self.name} {'line' if self.counts_lines else 'byte'}"

    def positions(self, kept: Sequence[Sequence[int]], index: int) -> Position:
        """Return one of the positions that are stored as arrays of numbers."""
        offsets, lines, lasts, seens = kept
        return self._position(offsets[index], lines[index], lasts[index], seens[index])

    def _position(self, offset: int, line: int, last: int, seen: int) -> Position:
        number = line if self.counts_lines else None
        return {"file": self.file, "offset": offset, "line": number, "last": last, "seen": seen}

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
        except UNPACKABLE:  # reported when it is read
            return b""

    def _bytes(self, count: int) -> bytes:
        try:
            return self._opened.read(count)
        except UNPACKABLE as error:
            raise self._unpackable(error) from None

    def _is_over_at(self, raw: bytes) -> bool:
        """Check a line without a line end: either it is the last one, or it is empty and nothing follows."""
        if len(raw) == LONGEST_LINE:
            raise self.broken(f"a line is longer than {LONGEST_LINE} bytes; is this a text file?")
        self.is_cut = True
        if not raw and self.offset < max(self._size, self._upto or 0):
            raise changed(self.file, f"it was truncated to {self.offset} bytes while it was read")
        return not raw

    def _unreadable(self, error: Exception) -> BrokenInput:
        if not isinstance(error, UnicodeDecodeError):
            return self._unpackable(error)
        raw, at = error.object, self.offset + error.start
        if not raw.endswith(b"\n") and error.end == len(raw) < LONGEST_LINE:
            return self.broken("the file ends in the middle of a record, even of a character", offset=at)
        what = f"this is not valid {self.encoding}: {error.reason} {raw[error.start :][:4]!r}"
        if raw.endswith(b"\n"):
            self._undecoded = raw, f"{what} at byte {at}"
        return self.broken(what, offset=at)

    def _unpackable(self, error: Exception) -> BrokenInput:
        how = "it ends in the middle" if isinstance(error, EOFError) else str(error)
        return self.broken(f"the compressed file cannot be unpacked from here on: {how}")


def decoded(raw: str | bytes, encoding: str) -> str:
    """Return the text of an `Unread` record; `BrokenInput` if it is still not in the encoding."""
    try:
        return raw if isinstance(raw, str) else raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise BrokenInput(f"this is not valid {encoding}: {error.reason} {raw[error.start :][:4]!r}") from None


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
    """Records that consist of lines. `records` yields them; after each record, `lines` is at its end."""

    def __init__(self, lines: Lines, records: Iterator[Any]) -> None:
        self.lines = lines
        self._records = records
        self._trouble: BrokenInput | None = None

    def take(self, limit: int) -> Batch:
        """Return up to `limit` records. If one cannot be read, raise only when no records come before it."""
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
        self.lines.close()


def counting(cursor: LineCursor) -> Callable[[Span], float] | None:
    """Return a function that estimates the records of a span from a sample of the next ones; None if there are none."""
    header = cursor.lines.offset
    try:
        count = len(cursor.take(_SAMPLE_RECORDS).items)
    except BrokenInput:  # reported when it is read
        return None
    finally:
        cursor.close()
    size = (cursor.lines.offset - header) / max(count, 1)
    return (lambda span: max(_unpacked_size(span) - header, 0) / size) if count else None


def _unpacked_size(span: Span) -> float:
    """Return the bytes of text in a span; for a compressed file, an estimate from its beginning."""
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
    """Return up to `count` - 1 positions at line ends that divide a file about evenly, without line numbers."""
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
