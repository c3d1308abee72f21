"""Nodes: which are running, which left, and which were found dead.

This table is descriptive. A node is alive as long as its session, a lease, is; the rows here follow from that.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, case, func, or_, select, update

from fencepost.core.grants import Grant, Session
from fencepost.core.names import NODE_LEASE
from fencepost.core.noted import Noted
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import statements_for
from fencepost.ledger.journal import About, note

_IDS_PER_QUERY = 500  # bounds the length of a statement


class NewNode(NamedTuple):
    """A node that joins. `grant_id` and `token` belong to its session."""

    id: str
    name: str
    grant_id: str
    token: int
    generation: int
    version: str
    slots: int
    queues: tuple[str, ...]
    jobs: tuple[str, ...]
    fingerprint: str | None = None  # a hash of its declarations


class NodeRow(NamedTuple):
    """A node as stored in the ledger. It counts as living if it has neither left nor been noted as dead."""

    id: str
    name: str
    grant_id: str
    token: int
    generation: int
    version: str
    slots: int
    queues: tuple[str, ...]
    jobs: tuple[str, ...]
    started_at: int
    left_at: int | None
    dead_at: int | None
    dead_why: str | None
    longest_pause_us: int | None
    pauses_at: int | None
    draining_at: int | None
    drain_asked_at: int | None = None
    drain_by: str | None = None

    @property
    def is_living(self) -> bool:
        """Whether neither its departure nor its death is noted."""
        return self.left_at is None and self.dead_at is None

    @property
    def grant(self) -> Grant:
        """Its session as the lease store knows it; only name and grant id are compared."""
        return Grant(NODE_LEASE + self.id, Session("", self.name, 0.0), self.grant_id, self.token)


def join(database: Database, node: NewNode, *, connection: LedgerConnection | None = None) -> None:
    """Add a node. Idempotent: an id is used for one start of one process."""
    values = node._asdict() | {"queues": json.dumps(node.queues), "jobs": json.dumps(node.jobs)}

    def work(cursor: Cursor) -> None:
        row = values | {"started_at": database.dialect.now()}
        database.dialect.insert_row(cursor, database.tables.node, row)

    (connection or database).write(work)


def drain(database: Database, node_id: str, *, connection: LedgerConnection | None = None) -> None:
    """Note that a node claims no more runs and waits for those that it has."""
    table = database.tables.node
    living = and_(table.c.id == node_id, table.c.left_at.is_(None), table.c.dead_at.is_(None))

    def work(cursor: Cursor) -> None:
        since = func.coalesce(table.c.draining_at, database.dialect.now())
        database.change(cursor, update(table).where(living).values(draining_at=since))

    (connection or database).write(work)


def serve(database: Database, node_id: str, jobs: Sequence[str], *, connection: LedgerConnection | None = None) -> None:
    """Update the jobs that a node can run, if they changed after it joined."""
    table = database.tables.node

    def work(cursor: Cursor) -> None:
        database.change(cursor, update(table).where(table.c.id == node_id).values(jobs=json.dumps(list(jobs))))

    (connection or database).write(work)


def leave(database: Database, node_id: str, *, connection: LedgerConnection | None = None) -> bool:
    """Note that a node stopped in an orderly way; return False if it had already left or been noted as dead."""
    table = database.tables.node
    living = and_(table.c.id == node_id, table.c.left_at.is_(None), table.c.dead_at.is_(None))

    def work(cursor: Cursor) -> bool:
        return database.change(cursor, update(table).where(living).values(left_at=database.dialect.now())) == 1

    return (connection or database).write(work)


def died(database: Database, cursor: Cursor, node_id: str, why: str) -> bool:
    """Note in the transaction of `cursor` that a node is dead; return False if its end was noted before."""
    table = database.tables.node
    living = and_(table.c.id == node_id, table.c.dead_at.is_(None), table.c.left_at.is_(None))
    change = update(table).where(living).values(dead_at=database.dialect.now(), dead_why=why)
    if database.change(cursor, change) == 0:
        return False
    note(database, cursor, Noted.NODE_DIED, About(node=node_id, reason=why))
    return True


def note_pause(
    database: Database, node_id: str, longest_us: int, *, connection: LedgerConnection | None = None
) -> None:
    """Store the longest time for which a node's process has been stalled. A shorter time leaves the stored one."""
    table = database.tables.node
    longest = case((table.c.longest_pause_us > longest_us, table.c.longest_pause_us), else_=longest_us)

    def work(cursor: Cursor) -> None:
        values = {"longest_pause_us": longest, "pauses_at": database.dialect.now()}
        database.change(cursor, update(table).where(table.c.id == node_id).values(values))

    (connection or database).write(work)


_LIVING = f"""
SELECT {", ".join(f"n.{name}" for name in NodeRow._fields)} FROM {{node}} n
WHERE n.left_at IS NULL AND n.dead_at IS NULL ORDER BY n.started_at, n.id
"""  # noqa: S608 - fixed names only


def living_nodes(database: Database, connection: LedgerConnection | None = None) -> list[NodeRow]:
    """Return the nodes whose end is not noted, oldest first."""
    statements = statements_for(database)
    return (connection or database).read(lambda cursor: [_node(row) for row in statements.rows(cursor, _LIVING)])


def nodes(
    database: Database,
    *,
    limit: int = 100,
    jobs: Collection[str] | None = None,
    connection: LedgerConnection | None = None,
) -> list[NodeRow]:
    """Return nodes, the living first, then those that ended last; with `jobs` those that have one of these."""
    table = database.tables.node
    ended = func.coalesce(table.c.dead_at, table.c.left_at)
    is_ended = case((ended.is_(None), 0), else_=1)
    query = _all(database).order_by(is_ended, ended.desc(), table.c.started_at.desc()).limit(limit)
    if jobs is not None:
        if not jobs:
            return []
        # The names are a list in JSON, each in quotes. REPLACE compares byte by byte on every database; LIKE does not.
        quoted = (json.dumps(job) for job in sorted(jobs))
        query = query.where(or_(*(func.replace(table.c.jobs, each, "") != table.c.jobs for each in quoted)))
    return _read(database, query, connection)


def nodes_within(database: Database, cursor: Cursor, *, ids: Collection[str] | None = None) -> list[NodeRow]:
    """Return the nodes whose end is not noted, or those with these ids, in the transaction of `cursor`."""
    c = database.tables.node.c
    wanted = and_(c.left_at.is_(None), c.dead_at.is_(None)) if ids is None else c.id.in_(sorted(ids))
    return [_node(row) for row in database.rows(cursor, _all(database).where(wanted).order_by(c.started_at, c.id))]


def node_names(database: Database, ids: Collection[str]) -> dict[str, str]:
    """Return the names of nodes by id. Ids without a row are left out."""
    c, wanted = database.tables.node.c, sorted(ids)

    def ask(cursor: Cursor) -> dict[str, str]:
        found: dict[str, str] = {}
        for start in range(0, len(wanted), _IDS_PER_QUERY):
            query = select(c.id, c.name).where(c.id.in_(wanted[start : start + _IDS_PER_QUERY]))
            found |= {row[0]: row[1] for row in database.rows(cursor, query)}
        return found

    return database.read(ask) if wanted else {}


def _all(database: Database) -> Select[Any]:
    return select(*(database.tables.node.c[name] for name in NodeRow._fields))


def _read(database: Database, query: Select[Any], connection: LedgerConnection | None) -> list[NodeRow]:
    return (connection or database).read(lambda cursor: [_node(row) for row in database.rows(cursor, query)])


def _node(row: tuple[Any, ...]) -> NodeRow:
    node = NodeRow(*row)
    return node._replace(queues=_names(str(node.queues)), jobs=_names(str(node.jobs)))


@lru_cache(maxsize=256)
def _names(text: str) -> tuple[str, ...]:
    """Parse a list of names. Nodes of one deploy have the same, and each look at them reads it again."""
    return tuple(json.loads(text))
