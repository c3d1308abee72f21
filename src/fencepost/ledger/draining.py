"""Draining: a person asks a node to take no more runs, to finish those that it has, and to leave.

**Promises.** From the transaction of the request on, the node claims nothing: the statement that claims looks at this
column of its row. It does not count as serving either. A node that loses its session before it has noticed the request
takes it over into its next identity.

**Not promised.** That a node of a version before `queue_pauses.KNOWN_SINCE` drains: such a request is refused. There is
no way back: start another node.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import update

from fencepost.core.noted import Noted
from fencepost.errors import InvalidParameters, NoSuchNode
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import said, statements_for
from fencepost.ledger.journal import About, note
from fencepost.ledger.nodes import NodeRow, nodes_within
from fencepost.ledger.queue_pauses import ignores_pauses


def ask_to_drain(database: Database, node: str, *, by: str, reason: str | None = None) -> NodeRow:
    """Ask a living node to drain, by its id, its name or its machine's; a second request has no effect.

    Raise `NoSuchNode` if none lives, and `InvalidParameters` if several have the name, or it is of an older version.
    """

    def work(cursor: Cursor) -> NodeRow:
        found = _living(database, cursor, node)
        if found.drain_asked_at is None:
            _ask(database, cursor, found, by=by)
            detail = {"node": found.id, "name": found.name}
            note(database, cursor, Noted.NODE_DRAINED, About(node=found.id, by=by, reason=reason, detail=detail))
            statements_for(database).notify(cursor)
        return _living(database, cursor, found.id)

    return database.write(work)


def take_over_drain(database: Database, node_id: str, *, former: str, connection: LedgerConnection) -> None:
    """Let a new identity of a process drain if the former one was asked to."""

    def work(cursor: Cursor) -> None:
        table = database.tables.node
        for each in nodes_within(database, cursor, ids=[former]):
            if each.drain_asked_at is not None:
                values = {"drain_asked_at": each.drain_asked_at, "drain_by": each.drain_by}
                change = update(table).where(table.c.id == node_id)
                database.change(cursor, change.values(draining_at=database.dialect.now(), **values))

    connection.write(work)


def _living(database: Database, cursor: Cursor, node: str) -> NodeRow:
    living = [each for each in nodes_within(database, cursor) if each.is_living]
    ways: tuple[Callable[[NodeRow], str], ...] = (
        lambda each: each.id,
        lambda each: each.name,
        lambda each: each.name.partition(":")[0],  # a name is machine:process:random
    )
    found = next((same for way in ways if (same := [each for each in living if way(each) == node])), [])
    if not found:
        raise NoSuchNode(f"there is no living node {node!r}: fencepost nodes --all shows those that left or died")
    if len(found) > 1:
        names = ", ".join(f"{each.name} ({each.id})" for each in found)
        raise InvalidParameters(f"{len(found)} living nodes are called {node!r}: give the id of one of them: {names}")
    if ignores_pauses(found[0]):
        raise InvalidParameters(
            f"node {found[0].name} has version {found[0].version}, which cannot be asked to drain: send SIGTERM to its "
            "process"
        )
    return found[0]


def _ask(database: Database, cursor: Cursor, found: NodeRow, *, by: str) -> None:
    """Write the request. It drains from now on, for all nodes: they know `draining_at` for longer than the request."""
    table, now_us = database.tables.node, database.dialect.now_us(cursor)
    values = {"drain_asked_at": now_us, "drain_by": said(by)}
    if found.draining_at is None:
        values["draining_at"] = now_us
    change = update(table).where(table.c.id == found.id, table.c.left_at.is_(None), table.c.dead_at.is_(None))
    database.change(cursor, change.values(values))
