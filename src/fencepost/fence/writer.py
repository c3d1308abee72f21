"""Where the effect tables are, and which run writes to them, if any."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fencepost.core.urls import identifier

DEFAULT_PREFIX = "fencepost_"


class TablePlace(NamedTuple):
    """The prefix and the schema of the tables. Both are checked identifiers."""

    prefix: str = DEFAULT_PREFIX
    schema: str | None = None

    def name(self, table: str) -> str:
        """Return the full name of a table for use in SQL."""
        return f"{self.schema}.{self.prefix}{table}" if self.schema else f"{self.prefix}{table}"

    @property
    def options(self) -> str:
        """The same as URL options; empty for the default prefix and schema."""
        given = [("prefix", self.prefix if self.prefix != DEFAULT_PREFIX else None), ("schema", self.schema)]
        text = "&".join(f"{name}={value}" for name, value in given if value)
        return f"?{text}" if text else ""


class Writer(NamedTuple):
    """Which run writes, and where. `wall_us` is the clock where the database has none of its own (SQLite)."""

    place: TablePlace = TablePlace()
    job: str | None = None
    run_id: int | None = None
    token: int | None = None
    wall_us: Callable[[], int] | None = None


class _Hook:
    """Finds the current run. The engine sets `ask` when it is imported; without the engine there is no run."""

    ask: Callable[[], Writer | None] = staticmethod(lambda: None)


def found_by(ask: Callable[[], Writer | None]) -> None:
    """Register the function that returns the writer of the current run."""
    _Hook.ask = staticmethod(ask)


def current_writer(prefix: str | None = None, schema: str | None = None) -> Writer:
    """Return the current writer, with the given tables, else those of the run's ledger, else the default ones."""
    writer = _Hook.ask() or Writer()
    if prefix is None and schema is None:
        return writer
    named = identifier(prefix if prefix is not None else writer.place.prefix, what="prefix")
    return writer._replace(place=TablePlace(named, identifier(schema, what="schema") if schema else None))
