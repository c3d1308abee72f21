"""Steps that take something away: which nodes still need it.

A step that contracts has an oldest reader that is later than that of the step before. A living node that knows less
could not go on working. Nodes are all that can be seen: a program that only enqueues, or only uses fences, is on no
record, and has to be stopped by whoever contracts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fencepost.errors import LedgerRefused
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.schema.revisions import known_by, known_of_effects_by, number, oldest_reader

_SHOWN = 5


class OlderNode(NamedTuple):
    """A living node that knows too little."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} (version {self.version.partition('/')[0]})"


def older_nodes(database: Database, revision: str, *, of_effects: bool = False) -> list[OlderNode]:
    """Return the living nodes of a ledger that cannot work with tables of `revision`."""
    oldest = oldest_reader(revision)
    knows = known_of_effects_by if of_effects else known_by

    # Written by hand: of the tables only what they always had is certain to be there.
    def work(cursor: Cursor) -> list[OlderNode]:
        cursor.execute(
            f"SELECT name, version FROM {database.tables.name('node')} "  # noqa: S608 - a checked identifier
            "WHERE left_at IS NULL AND dead_at IS NULL ORDER BY name"
        )
        return [node for row in cursor.fetchall() if knows((node := OlderNode(*row)).version) < oldest]

    return database.read(work)


def refuse_while_needed(ledgers: Iterable[Database], step: str, *, of_effects: bool) -> None:
    """Raise if a living node of one of `ledgers` needs what `step` takes away."""
    found = [node for ledger in ledgers for node in older_nodes(ledger, step, of_effects=of_effects)]
    if found:
        raise LedgerRefused(
            f"step {number(step):04} takes away what {_listed(found)} still uses: deploy the present version there, "
            "or stop it, then run this command again. A node that is gone without having left is noted as dead by any "
            "other node, within its ttl"
        )


def _listed(nodes: list[OlderNode]) -> str:
    shown = ", ".join(map(str, nodes[:_SHOWN]))
    more = f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
    return f"node {shown}{more}" if len(nodes) == 1 else f"each of the nodes {shown}{more}"
