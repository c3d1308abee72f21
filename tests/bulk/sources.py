"""Tables to read from, and readers that are led through them by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine, text

from fencepost.bulk.reader import WHOLE, Feed, Reader, Slice, Surroundings
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()


@dataclass
class Source:
    """A database with tables, and all warnings that were given."""

    engine: Engine
    warnings: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.engine.dialect.name

    def execute(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for each in statements:
                connection.exec_driver_sql(each)

    def fill(self, table: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
        names = [each.strip() for each in columns.split(",")]
        marks = ", ".join(f":c{place}" for place in range(len(names)))
        values = [{f"c{place}": value for place, value in enumerate(row)} for row in rows]
        if values:
            with self.engine.begin() as connection:
                connection.execute(text(f"INSERT INTO {table} ({columns}) VALUES ({marks})"), values)

    def orders(self, ids: Iterable[int], amount: int = 5) -> None:
        """The table that most tests read."""
        self.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, amount INTEGER)")
        self.fill("orders", "id, amount", ((each, amount) for each in ids))

    def surroundings(self, **values: Any) -> Surroundings:
        return Surroundings(RUNTIME, self.engine, values, self.warnings.append)

    def open(self, reader: Reader, part: Slice = WHOLE, **values: Any) -> Feed:
        return reader.open(part, self.surroundings(**values))

    def read(self, reader: Reader, part: Slice = WHOLE, *, limit: int = 10, **values: Any) -> list[Any]:
        """Return all items of a slice, page by page, as a partition reads them."""
        feed, after, items = self.open(reader, part, **values), None, []
        try:
            while True:
                page = feed.read(after, limit)
                assert len(page.items) <= limit
                items += page.items
                if page.is_last or not page.items:
                    return items
                after = page.position_after(len(page.items) - 1)
        finally:
            feed.close()

    def divided(self, reader: Reader, count: int, **values: Any) -> list[Slice]:
        return reader.slices(count, self.surroundings(**values))


def key(item: Any, name: str = "id") -> Any:
    return getattr(item, name)


def slices_of(plan: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [dict(each) for each in plan]
