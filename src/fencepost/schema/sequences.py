"""Sequences that stand behind their tables, on PostgreSQL: the next ids they would give are there already.

Logical replication, an upgrade by it, and a restore of data alone copy rows without the sequences that gave them their
ids. Then every insertion fails, until the sequence has passed the highest id. To advance it is always safe: ids have
to be new, and need not be next to each other.

The databases beside PostgreSQL count from the highest id in the table, whoever wrote it. On SQLite that id is given
again if it is pruned before the next one is given; so its count, too, is advanced when a node joins.
"""

from __future__ import annotations

from typing import NamedTuple


class LaggingSequence(NamedTuple):
    """A table whose sequence stands behind its highest id."""

    table: str
    highest_id: int
    last_value: int

    def __str__(self) -> str:
        return (
            f"the ids of {self.table} go up to {self.highest_id}, but their sequence stands at {self.last_value}, as "
            "after a restore of data alone"
        )


def look_sql(table: str) -> str:
    """Return the query of a table's highest id, and of where its sequence stands: NULL if we may not know.

    `table` is a checked name. The sequence is read last: what is inserted meanwhile must not look as if it was behind.
    """
    may_read = "has_sequence_privilege(s.name, 'USAGE') OR has_sequence_privilege(s.name, 'SELECT')"
    last = f"CASE WHEN {may_read} THEN coalesce(pg_sequence_last_value(s.name), 0) END"
    return (
        f"SELECT t.highest, {last} FROM (SELECT coalesce(max(id), 0) AS highest FROM {table}) t, "  # noqa: S608
        f"(SELECT {_name(table)}::regclass AS name) s"
    )


def behind(table: str, row: tuple[int, int | None]) -> LaggingSequence | None:
    """Read the answer to `look_sql`; None if all is well, or if we may not know."""
    highest, last = row
    return None if last is None or last >= highest else LaggingSequence(table, highest, last)


def lock_sql(table: str) -> str:
    """Return what keeps others from inserting until the transaction ends."""
    return f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"


def advance_sql(table: str) -> str:
    """Return what advances the sequence of a table to its highest id."""
    return f"SELECT setval({_name(table)}, (SELECT max(id) FROM {table}))"  # noqa: S608


def advice(table: str) -> str:
    """Say what to do, to somebody who may."""
    return f"let the owner of the tables run: {advance_sql(table)}"


def _name(table: str) -> str:
    return f"pg_get_serial_sequence('{table}', 'id')"
