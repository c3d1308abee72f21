"""Reads the rows of CSV files.

::

    csv_file("in/orders.csv")
    csv_file("in/orders-*.csv.gz", delimiter=";", encoding="latin-1", columns=["id", "amount"])

An item is a tuple with the names of the header: ``row.id``, ``row.amount``. A column whose name is not a Python
identifier has only its number. Values are the strings of the file; convert them in `process`.

**Promises.** A position is a byte offset at the end of a record, also where fields contain line ends. Empty lines are
skipped. A row with more or fewer fields than columns becomes an `Unread`, which is stored with its line and text if the
skip limit allows it. So does a row that is not in the encoding or breaks the quoting rules, if it certainly ends with
its line: its quotes come in pairs, none is left open, and it has no escapes. Everything else is `BrokenInput`: a quote
that is never closed, a file that ends in the middle of a record, a first row that gives no columns.

**Not promised.** That a file truncated in its last field is noticed if the row still has all its fields: the last line
needs no line end. A single CSV file is not divided into partitions, because only a reader from the beginning knows
whether a line end is within quotes.
"""

from __future__ import annotations

import csv
import io
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

from fencepost.bulk.reader import WHOLE, Position, Surroundings, Unread
from fencepost.bulk.readers.files import FileReader, Given, Span
from fencepost.bulk.readers.lines import (
    LineCursor,
    Lines,
    counting,
    decoded,
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
    """Read the rows of one or more CSV files.

    With a header, `columns` selects some of its columns. Without one, `columns` gives the names of the fields in order.
    With `quotechar=None`, quotes are ordinary characters.
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
    """A reader of CSV files."""

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
        """Return what the fields of a row depend on. Encoding and dialect also decide where it ends."""
        return [self.encoding, self.has_header, self.columns, self._dialect]

    def cursor(self, span: Span, after: Position) -> LineCursor:
        """Open a file and read its header, also when reading continues from a later position."""
        lines = Lines(span, self.encoding)
        try:
            names = self._names(span, lines)
            make = self._making(span.file, names)
            if after is not None:
                lines.go_to(after)
        except BaseException:
            lines.close()
            raise
        return LineCursor(lines, self._records(lines, make, names))

    def reread(self, raw: str | bytes, context: Any) -> Any:
        """Parse an `Unread` record of a file with these columns; `BrokenInput` if it still gives no row."""
        names = self.columns if self.columns is not None and not self.has_header else tuple(context)
        lines = io.StringIO(decoded(raw, self.encoding), newline="\n")
        try:
            rows = [fields for fields in csv.reader(lines, **self._dialect) if fields]
        except csv.Error as error:
            raise BrokenInput(_plain(str(error))) from None
        if len(rows) != 1:
            raise BrokenInput(f"the text has {len(rows)} rows instead of one")
        if len(rows[0]) != len(names):
            raise BrokenInput(_odd(rows[0], len(names)))
        return self._making("the file", names)(rows[0])

    def check(self, surroundings: Surroundings) -> None:
        """Open the first file, and check that all files have the same columns, unless columns are selected by name."""
        super().check(surroundings)
        if self.has_header and self.columns is None and self.paths.can_be_filled(surroundings.values):
            _check_alike({span.file: self._header(span) for span in self.spans(WHOLE, surroundings)})

    def undivided(self, file: str) -> str | None:
        return "only a reader from the beginning knows whether a line end of CSV is within quotes"

    def counter(self, spans: Sequence[Span]) -> Callable[[Span], float] | None:
        """Estimate from the first rows."""
        return counting(self.cursor(max(spans, key=lambda span: span.size), None))

    def _names(self, span: Span, lines: Lines) -> tuple[str, ...]:
        """Return the names from the header, or those in `columns`, or numbered names."""
        if self.has_header:
            fields = self._first(lines)
            if not fields:
                raise lines.broken("the file has no header; was it truncated, or does it need header=False?")
            return tuple(name.strip() for name in fields)
        if self.columns is not None:
            return self.columns
        with closing(Lines(span, self.encoding)) as others:
            width = len(self._first(others))
        return tuple(f"column_{number + 1}" for number in range(width))

    def _rows(self, lines: Lines) -> Iterator[list[str]]:
        return csv.reader(lines.texts(), **self._dialect)

    def _records(self, lines: Lines, make: Callable[[list[str]], Any], names: tuple[str, ...]) -> Iterator[Any]:
        label, width = lines.label(), len(names)
        begun, offset = lines.line + 1, lines.offset
        while True:
            try:
                for fields in self._rows(lines):
                    if fields:  # skip empty lines
                        if len(fields) != width:
                            yield _misread(fields, lines, names, (begun, offset))
                        else:
                            row = make(fields)
                            row._place = (label, begun)
                            yield row
                    begun, offset = lines.line + 1, lines.offset
            except (csv.Error, BrokenInput) as error:
                against_rules = self._passed_over(error, lines, names, (begun, offset))
            else:
                return
            yield against_rules
            begun, offset = lines.line + 1, lines.offset

    def _passed_over(
        self, error: csv.Error | BrokenInput, lines: Lines, names: tuple[str, ...], begun: tuple[int, int]
    ) -> Unread:
        """Skip a row that cannot be read, if its end is known."""
        what, (line, offset) = lines.passed_over(error) if isinstance(error, BrokenInput) else _plain(str(error)), begun
        if not self._has_ended(lines, offset):
            raise lines.broken(what, line=line, offset=offset) from None
        return lines.unread(what, line=line, offset=offset, context=names)

    def _has_ended(self, lines: Lines, offset: int) -> bool:
        """Whether an invalid row that begins at `offset` certainly ends with this line."""
        text = lines.raw(offset).decode(self.encoding, "replace").replace("\r", " ")
        quote, escape = self._dialect["quotechar"], self._dialect["escapechar"]
        if lines.is_cut or (quote and text.count(quote) % 2) or (escape and escape in text):
            return False
        try:  # an empty line after it is parsed as empty, unless a quote is open
            *_, behind = csv.reader([*io.StringIO(text, newline="\n"), ""], **{**self._dialect, "strict": False})
        except csv.Error:
            return False
        return not behind

    def _first(self, lines: Lines) -> list[str]:
        """Return the first row that is not empty."""
        begun, offset = lines.line + 1, lines.offset
        try:
            return next(filter(None, self._rows(lines)), [])
        except csv.Error as error:
            raise lines.broken(_plain(str(error)), line=begun, offset=offset) from None

    def _making(self, file: str, names: tuple[str, ...]) -> Callable[[list[str]], Any]:
        """Return a function that makes a row from fields."""
        if not self.has_header or self.columns is None:
            return partial(tuple.__new__, placed_row(names))
        pick = _picking([_place_of(name, names, file) for name in self.columns])
        row = placed_row(self.columns)
        return lambda fields: tuple.__new__(row, pick(fields))

    def _header(self, span: Span) -> tuple[str, ...] | None:
        try:
            with closing(Lines(span, self.encoding)) as lines:
                return self._names(span, lines)
        except BrokenInput:  # reported when it is read
            return None


def checked_columns(columns: Any) -> tuple[str, ...] | None:
    """Return the names of columns; `InvalidBulk` unless there is at least one and none occurs twice."""
    if columns is None:
        return None
    are_names = isinstance(columns, list | tuple) and all(isinstance(name, str) and name for name in columns)
    if not are_names or not columns or len(set(columns)) != len(columns):
        raise InvalidBulk(f"columns {columns!r} must be a list of names, each once")
    return tuple(columns)


@lru_cache(maxsize=256)
def placed_row(names: tuple[str, ...]) -> Any:
    """Return a named tuple type whose rows also have their place in the file, as `_place`."""
    return type("Row", (namedtuple("Row", names, rename=True),), {"__doc__": "A row of a file."})


def _picking(places: list[int]) -> Callable[[Sequence[str]], tuple[str, ...]]:
    if len(places) == 1:
        return lambda fields: (fields[places[0]],)
    return itemgetter(*places)


def _place_of(name: str, names: tuple[str, ...], file: str) -> int:
    if names.count(name) == 1:
        return names.index(name)
    if name in names:
        raise InvalidBulk(f"{file} has {names.count(name)} columns named {name!r}, so the name is ambiguous")
    raise InvalidBulk(f"{file} has no column {name!r}; {suggestion(name, names)}")


def _check_alike(headers: Mapping[str, tuple[str, ...] | None]) -> None:
    known = [(file, names) for file, names in headers.items() if names is not None]
    for file, names in known[1:]:
        if names != known[0][1]:
            raise InvalidBulk(
                f"{file} has other columns than {known[0][0]}: {', '.join(names)} instead of {', '.join(known[0][1])}; "
                "select the columns that you need by name, as in columns=['id', 'amount'], or use separate jobs"
            )


def _check_dialect(dialect: dict[str, Any]) -> None:
    try:
        csv.reader([], **dialect)
    except (TypeError, ValueError) as error:
        raise InvalidBulk(f"the CSV options are not valid: {error}") from None


def _plain(error: str) -> str:
    if "unexpected end of data" in error:
        return "the file ends in the middle of a record: a quote in it, or an escape, is never closed"
    if "field limit" in error:
        return (
            f"a field is longer than {csv.field_size_limit()} characters; a quote may be missing; if such fields are "
            "intended, call csv.field_size_limit(…) where the job is declared"
        )
    if "new-line character" in error:
        return "there is a carriage return within a line; end lines with \\n or \\r\\n, or put the field in quotes"
    return error


def _misread(fields: list[str], lines: Lines, names: tuple[str, ...], begun: tuple[int, int]) -> Unread:
    what, (line, offset) = _odd(fields, len(names)), begun
    if len(fields) < len(names) and lines.is_cut:
        raise lines.broken(f"the file ends in the middle of a record: {what}", line=line, offset=offset)
    return lines.unread(what, line=line, offset=offset, context=names)


def _odd(fields: list[str], width: int) -> str:
    what = f"the row has {len(fields)} fields, and there are {width} columns"
    return f"{what}; is a field with the delimiter not quoted?" if len(fields) > width else what
