"""What readers of files have in common: which files there are, which parts of them a slice has, pages across files.

::

    csv_file("in/orders.csv")
    json_lines("in/orders-*.jsonl")
    parquet(["in/north.parquet", "in/south.parquet"])
    csv_file("in/orders-{window_start:%Y-%m-%d}.csv")      the run's parameters and its window, as `str.format` has it

Several files are read one after the other, in the order of their names.

**Promises.** A position says in which file it is, how far, and what the reader saw there. A file that was cut short or
rewritten since is refused, not read on from the middle of something else; one that has only changed behind the
position, because it was mended or has grown, is read on. What comes before a record that cannot be read is delivered
first, so that it lands. A record of text that cannot be understood, but whose end is known, is put aside as `Unread`.

**Not promised.** That a file which is there is complete: whoever writes it gives it its name when it is (`mv`).
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
"""What names files: a path, a pattern, or several of them."""

_ELSEWHERE: Any = object()  # equals no position
_FINER = 4  # several files are cut into smaller pieces than a slice takes, so that slices come out even
_UNREADABLE = (".bz2", ".xz", ".zst", ".zip", ".7z", ".tar", ".tgz")


class Span(NamedTuple):
    """A part of a file, between two positions; None is the file's own beginning or end. `size` is in bytes."""

    file: str
    size: int
    begin: Position = None
    end: Position = None

    def to_json(self) -> dict[str, Any]:
        """Write it into a slice."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Span:
        """Read it from a slice."""
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

    def close(self) -> None:
        """Close the file."""
        ...


class FileReader:
    """A reader of files. Each kind says how one file is opened, divided and counted."""

    needs_source = False
    kind = ""

    def __init__(self, given: Given) -> None:
        self.paths = FilePatterns(given)

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(map(repr, self.paths.patterns))})"

    @property
    def shape(self) -> str:
        """The names of the files, and how they are read."""
        return fingerprint([self.kind, self.paths.patterns, self.options()])

    def open(self, part: Slice, surroundings: Surroundings) -> FileFeed:
        """Begin to read a slice."""
        return FileFeed(self.cursor, self.spans(part, surroundings))

    def slices(self, count: int, surroundings: Surroundings) -> list[Slice]:
        """Divide by files, and files by their size where this kind can be divided."""
        whole = self.spans(WHOLE, surroundings)
        finer = 1 if len(whole) == 1 else _FINER
        even = max(sum(span.size for span in whole) / count / finer, 1.0)
        pieces = [piece for span in whole for piece in self.divided(span, math.ceil(span.size / even))]
        if len(pieces) < min(count, 2):
            self._tell_undivided(pieces[0].file, surroundings)
        counted = self.counter(whole)
        return [self._slice(spans, counted) for spans in distributed(pieces, count)]

    def expected(self, part: Slice, surroundings: Surroundings) -> int | None:
        """What the planning of the slices has estimated, or what a sample of the first file tells."""
        if "expected" in part:
            return int(part["expected"])
        try:
            spans = self.spans(part, surroundings)
            counted = self.counter(spans)
        except (FencepostError, OSError):
            return None
        return None if counted is None else round(sum(map(counted, spans)))

    def check(self, surroundings: Surroundings) -> None:
        """Open the first file: it is there, and has the columns that are asked for."""
        if self.paths.can_be_filled(surroundings.values):
            self.cursor(self.spans(WHOLE, surroundings)[0], None).close()

    def label(self, item: Any) -> str:
        """File and line of an item."""
        where, number = getattr(item, "_place", (None, None))
        return repr(item)[:100] if where is None else f"{where} {number}"

    def spans(self, part: Slice, surroundings: Surroundings) -> list[Span]:
        """Return what a slice has, in order."""
        if "spans" in part:
            return [Span.from_json(each) for each in part["spans"]]
        given = {name: unpacked(value) for name, value in part.get("values", {}).items()}
        found = self.paths.found({**surroundings.values, **given})
        return [Span(file, os.path.getsize(file)) for file in found]

    # -- what each kind says ------------------------------------------------------------------------------------------

    def options(self) -> list[Any]:
        """Return what else a position depends on."""
        return []

    def cursor(self, span: Span, after: Position) -> OpenFile:
        """Open a file at a position; None is the beginning of the span."""
        raise NotImplementedError

    def divided(self, span: Span, count: int) -> list[Span]:
        """Divide a file into up to `count` spans; into itself if it cannot be."""
        return [span]

    def undivided(self, file: str) -> str | None:
        """Say why this file can never be divided, if so."""
        return None

    def counter(self, spans: Sequence[Span]) -> Callable[[Span], float] | None:
        """Return what estimates how many items a span has, made from a sample; None if nobody knows."""
        return None

    def _slice(self, spans: Sequence[Span], counted: Callable[[Span], float] | None) -> Slice:
        stored: dict[str, Any] = {"spans": [span.to_json() for span in spans]}
        return stored if counted is None else {**stored, "expected": round(sum(map(counted, spans)))}

    def _tell_undivided(self, file: str, surroundings: Surroundings) -> None:
        why = self.undivided(file)
        if why is not None and self.paths.is_one_file:
            raise InvalidBulk(
                f"{file} cannot be divided into partitions: {why}. Split it into several files and name them by a "
                "pattern, as in 'orders-*.csv', or leave partitions away"
            )
        surroundings.warn(f"{file} is all there is to read, and makes one partition{f': {why}' if why else ''}")


class FileFeed:
    """Reads the spans of a slice, one after the other."""

    def __init__(self, open_cursor: Callable[[Span, Position], OpenFile], spans: Sequence[Span]) -> None:
        self._open = open_cursor
        self._spans = spans
        self._index = 0
        self._cursor: OpenFile | None = None
        self._after: Position = _ELSEWHERE

    def read(self, after: Position, limit: int) -> Page:
        """Return the records after a position. What could not be read is raised once nothing comes before it."""
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
                    break  # the page is full, or what follows cannot be read, and the cursor says so when it is asked
                left -= len(batch.items)
        except (FencepostError, OSError):
            self.close()
            if not batches:
                raise
            return _page(batches, is_last=False)
        self._after = batches[-1].position_after(len(batches[-1].items) - 1) if batches else after
        return _page(batches, is_last=self._index == len(self._spans))

    def close(self) -> None:
        """Close the file that is open; the next read opens it again."""
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
        raise missing(after["file"], "the run is in the middle of it, or has just ended it")

    def _close_cursor(self) -> None:
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            cursor.close()


def progress(position: Position) -> tuple[int, int]:
    """Return what orders positions within a file."""
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
    """Return up to `count` groups of about the same size; within each, files and places are in order."""
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
    """Names of files as users write them: paths, patterns, and fields that a run fills in."""

    def __init__(self, given: Given) -> None:
        several: Any = [given] if isinstance(given, str | os.PathLike) else given
        if not isinstance(several, list | tuple) or not several or not all(_names_a_file(each) for each in several):
            raise InvalidBulk(f"{given!r} names no file; give a path, a pattern such as 'in/*.csv', or a list of them")
        self.patterns = tuple(os.fspath(each) for each in several)
        for pattern in self.patterns:
            _check(pattern)

    @property
    def is_one_file(self) -> bool:
        """Whether it can only ever be one file."""
        return len(self.patterns) == 1 and not glob.has_magic(self.patterns[0])

    def can_be_filled(self, values: Mapping[str, Any]) -> bool:
        """Say whether the run has all values that are named; partitions that are given one by one bring theirs."""
        named = [name for pattern in self.patterns for name in _fields(pattern)]
        return all(name in values for name in named)

    def found(self, values: Mapping[str, Any]) -> list[str]:
        """Return the files, in order, each once; `InvalidBulk` if one is missing, or nothing fits a pattern."""
        return sorted({file for pattern in self.patterns for file in _found(pattern, values)})


class _Literally(string.Formatter):
    """Fills in values so that a pattern takes them literally."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return glob.escape(str(super().format_field(value, format_spec)))


def _names_a_file(each: Any) -> bool:
    return isinstance(each, str | os.PathLike) and isinstance(os.fspath(each), str) and bool(os.fspath(each).strip())


def _fields(pattern: str) -> list[str]:
    fields = [name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None]
    return [name.partition(".")[0].partition("[")[0] for name in fields]


def _check(pattern: str) -> None:
    if pattern.lower().endswith(_UNREADABLE):
        raise InvalidBulk(f"{pattern} cannot be read as it is; unpack it, or compress it by gzip (.gz)")
    try:
        fields = _fields(pattern)
    except ValueError as error:
        raise InvalidBulk(f"{pattern!r}: {error}; a brace that belongs to the name is written twice") from None
    if not all(name.isidentifier() for name in fields):
        raise InvalidBulk(f"{pattern!r} must say what is filled in, as in 'orders-{{window_start:%Y-%m-%d}}.csv'")


def _found(pattern: str, values: Mapping[str, Any]) -> list[str]:
    literal = _filled(string.Formatter(), pattern, values)
    if os.path.isfile(literal):
        return [literal]
    if os.path.isdir(literal):
        raise InvalidBulk(f"{literal} is a directory; name the files in it, as in '{os.path.join(literal, '*.csv')}'")
    if not glob.has_magic(pattern):
        raise missing(literal)
    files = [each for each in glob.glob(_filled(_Literally(), pattern, values), recursive=True) if os.path.isfile(each)]
    if not files:
        raise missing(literal, "no file fits the pattern")
    return files


def _filled(formatter: string.Formatter, pattern: str, values: Mapping[str, Any]) -> str:
    try:
        return formatter.vformat(pattern, (), values)
    except KeyError as error:
        name = str(error.args[0])
        raise InvalidBulk(
            f"{pattern!r} names {{{name}}}, which is no parameter of this run; {suggestion(name, values)}"
        ) from None
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidBulk(f"{pattern!r} cannot be filled in: {error}") from None


# -- what to tell -----------------------------------------------------------------------------------------------------


def missing(file: str, more: str = "") -> InvalidBulk:
    """Return the error about a file that is not there. A retry may find it: it is not hopeless."""
    told = f" ({more})" if more else ""
    return InvalidBulk(
        f"{file} is missing{told}; put it there, and restart the run: it goes on where it was (fencepost retry RUN)"
    )


def changed(file: str, how: str) -> BrokenInput:
    """Return the error about a file that is not what it was when the checkpoint was made."""
    return BrokenInput(
        f"{file} has changed since the run was begun: {how}. Nothing more was written: records would be missed or read "
        "twice. Put the file back as it was and restart the run (fencepost retry RUN), or begin anew: fencepost bulk "
        "forget RUN"
    )


def broken(file: str, where: str, what: str) -> BrokenInput:
    """Return the error about a record that cannot be read."""
    return BrokenInput(
        f"{file}, {where}: {what}. All before it was read, and nothing of it was written. Mend the file from there on "
        "and restart the run: it goes on there (fencepost retry RUN)"
    )
