"""What operators read of leases in a SQL database: pages of names, one name, ended grants, and sessions of nodes.

The statements run on any connection to the database that holds the tables: that of the store, or that of a ledger in
the same database. None of them changes or locks a row, so no renewal waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.core.grants import Grant, LeaseRecord, PastGrant, SessionSight
from fencepost.leases.stores.sql.backend import Row
from fencepost.leases.stores.sql.endings import chunks
from fencepost.leases.stores.sql.looking import LeaseLook
from fencepost.leases.stores.sql.statements import Statements, marks

Rows = Callable[[str, Sequence[Any]], list[Row]]
"""Executes a statement and returns its rows."""


@dataclass(frozen=True, slots=True)
class LeaseReading:
    """Reads by the statements of one set of tables."""

    sql: Statements

    def lease(self, rows: Rows, name: str) -> LeaseRecord | None:
        """Return the record of a name, or None if it was never held."""
        found = rows(self.sql.look, (name,))
        return LeaseLook.of(found[0]).record() if found else None

    def page(self, rows: Rows, *, after: str, limit: int, is_held: bool) -> list[LeaseRecord]:
        """Return up to `limit` records with names after `after`; with `is_held`, of those that a session has."""
        found = rows(self.sql.page_of_held if is_held else self.sql.page, (after, limit))
        return [LeaseLook.of(row).record() for row in found]

    def history(self, rows: Rows, name: str | None, *, limit: int) -> list[PastGrant]:
        """Return ended grants, newest first."""
        sql, parameters = (self.sql.history, ()) if name is None else (self.sql.history_of, (name,))
        return [PastGrant(_text(row[0]), *row[1:]) for row in rows(sql, (*parameters, limit))]

    def sessions(self, rows: Rows, grants: Collection[Grant]) -> dict[str, tuple[str, int, SessionSight]]:
        """Return, by grant id, the id of the session that has the grant, its mark, and how it looks.

        A grant that no session has is left out.
        """
        there = {}
        for chunk in chunks([grant.name for grant in grants]):
            for grant_id, session_id, expires_at, ttl_us, now_us in rows(
                f"{self.sql.watch}{marks(len(chunk))}", tuple(chunk)
            ):
                there[grant_id] = (
                    session_id,
                    expires_at,
                    SessionSight(expires_at - now_us, ttl_us, expires_at - ttl_us),
                )
        return there


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
