"""Steps that remove something: which nodes still need it.

A contracting step has a later oldest reader than the step before it. A living node that knows less could not continue
to work. Only nodes are checked: a program that only enqueues, or only uses fences, is not recorded, and the operator
who contracts has to stop it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fencepost.errors import LedgerRefused
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.schema.revisions import known_by, known_of_effects_by, number, oldest_reader

_SHOWN = 5  # nodes named in the message


class OlderNode(NamedTuple):
    """A living node whose version is too old for a step."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} (version {self.version.partition('/')[0]})"


def older_nodes(database: Database, revision: str, *, of_effects: bool = False) -> list[OlderNode]:
    """Return the living nodes of a ledger that cannot work with tables of `revision`."""
    oldest = oldest_reader(revision)
    knows = known_of_effects_by if of_effects else known_by

    # Handwritten SQL: only columns that the table has always had are certain to exist.
    def work(cursor: Cursor) -> list[OlderNode]:
        cursor.execute(
            f"SELECT name, version FROM {database.tables.name('node')} "  # noqa: S608 - a checked identifier
            "WHERE left_at IS NULL AND dead_at IS NULL ORDER BY name"
        )
        return [node for row in cursor.fetchall() if knows((node := OlderNode(*row)).version) < oldest]

    return database.read(work)


def refuse_while_needed(ledgers: Iterable[Database], step: str, *, of_effects: bool) -> None:
    """Raise if a living node of one of `ledgers` needs what `step` removes."""
    found = [node for ledger in ledgers for node in older_nodes(ledger, step, of_effects=of_effects)]
    if found:
        raise LedgerRefused(
            f"step {number(step):04} removes what {_listed(found)} still uses: deploy the present version there, "
            "or stop it, then run this command again. If a node has crashed, another node notes it as dead within its "
            "ttl"
        )


def _listed(nodes: list[OlderNode]) -> str:
    shown = ", ".join(map(str, nodes[:_SHOWN]))
    more = f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
    return f"node {shown}{more}" if len(nodes) == 1 else f"each of the nodes {shown}{more}"
