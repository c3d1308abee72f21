"""Sequences that are behind their tables, on PostgreSQL: the next ids they would generate already exist.

Logical replication, an upgrade with it, and a restore of data alone copy rows, but not the sequences that generated
their ids. Then every insertion fails until the sequence has passed the highest id. Advancing it is always safe: ids
must be new, but need not be consecutive.

The other databases count from the highest id in the table. On SQLite that id is generated again if it is pruned before
the next one is generated, so its counter is also advanced when a node joins.
"""

from __future__ import annotations

from typing import NamedTuple


class LaggingSequence(NamedTuple):
    """A table whose sequence is behind its highest id."""

    table: str
    highest_id: int
    last_value: int

    def __str__(self) -> str:
        return (
            f"the ids of {self.table} go up to {self.highest_id}, but their sequence is at {self.last_value}, as "
            "after a restore of data alone"
        )


def look_sql(table: str) -> str:
    """Return the query for a table's highest id and the value of its sequence: NULL without the privilege to read it.

    `table` is a checked name. The sequence is read last, so that rows inserted meanwhile do not make it look behind.
    """
    may_read = "has_sequence_privilege(s.name, 'USAGE') OR has_sequence_privilege(s.name, 'SELECT')"
    last = f"CASE WHEN {may_read} THEN coalesce(pg_sequence_last_value(s.name), 0) END"
    return (
        f"SELECT t.highest, {last} FROM (SELECT coalesce(max(id), 0) AS highest FROM {table}) t, "  # noqa: S608
        f"(SELECT {_name(table)}::regclass AS name) s"
    )


def behind(table: str, row: tuple[int, int | None]) -> LaggingSequence | None:
    """Interpret the result of `look_sql`; None if the sequence is not behind, or cannot be read."""
    highest, last = row
    return None if last is None or last >= highest else LaggingSequence(table, highest, last)


def lock_sql(table: str) -> str:
    """Return the statement that prevents insertions until the transaction ends."""
    return f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"


def advance_sql(table: str) -> str:
    """Return the statement that advances the sequence of a table to its highest id."""
    return f"SELECT setval({_name(table)}, (SELECT max(id) FROM {table}))"  # noqa: S608


def advice(table: str) -> str:
    """Return what the owner of the tables has to do."""
    return f"let the owner of the tables run: {advance_sql(table)}"


def _name(table: str) -> str:
    return f"pg_get_serial_sequence('{table}', 'id')"
