"""What readers of files have in common: finding files, dividing them into slices, and pages across files.

::

    csv_file("in/orders.csv")
    json_lines("in/orders-*.jsonl")
    parquet(["in/north.parquet", "in/south.parquet"])
    csv_file("in/orders-{window_start:%Y-%m-%d}.csv")      the run's parameters and its window, as in `str.format`

Several files are read one after the other, in the order of their names.

**Promises.** A position has the file, the offset in it, and a checksum of what was read before it. A file that was
truncated or rewritten since is refused. A file that has changed only after the position, because it was corrected or
has grown, is read on. The records before one that cannot be read are returned first, so that they land. A text record
that cannot be parsed, but whose end is known, becomes an `Unread`.

**Not promised.** That an existing file is complete. Give a file its final name only when it is complete (`mv`).
"""

from __future__ import annotations

import glob
import math
import os
import string
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from fencepost.bulk.reader import WHOLE, Page, Position, Slice, Surroundings, Unread
from fencepost.core.identity import fingerprint
from fencepost.core.nearest import suggestion
from fencepost.core.positions import unpacked
from fencepost.errors import BrokenInput, FencepostError, InvalidBulk

Given = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""Files as users give them: a path, a pattern, or a list of them."""

_ELSEWHERE: Any = object()  # not equal to any position
_FINER = 4  # several files are cut into this many pieces per slice, so that slices have about the same size
_UNREADABLE = (".bz2", ".xz", ".zst", ".zip", ".7z", ".tar", ".tgz")


class Span(NamedTuple):
    """A part of a file, between two positions; None is the file's own beginning or end. `size` is in bytes."""

    file: str
    size: int
    begin: Position = None
    end: Position = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in self._asdict().items() if value is not None}

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Span:
        return Span(**stored)


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one file, and the position after each. `is_end`: nothing follows in this span."""

    items: list[Any]
    position_after: Callable[[int], Position]
    is_end: bool
    unread: Mapping[int, Unread] = field(default_factory=dict)


class OpenFile(Protocol):
    """One file, open at a position."""

    def take(self, limit: int) -> Batch:
        """Return up to `limit` records; `BrokenInput` if the very next one cannot be read."""
        ...

    def close(self) -> None: ...


class FileReader:
    """A reader of files. Subclasses define how one file is opened, divided and counted."""

    needs_source = False
    kind = ""

    def __init__(self, given: Given) -> None:
        self.paths = FilePatterns(given)

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(map(repr, self.paths.patterns))})"

    @property
    def shape(self) -> str:
        """Depends on the names of the files and on how they are read."""
        return fingerprint([self.kind, self.paths.patterns, self.options()])

    def open(self, part: Slice, surroundings: Surroundings) -> FileFeed:
        """Begin to read a slice."""
        return FileFeed(self.cursor, self.spans(part, surroundings))

    def slices(self, count: int, surroundings: Surroundings) -> list[Slice]:
        """Divide by files, and divide each file by its size if this kind allows it."""
        whole = self.spans(WHOLE, surroundings)
        finer = 1 if len(whole) == 1 else _FINER
        even = max(sum(span.size for span in whole) / count / finer, 1.0)
        pieces = [piece for span in whole for piece in self.divided(span, math.ceil(span.size / even))]
        if len(pieces) < min(count, 2):
            self._tell_undivided(pieces[0].file, surroundings)
        counted = self.counter(whole)
        return [self._slice(spans, counted) for spans in distributed(pieces, count)]

    def expected(self, part: Slice, surroundings: Surroundings) -> int | None:
        """Return the estimate from planning the slices, or one from a sample."""
        if "expected" in part:
            return int(part["expected"])
        try:
            spans = self.spans(part, surroundings)
            counted = self.counter(spans)
        except (FencepostError, OSError):
            return None
        return None if counted is None else round(sum(map(counted, spans)))

    def check(self, surroundings: Surroundings) -> None:
        """Open the first file, to check that it exists and has the requested columns."""
        if self.paths.can_be_filled(surroundings.values):
            self.cursor(self.spans(WHOLE, surroundings)[0], None).close()

    def label(self, item: Any) -> str:
        """Return the file and line of an item."""
        where, number = getattr(item, "_place", (None, None))
        return repr(item)[:100] if where is None else f"{where} {number}"

    def spans(self, part: Slice, surroundings: Surroundings) -> list[Span]:
        """Return the spans of a slice, in order."""
        if "spans" in part:
            return [Span.from_json(each) for each in part["spans"]]
        given = {name: unpacked(value) for name, value in part.get("values", {}).items()}
        found = self.paths.found({**surroundings.values, **given})
        return [Span(file, os.path.getsize(file)) for file in found]

    # -- what subclasses define ---------------------------------------------------------------------------------------

    def options(self) -> list[Any]:
        """Return what else the meaning of a position depends on."""
        return []

    def cursor(self, span: Span, after: Position) -> OpenFile:
        """Open a file at a position; None is the beginning of the span."""
        raise NotImplementedError

    def divided(self, span: Span, count: int) -> list[Span]:
        """Divide a file into up to `count` spans, or return it whole."""
        return [span]

    def undivided(self, file: str) -> str | None:
        """Return why this file can never be divided; None if it can."""
        return None

    def counter(self, spans: Sequence[Span]) -> Callable[[Span], float] | None:
        """Return a function that estimates the items of a span from a sample; None if that is not possible."""
        return None

    def _slice(self, spans: Sequence[Span], counted: Callable[[Span], float] | None) -> Slice:
        stored: dict[str, Any] = {"spans": [span.to_json() for span in spans]}
        return stored if counted is None else {**stored, "expected": round(sum(map(counted, spans)))}

    def _tell_undivided(self, file: str, surroundings: Surroundings) -> None:
        why = self.undivided(file)
        if why is not None and self.paths.is_one_file:
            raise InvalidBulk(
                f"{file} cannot be divided into partitions: {why}. Split it into several files and give a pattern, "
                "as in 'orders-*.csv', or leave out partitions="
            )
        surroundings.warn(f"{file} is the only input, and gives one partition{f': {why}' if why else ''}")


class FileFeed:
    """Reads the spans of a slice, one after the other."""

    def __init__(self, open_cursor: Callable[[Span, Position], OpenFile], spans: Sequence[Span]) -> None:
        self._open = open_cursor
        self._spans = spans
        self._index = 0
        self._cursor: OpenFile | None = None
        self._after: Position = _ELSEWHERE

    def read(self, after: Position, limit: int) -> Page:
        """Return the records after a position. If one cannot be read, raise only when no records come before it."""
        if after != self._after:
            self._go_to(after)
        batches: list[Batch] = []
        left = limit
        try:
            while left and self._index < len(self._spans):
                batch = self._take(left)
                if batch.items:
                    batches.append(batch)
                if not batch.is_end:
                    break  # the page is full, or the next record cannot be read: the next `take` raises
                left -= len(batch.items)
        except (FencepostError, OSError):
            self.close()
            if not batches:
                raise
            return _page(batches, is_last=False)
        self._after = batches[-1].position_after(len(batches[-1].items) - 1) if batches else after
        return _page(batches, is_last=self._index == len(self._spans))

    def close(self) -> None:
        """Close the current file. The next read opens it again."""
        self._after = _ELSEWHERE
        self._close_cursor()

    def _take(self, limit: int) -> Batch:
        if self._cursor is None:
            self._cursor = self._open(self._spans[self._index], None)
        batch = self._cursor.take(limit)
        if batch.is_end:
            self._close_cursor()
            self._index += 1
        return batch

    def _go_to(self, after: Position) -> None:
        self._close_cursor()
        self._index = 0 if after is None else self._span_of(after)
        if after is not None:
            self._cursor = self._open(self._spans[self._index], after)

    def _span_of(self, after: Position) -> int:
        for index, span in enumerate(self._spans):
            if span.file == after["file"] and (span.end is None or progress(after) <= progress(span.end)):
                return index
        raise missing(after["file"], "the run has read a part of it, or just all of it")

    def _close_cursor(self) -> None:
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            cursor.close()


def progress(position: Position) -> tuple[int, int]:
    """Return a sort key for positions within a file."""
    return (position.get("group", 0), position.get("offset", position.get("row", 0)))


def _page(batches: Sequence[Batch], *, is_last: bool) -> Page:
    if len(batches) == 1:
        return Page(batches[0].items, batches[0].position_after, is_last, unread=batches[0].unread)
    starts = list(accumulate((len(batch.items) for batch in batches), initial=0))

    def position_after(index: int) -> Position:
        place = bisect_right(starts, index) - 1
        return batches[place].position_after(index - starts[place])

    unread = {
        start + at: each for start, batch in zip(starts, batches, strict=False) for at, each in batch.unread.items()
    }
    return Page([item for batch in batches for item in batch.items], position_after, is_last, unread=unread)


def distributed(pieces: Iterable[Span], count: int) -> list[list[Span]]:
    """Return up to `count` groups of about the same size. Each group is ordered by file and position."""
    groups: list[list[Span]] = [[] for _ in range(count)]
    loads = [0] * count
    for piece in sorted(pieces, key=lambda span: (-span.size, _in_order(span))):
        lightest = min(range(count), key=lambda number: (loads[number], len(groups[number]), number))
        groups[lightest].append(piece)
        loads[lightest] += piece.size
    filled = [sorted(group, key=_in_order) for group in groups if group]
    return sorted(filled, key=lambda group: _in_order(group[0]))


def _in_order(span: Span) -> tuple[str, tuple[int, int]]:
    return span.file, (-1, -1) if span.begin is None else progress(span.begin)


# -- which files ------------------------------------------------------------------------------------------------------


class FilePatterns:
    """File names as users write them: paths, patterns, and fields that a run fills in."""

    def __init__(self, given: Given) -> None:
        several: Any = [given] if isinstance(given, str | os.PathLike) else given
        if not isinstance(several, list | tuple) or not several or not all(_names_a_file(each) for each in several):
            raise InvalidBulk(f"{given!r} is not a file name; give a path, a pattern ('in/*.csv'), or a list of them")
        self.patterns = tuple(os.fspath(each) for each in several)
        for pattern in self.patterns:
            _check(pattern)

    @property
    def is_one_file(self) -> bool:
        """Whether it always means exactly one file."""
        return len(self.patterns) == 1 and not glob.has_magic(self.patterns[0])

    def can_be_filled(self, values: Mapping[str, Any]) -> bool:
        """Whether the run has values for all fields. Listed partitions add theirs later."""
        named = [name for pattern in self.patterns for name in _fields(pattern)]
        return all(name in values for name in named)

    def found(self, values: Mapping[str, Any]) -> list[str]:
        """Return the files in order, without duplicates; `InvalidBulk` if one is missing or a pattern matches none."""
        return sorted({file for pattern in self.patterns for file in _found(pattern, values)})


class _Literally(string.Formatter):
    """Fills in values so that glob matches them literally."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return glob.escape(str(super().format_field(value, format_spec)))


def _names_a_file(each: Any) -> bool:
    return isinstance(each, str | os.PathLike) and isinstance(os.fspath(each), str) and bool(os.fspath(each).strip())


def _fields(pattern: str) -> list[str]:
    fields = [name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None]
    return [name.partition(".")[0].partition("[")[0] for name in fields]


def _check(pattern: str) -> None:
    if pattern.lower().endswith(_UNREADABLE):
        raise InvalidBulk(f"the format of {pattern} is not supported; unpack it, or compress it with gzip (.gz)")
    try:
        fields = _fields(pattern)
    except ValueError as error:
        raise InvalidBulk(f"{pattern!r}: {error}; write a brace that belongs to the name twice") from None
    if not all(name.isidentifier() for name in fields):
        raise InvalidBulk(f"{pattern!r} must name its fields, as in 'orders-{{window_start:%Y-%m-%d}}.csv'")


def _found(pattern: str, values: Mapping[str, Any]) -> list[str]:
    literal = _filled(string.Formatter(), pattern, values)
    if os.path.isfile(literal):
        return [literal]
    if os.path.isdir(literal):
        raise InvalidBulk(f"{literal} is a directory; give the files in it, as in '{os.path.join(literal, '*.csv')}'")
    if not glob.has_magic(pattern):
        raise missing(literal)
    files = [each for each in glob.glob(_filled(_Literally(), pattern, values), recursive=True) if os.path.isfile(each)]
    if not files:
        raise missing(literal, "no file matches the pattern")
    return files


def _filled(formatter: string.Formatter, pattern: str, values: Mapping[str, Any]) -> str:
    try:
        return formatter.vformat(pattern, (), values)
    except KeyError as error:
        name = str(error.args[0])
        raise InvalidBulk(
            f"{pattern!r} has {{{name}}}, which is not a parameter of this run; {suggestion(name, values)}"
        ) from None
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidBulk(f"{pattern!r} cannot be filled in: {error}") from None


# -- errors -----------------------------------------------------------------------------------------------------------


def missing(file: str, more: str = "") -> InvalidBulk:
    """Return the error for a missing file. A retry may find it."""
    details = f" ({more})" if more else ""
    return InvalidBulk(
        f"{file} is missing{details}; put it there, and restart the run: it continues where it stopped "
        "(fencepost retry RUN)"
    )


def changed(file: str, how: str) -> BrokenInput:
    """Return the error for a file that has changed since the checkpoint was made."""
    return BrokenInput(
        f"{file} has changed since the run began: {how}. Nothing more was written: records would be missed or read "
        "twice. Restore the file and restart the run (fencepost retry RUN), or start over: fencepost bulk forget RUN"
    )


def broken(file: str, where: str, what: str) -> BrokenInput:
    """Return the error for a record that cannot be read."""
    return BrokenInput(
        f"{file}, {where}: {what}. Everything before it was read, and nothing of it was written. Correct the file from "
        "there on and restart the run: it continues there (fencepost retry RUN)"
    )
