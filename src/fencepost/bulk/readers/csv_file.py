"""Rows of CSV files.

::

    csv_file("in/orders.csv")
    csv_file("in/orders-*.csv.gz", delimiter=";", encoding="latin-1", columns=["id", "amount"])

An item is a tuple with the names of the header: ``row.id``, ``row.amount``; a column whose name is no Python name has
only its number. Values are the texts that stand in the file: what they mean is said in `process`.

**Promises.** A position is a number of bytes at the end of a record, also where fields contain line ends. A row with
more or fewer fields than there are columns, a quote that is never closed, and a text that is not in the encoding are
`BrokenInput`, with their line. Empty lines are passed over.

**Not promised.** That a file cut off in the middle of its last field is noticed, if that leaves as many fields as a row
has: a last line needs no end. One CSV file is not divided into partitions: whether a line end is that of a record, or
stands within quotes, is known only to who has read all before it.
"""

from __future__ import annotations

import csv
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

from fencepost.bulk.reader import WHOLE, Position, Surroundings
from fencepost.bulk.readers.files import FileReader, Given, Span
from fencepost.bulk.readers.lines import (
    LineCursor,
    Lines,
    counting,
    line_encoding,
)
from fencepost.core.nearest import suggestion
from fencepost.errors import BrokenInput, InvalidBulk


def csv_file(
    path: Given,
    *,
    encoding: str = "utf-8",
    header: bool = True,
    columns: Sequence[str] | None = None,
    delimiter: str = ",",
    quotechar: str | None = '"',
    escapechar: str | None = None,
    doublequote: bool = True,
    skipinitialspace: bool = False,
) -> CsvFile:
    """Read the rows of one CSV file, or of several.

    With a header, `columns` chooses some of its names; without one, `columns` names the fields in their order.
    `quotechar=None` takes quotes for letters.
    """
    dialect = {
        "delimiter": delimiter,
        "quotechar": quotechar,
        "escapechar": escapechar,
        "doublequote": doublequote,
        "skipinitialspace": skipinitialspace,
        "quoting": csv.QUOTE_NONE if quotechar is None else csv.QUOTE_MINIMAL,
    }
    return CsvFile(path, encoding=encoding, header=header, columns=columns, dialect=dialect)


class CsvFile(FileReader):
    """CSV files as they are read."""

    kind = "csv_file"

    def __init__(
        self, given: Given, *, encoding: str, header: bool, columns: Sequence[str] | None, dialect: dict[str, Any]
    ) -> None:
        super().__init__(given)
        self.encoding = line_encoding(encoding)
        self.has_header = header
        self.columns = checked_columns(columns)
        self._dialect = {**dialect, "strict": True}
        _check_dialect(self._dialect)

    def options(self) -> list[Any]:
        """Return what decides which fields a row has; the encoding and the dialect decide where it ends."""
        return [self.encoding, self.has_header, self.columns, self._dialect]

    def cursor(self, span: Span, after: Position) -> LineCursor:
        """Open a file; its header is read also when it goes on further behind."""
        lines = Lines(span, self.encoding)
        try:
            names = self._names(span, lines)
            make = self._making(span.file, names)
            if after is not None:
                lines.go_to(after)
        except BaseException:
            lines.close()
            raise
        return LineCursor(lines, self._records(lines, make, len(names)))

    def check(self, surroundings: Surroundings) -> None:
        """Open the first file, and see that the others have the same columns, unless some are chosen by name."""
        super().check(surroundings)
        if self.has_header and self.columns is None and self.paths.can_be_filled(surroundings.values):
            _check_alike({span.file: self._header(span) for span in self.spans(WHOLE, surroundings)})

    def undivided(self, file: str) -> str | None:
        """No CSV file is divided."""
        return "whether a line end of CSV stands within quotes is known only to who has read all before it"

    def counter(self, spans: Sequence[Span]) -> Callable[[Span], float] | None:
        """Estimate by the first rows."""
        return counting(self.cursor(max(spans, key=lambda span: span.size), None))

    def _names(self, span: Span, lines: Lines) -> tuple[str, ...]:
        """Read the header, if there is one; else the columns are named by the reader, or by their numbers."""
        if self.has_header:
            fields = self._first(lines)
            if not fields:
                raise lines.broken("the file has not even a header; was it cut off, or is it one with header=False?")
            return tuple(name.strip() for name in fields)
        if self.columns is not None:
            return self.columns
        with closing(Lines(span, self.encoding)) as others:
            width = len(self._first(others))
        return tuple(f"column_{number + 1}" for number in range(width))

    def _rows(self, lines: Lines) -> Iterator[list[str]]:
        return csv.reader(lines.texts(), **self._dialect)

    def _records(self, lines: Lines, make: Callable[[list[str]], Any], width: int) -> Iterator[Any]:
        label = lines.label()
        begun, offset = lines.line + 1, lines.offset
        try:
            for fields in self._rows(lines):
                if fields:  # and no empty line
                    if len(fields) != width:
                        raise lines.broken(_odd(fields, width, lines), line=begun, offset=offset)
                    row = make(fields)
                    row._place = (label, begun)
                    yield row
                begun, offset = lines.line + 1, lines.offset
        except csv.Error as error:
            raise lines.broken(_told(str(error)), line=begun, offset=offset) from None

    def _first(self, lines: Lines) -> list[str]:
        """Return the first row that is not empty."""
        begun, offset = lines.line + 1, lines.offset
        try:
            return next(filter(None, self._rows(lines)), [])
        except csv.Error as error:
            raise lines.broken(_told(str(error)), line=begun, offset=offset) from None

    def _making(self, file: str, names: tuple[str, ...]) -> Callable[[list[str]], Any]:
        """Return what makes a row of fields."""
        if not self.has_header or self.columns is None:
            return partial(tuple.__new__, placed_row(names))
        pick = _picking([_place_of(name, names, file) for name in self.columns])
        row = placed_row(self.columns)
        return lambda fields: tuple.__new__(row, pick(fields))

    def _header(self, span: Span) -> tuple[str, ...] | None:
        try:
            with closing(Lines(span, self.encoding)) as lines:
                return self._names(span, lines)
        except BrokenInput:  # told when it is read
            return None


def checked_columns(columns: Any) -> tuple[str, ...] | None:
    """Return the names of columns as they were given; `InvalidBulk` unless they are some, each once."""
    if columns is None:
        return None
    are_names = isinstance(columns, list | tuple) and all(isinstance(name, str) and name for name in columns)
    if not are_names or not columns or len(set(columns)) != len(columns):
        raise InvalidBulk(f"columns {columns!r} must be a list of names, each once")
    return tuple(columns)


@lru_cache(maxsize=256)
def placed_row(names: tuple[str, ...]) -> Any:
    """Return a tuple with names that also knows its place in a file, as `_place`."""
    return type("Row", (namedtuple("Row", names, rename=True),), {"__doc__": "A row of a file."})


def _picking(places: list[int]) -> Callable[[Sequence[str]], tuple[str, ...]]:
    if len(places) == 1:
        return lambda fields: (fields[places[0]],)
    return itemgetter(*places)


def _place_of(name: str, names: tuple[str, ...], file: str) -> int:
    if names.count(name) == 1:
        return names.index(name)
    if name in names:
        raise InvalidBulk(f"{file} has {names.count(name)} columns of the name {name!r}; nobody knows which is meant")
    raise InvalidBulk(f"{file} has no column {name!r}; {suggestion(name, names)}")


def _check_alike(headers: Mapping[str, tuple[str, ...] | None]) -> None:
    known = [(file, names) for file, names in headers.items() if names is not None]
    for file, names in known[1:]:
        if names != known[0][1]:
            raise InvalidBulk(
                f"{file} has other columns than {known[0][0]}: {', '.join(names)} instead of {', '.join(known[0][1])}; "
                "choose by name those that are needed, as in columns=['id', 'amount'], or read them by other jobs"
            )


def _check_dialect(dialect: dict[str, Any]) -> None:
    try:
        csv.reader([], **dialect)
    except (TypeError, ValueError) as error:
        raise InvalidBulk(f"CSV cannot be read that way: {error}") from None


def _told(error: str) -> str:
    if "unexpected end of data" in error:
        return "the file ends in the middle of a record: a quote in it, or an escape, is never closed"
    if "field limit" in error:
        return (
            f"a field is longer than {csv.field_size_limit()} characters; either a quote is never closed, or such "
            "fields are meant, then call csv.field_size_limit(…) where the job is declared"
        )
    if "new-line character" in error:
        return "a carriage return alone stands within a line; end lines by \\n or \\r\\n, or put the field in quotes"
    return error


def _odd(fields: list[str], width: int, lines: Lines) -> str:
    what = f"the row has {len(fields)} fields, and there are {width} columns"
    if len(fields) < width and lines.is_cut:
        return f"the file ends in the middle of a record: {what}"
    return f"{what}; is something not quoted that contains the delimiter?"
