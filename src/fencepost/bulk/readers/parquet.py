"""Reads the rows of Parquet files. Needs the extra ``fencepost[parquet]``.

::

    parquet("in/orders.parquet")
    parquet("in/orders-*.parquet", columns=["id", "amount"])

An item is a tuple of Python values with the names of the columns: ``row.id``, ``row.placed_at``.

**Promises.** A position is a row group, a number of rows in it, and a checksum of the file's footer. The footer
describes the whole file, so a rewritten file is refused. Files are divided into partitions by their row groups. Of
the current row group, only the current pages of its columns are in memory.

**Not promised.** That continuing within a row group is free: its rows before the position are decoded again.
"""

from __future__ import annotations

import os
import zlib
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import islice, pairwise
from typing import Any

from fencepost.bulk.reader import Position
from fencepost.bulk.readers.csv_file import checked_columns, placed_row
from fencepost.bulk.readers.files import Batch, FileReader, Given, Span, broken, changed, missing
from fencepost.core.nearest import suggestion
from fencepost.errors import BrokenInput, InvalidBulk, MissingExtra

_MAGIC = b"PAR1"
_TRAILER = 8  # the length of the footer in four bytes, then the magic
_ROWS = 1024  # decoded at a time
_BUFFER = 256 * 1024  # a larger one reads no faster


def parquet(path: Given, *, columns: Sequence[str] | None = None) -> Parquet:
    """Read the rows of one or more Parquet files, with all columns or some."""
    return Parquet(path, columns)


class Parquet(FileReader):
    """A reader of Parquet files."""

    kind = "parquet"

    def __init__(self, given: Given, columns: Sequence[str] | None) -> None:
        super().__init__(given)
        if find_spec("pyarrow") is None:
            raise MissingExtra("parquet() needs the package 'pyarrow': pip install './fencepost[parquet]' from a clone")
        self.columns = checked_columns(columns)

    def options(self) -> list[Any]:
        """Return nothing: a position does not depend on which columns are read."""
        return []

    def cursor(self, span: Span, after: Position) -> ParquetCursor:
        """Open a file at a position."""
        return ParquetCursor(span, after, self.columns)

    def divided(self, span: Span, count: int) -> list[Span]:
        """Divide a file between row groups."""
        with ParquetCursor(span, None, None) as cursor:
            weights = cursor.group_sizes()
            cuts = _cuts(weights, count)
            bounds = [None, *map(cursor.beginning_of, cuts), None]
        sizes = [sum(weights[first:end]) for first, end in pairwise([0, *cuts, len(weights)])]
        return [Span(span.file, size, begin, end) for size, (begin, end) in zip(sizes, pairwise(bounds), strict=True)]

    def counter(self, spans: Sequence[Span]) -> Callable[[Span], float] | None:
        """Count exactly, from the footers."""
        return self._rows_of

    def _rows_of(self, span: Span) -> float:
        try:
            with ParquetCursor(span, None, None) as cursor:
                return cursor.rows_left()
        except (BrokenInput, InvalidBulk):  # reported when it is read
            return 0.0


class ParquetCursor:
    """One Parquet file, open at a row."""

    def __init__(self, span: Span, after: Position, columns: tuple[str, ...] | None) -> None:
        self._path = span.file
        self._seen = _footer(span.file)
        for position in (span.begin, span.end, after):
            self._check(position)
        start = after or span.begin or {}
        self._group, self._row = start.get("group", 0), start.get("row", 0)
        self._file = self._opened()
        try:
            self._end = self._file.num_row_groups if span.end is None else span.end["group"]
            self._names = self._chosen(columns)
        except BaseException:
            self._file.close()
            raise
        self._make = partial(tuple.__new__, placed_row(self._names))
        self._label = f"{os.path.basename(span.file)} row"
        self._rows = self._all_rows()
        self._trouble: BrokenInput | None = None

    def __enter__(self) -> ParquetCursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self, limit: int) -> Batch:
        """Return up to `limit` rows. If one cannot be read, raise only when no rows come before it."""
        if self._trouble is not None:
            raise self._trouble
        items, groups, rows = list[Any](), array("q"), array("q")
        try:
            for item in islice(self._rows, limit):
                items.append(item)
                groups.append(self._group)
                rows.append(self._row)
        except BrokenInput as trouble:
            if not items:
                raise
            self._trouble = trouble
        is_end = self._trouble is None and (len(items) < limit or not self.rows_left())
        return Batch(items, lambda index: self._position(groups[index], rows[index]), is_end)

    def close(self) -> None:
        self._rows.close()
        self._file.close()

    def rows_left(self) -> int:
        """Return how many rows follow."""
        return int(sum(self._count(group) for group in range(self._group, self._end)) - self._row)

    def group_sizes(self) -> list[int]:
        """Return how many bytes each row group takes."""
        return [self._file.metadata.row_group(number).total_byte_size for number in range(self._file.num_row_groups)]

    def beginning_of(self, group: int) -> Position:
        """Return the position before a row group."""
        return self._position(group, 0)

    def _position(self, group: int, row: int) -> Position:
        return {"file": self._path, "group": group, "row": row, "seen": self._seen}

    def _count(self, group: int) -> int:
        return int(self._file.metadata.row_group(group).num_rows)

    def _check(self, position: Position) -> None:
        if position is not None and position["seen"] != self._seen:
            raise changed(self._path, "its footer is different")

    def _opened(self) -> Any:
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - an extra, and slow to import

        with self._reading():
            return ParquetFile(self._path, buffer_size=_BUFFER, pre_buffer=False)

    def _chosen(self, columns: tuple[str, ...] | None) -> tuple[str, ...]:
        names = tuple(self._file.schema_arrow.names)
        for name in names if columns is None else columns:
            if name not in names:
                raise InvalidBulk(f"{self._path} has no column {name!r}; {suggestion(name, names)}")
            if names.count(name) > 1:
                raise InvalidBulk(f"{self._path} has {names.count(name)} columns named {name!r}; rename them")
        if not names:
            raise InvalidBulk(f"{self._path} has no columns")
        return names if columns is None else columns

    def _all_rows(self) -> Generator[Any, None, None]:
        make, label = self._make, self._label
        while self._group < self._end:
            number = sum(map(self._count, range(self._group))) + self._row
            for values in self._values():
                number += 1
                self._row += 1
                row = make(values)
                row._place = (label, number)
                yield row
            if self._group + 1 == self._end:
                return
            self._group, self._row = self._group + 1, 0

    def _values(self) -> Iterator[tuple[Any, ...]]:
        """Yield the values of the remaining rows of this row group."""
        skipped = self._row
        if skipped >= self._count(self._group):
            return
        with self._reading():
            for batch in self._file.iter_batches(_ROWS, row_groups=[self._group], columns=list(self._names)):
                if batch.num_rows <= skipped:
                    skipped -= batch.num_rows
                    continue
                rest = batch.slice(skipped)
                skipped = 0
                yield from zip(*(rest.column(name).to_pylist() for name in self._names), strict=True)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Convert errors of pyarrow into `BrokenInput`. Errors of the operating system are raised unchanged."""
        from pyarrow import ArrowException  # noqa: PLC0415 - as above

        try:
            yield
        except (ArrowException, OSError, ValueError) as error:
            if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
                raise
            where = f"row group {self._group}, after its row {self._row}"
            raise broken(self._path, where, f"Parquet cannot be read: {error}") from error


def _footer(file: str) -> int:
    """Return the checksum of a file's footer. It is written last, so a truncated file has none."""
    try:
        with open(file, "rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(size - _TRAILER, 0))
            trailer = opened.read(_TRAILER)
            length = int.from_bytes(trailer[:4], "little")
            if trailer[4:] != _MAGIC or length + _TRAILER + len(_MAGIC) > size:
                what = "the file has no Parquet footer; it was truncated, is still being written, or is not Parquet"
                raise broken(file, f"byte {size}", what)
            opened.seek(size - _TRAILER - length)
            return zlib.crc32(opened.read(length))
    except FileNotFoundError:
        raise missing(file) from None


def _cuts(weights: Sequence[int], count: int) -> list[int]:
    """Return the row groups at which to cut a file into up to `count` pieces of about the same size."""
    even, cuts, load = sum(weights) / max(count, 1), list[int](), 0
    for number, weight in enumerate(weights):
        if number and len(cuts) < count - 1 and load + weight / 2 >= even * (len(cuts) + 1):
            cuts.append(number)
        load += weight
    return cuts
