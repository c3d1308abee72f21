"""COPY … FROM STDIN: the fastest way into PostgreSQL.

::

    write = copy("settled", ("id", "amount"))

**Promises.** The rows are part of the chunk's transaction.

**Not promised.** That existing rows are skipped: COPY has no ON CONFLICT. If rows may conflict, use
``unnest(…, on_conflict=…)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.bulk.writers.table import Table, explained, psycopg_connection
from fencepost.bulk.writers.values import Rows, values_of

_AT_ONCE = 1000  # the server reads these while the next are formatted


def copy(table: str, columns: Sequence[str]) -> Copy:
    """Write items with COPY into `columns` of `table`. Only for PostgreSQL with psycopg."""
    return Copy(Table.of(table, columns, "copy"))


class Copy:
    """Writes chunks with COPY."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._sql = f"COPY {table.quoted()} ({table.quoted_columns()}) FROM STDIN"

    def __repr__(self) -> str:
        return f"copy({self._table})"

    def __call__(self, tx: Any, items: Sequence[Any]) -> None:
        """Write items within a transaction."""
        if not items:
            return
        rows = values_of(items, self._table.columns)
        raw = psycopg_connection(tx, "copy", f"executemany({self._table})")
        with explained(self._table, "copy"), raw.cursor() as cursor, cursor.copy(self._sql) as sink:
            for first in range(0, len(rows), _AT_ONCE):
                sink.write(_formatted(sink.formatter, rows[first : first + _AT_ONCE]))


def _formatted(formatter: Any, rows: Rows) -> bytes:
    """Return rows in the format of COPY. The server reads them while the next ones are formatted."""
    write_row = formatter.write_row
    parts = [write_row(row) for row in rows]
    return b"".join((*parts, formatter.end()))
