"""Where the tables of effects are, and on whose behalf they are written: the run under way, if there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fencepost.core.urls import identifier

DEFAULT_PREFIX = "fencepost_"


class TablePlace(NamedTuple):
    """The prefix and the schema of the tables; both are checked identifiers."""

    prefix: str = DEFAULT_PREFIX
    schema: str | None = None

    def name(self, table: str) -> str:
        """Return the full name of a table for handwritten SQL."""
        return f"{self.schema}.{self.prefix}{table}" if self.schema else f"{self.prefix}{table}"

    @property
    def options(self) -> str:
        """The same as options of a URL; empty if they are the usual ones."""
        given = [("prefix", self.prefix if self.prefix != DEFAULT_PREFIX else None), ("schema", self.schema)]
        text = "&".join(f"{name}={value}" for name, value in given if value)
        return f"?{text}" if text else ""


class Writer(NamedTuple):
    """Who writes. `wall_us` tells the time where the database has no clock of its own (SQLite)."""

    place: TablePlace = TablePlace()
    job: str | None = None
    run_id: int | None = None
    token: int | None = None
    wall_us: Callable[[], int] | None = None


class _Hook:
    """How the run under way is found: the engine says so when it is loaded, and without it there is none."""

    ask: Callable[[], Writer | None] = staticmethod(lambda: None)


def found_by(ask: Callable[[], Writer | None]) -> None:
    """Let `ask` find the writer of the run under way."""
    _Hook.ask = staticmethod(ask)


def current_writer(prefix: str | None = None, schema: str | None = None) -> Writer:
    """Return who writes now; the tables are those given, else those of the run's ledger, else the usual ones."""
    writer = _Hook.ask() or Writer()
    if prefix is None and schema is None:
        return writer
    named = identifier(prefix if prefix is not None else writer.place.prefix, what="prefix")
    return writer._replace(place=TablePlace(named, identifier(schema, what="schema") if schema else None))
