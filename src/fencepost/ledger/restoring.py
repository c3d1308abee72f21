"""The decisions of a person about a ledger that was restored or copied: it is the same one, or a copy with a new name.

::

    accept    the same ledger; the one that it replaces is gone. The evidence is recorded anew. Due times since the
              dump are skipped, one run per schedule; ids continue after a wide gap; runs that had not ended in the
              dump are held for a person, because it is unknown whether they have run since
    as_copy   another ledger. It gets a new name, its unfinished runs are cancelled, and the schedules that were
              created at run time are paused: a staging system must not do what production does

Both end all logins, and `as_copy` revokes all API tokens: cookies and tokens of production must not open a copy. Both
are noted in the journal, with the person and the reason.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import select, update

from fencepost.core.noted import Noted
from fencepost.core.restored import LEASES, differences
from fencepost.core.retry import HoldForPerson
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.identity import identity
from fencepost.ledger.journal import About, begin, note
from fencepost.ledger.logins import revoke_all
from fencepost.ledger.naming import forget_nameless
from fencepost.ledger.reaping import reap
from fencepost.ledger.schedule_rows import DUES, RUNTIME, ScheduleChange, update_row
from fencepost.ledger.standing import UNKNOWN, every_schedule, pending, skip_through, standing

# Ids have eight bytes. Hardly any ledger assigns this many between two dumps; the caller can pass a wider gap.
ID_GAP = 1_000_000
_WHY_HELD = "restored: unknown whether it has run"
_WHY_CANCELLED = "this ledger is a copy"
_BATCH = 200  # runs per transaction, each with its attempt, key and successor


class Pending(StrEnum):
    """What happens to runs that had not ended in the dump."""

    HOLD = "hold"
    RUN = "run"
    CANCEL = "cancel"


class Restored(NamedTuple):
    """How many schedules had due times skipped, how many runs were decided about, how many schedules were paused."""

    skipped: int
    runs: int
    paused: int = 0


def accept(
    database: Database,
    *,
    by: str,
    reason: str | None,
    runs: Pending = Pending.HOLD,
    id_gap: int = ID_GAP,
    leases: str | None = None,
) -> Restored:
    """Accept this as the same ledger. `leases` is the identity of its lease store, if that is in another database.

    If nothing else has changed, nothing else is done, because the ledger itself has lost nothing.
    """
    identity(database)  # so that there is one
    if leases is not None and _only_leases_differ(database, leases):
        about = About(by=by, reason=reason, detail={"leases": leases})
        return database.write(lambda cursor: _accepted_leases(database, cursor, leases, about))
    connection = database.connect("restored")
    try:
        about = About(by=by, reason=reason, detail={"pending": str(runs)})
        begun, about = _settle_begun(database, connection, runs, Noted.LEDGER_ACCEPTED, about)

        def work(cursor: Cursor) -> Restored:
            _renew(database, cursor, leases)
            return _accepted(database, cursor, runs, id_gap, about)

        done = connection.write(work)
        return done._replace(runs=done.runs + begun)
    finally:
        connection.rest()


def as_copy(database: Database, *, by: str, reason: str | None, leases: str | None = None) -> Restored:
    """Make this another ledger, with a new name."""
    identity(database)  # so that there is one
    connection = database.connect("restored")
    try:
        about = About(by=by, reason=reason)
        begun, about = _settle_begun(database, connection, Pending.CANCEL, Noted.LEDGER_COPIED, about)
        done = connection.write(lambda cursor: _copied(database, cursor, leases, about))
        database.known_identity = database.known_naming = None
        return done._replace(runs=done.runs + begun)
    finally:
        connection.rest()


def _only_leases_differ(database: Database, leases: str) -> bool:
    seen = database.read(lambda cursor: standing(database, cursor))
    return seen.held_why is None and differences(seen.noted or {}, {**seen.present, LEASES: leases}) == (LEASES,)


def _accepted_leases(database: Database, cursor: Cursor, leases: str, about: About) -> Restored:
    _renew(database, cursor, leases)
    note(database, cursor, Noted.LEDGER_ACCEPTED, about)
    return Restored(0, 0)


def _accepted(database: Database, cursor: Cursor, runs: Pending, id_gap: int, about: About) -> Restored:
    now_us = database.dialect.now_us(cursor)
    database.dialect.raise_ids(cursor, (database.dialect.top_id(cursor) or 0) + id_gap)
    _end_former_nodes(database, cursor, now_us)
    skipped = _skip_all(database, cursor, now_us, UNKNOWN)
    settled = _settle_pending(database, cursor, runs, now_us)
    revoke_all(database, cursor, tokens=False)
    note(database, cursor, Noted.LEDGER_ACCEPTED, about)
    return Restored(skipped, settled)


def _end_former_nodes(database: Database, cursor: Cursor, now_us: int) -> None:
    """Note the nodes that were alive in the dump as dead: otherwise work is planned for them until their leases end.

    A node that is alive nevertheless, and has not joined since, finds that out, and joins again.
    """
    node, last = database.tables.node, select(database.tables.identity.c.beat_at)
    [(beat_us,)] = database.rows(cursor, last)
    lives = update(node).where(node.c.left_at.is_(None), node.c.dead_at.is_(None))
    was_there = lives if beat_us is None else lives.where(node.c.started_at <= beat_us)
    database.change(cursor, was_there.values(dead_at=now_us))


def _copied(database: Database, cursor: Cursor, leases: str | None, about: About) -> Restored:
    now_us = database.dialect.now_us(cursor)
    # Rows in databases of effects without a ledger in their name belong to the original.
    former = _renew(database, cursor, leases, id=database.runtime.new_id(), nameless_until=None)
    forget_nameless(database, cursor)
    skipped = _skip_all(database, cursor, now_us, _WHY_CANCELLED)
    settled = _settle_pending(database, cursor, Pending.CANCEL, None)
    paused = _pause_runtime_schedules(database, cursor, now_us, about)
    revoke_all(database, cursor, tokens=True)
    note(database, cursor, Noted.LEDGER_COPIED, about._replace(detail={**(about.detail or {}), "was": former}))
    return Restored(skipped, settled, paused)


def _renew(database: Database, cursor: Cursor, leases: str | None, **values: Any) -> str:
    """Record the evidence anew, and that a person has decided; return the former name."""
    table = database.tables.identity
    [(former, era)] = database.rows(cursor, select(table.c.id, table.c.era).with_for_update())
    present = database.dialect.evidence(cursor) | ({} if leases is None else {LEASES: leases})
    changed = {"evidence": json.dumps(present, sort_keys=True), "era": (era or 0) + 1, "held_why": None, **values}
    database.change(cursor, update(table).values(changed))
    return str(former)


def _skip_all(database: Database, cursor: Cursor, now_us: int, why: str) -> int:
    change = ScheduleChange(database, cursor, DUES)
    rows = [row for row in every_schedule(database, cursor, now_us) if row.planned_through < now_us]
    skipped = [done for row in rows if (done := skip_through(change, row, now_us, why)) is not None]
    for row in skipped:  # only now: what was due since the end of a pause may have run, and must not run again
        change.end_pause(row)
    return len(skipped)


def _settle_pending(database: Database, cursor: Cursor, runs: Pending, now_us: int | None) -> int:
    """Decide about runs that are not running; with `now_us` only about those whose time has come."""
    if runs is Pending.RUN:
        return 0
    table = database.tables.run
    until_us = 2**62 if now_us is None else now_us
    change = update(table).where(pending(database, until_us))
    if runs is Pending.HOLD:
        return database.change(cursor, change.values(state="waiting", waits_for="person", why=_WHY_HELD))
    ended = {"state": "cancelled", "waits_for": None, "ended_at": database.dialect.now(), "why": _WHY_CANCELLED}
    held = update(table).where(table.c.state == "waiting", table.c.waits_for == "person")
    return database.change(cursor, change.values(ended)) + database.change(cursor, held.values(ended))


def _settle_begun(
    database: Database, connection: LedgerConnection, runs: Pending, what: Noted, about: About
) -> tuple[int, About]:
    """Decide about runs that were running in the dump: they are lost, whatever node had them.

    If there are any, the audit has an entry before that: they take transactions of their own. Return how many there
    were, and what the entry of the whole act is about.
    """
    c = database.tables.run.c
    running = select(c.id).where(c.state == "running").limit(1)
    if runs is Pending.RUN or not connection.read(lambda cursor: database.rows(cursor, running)):
        return 0, about  # with RUN they are reaped with their nodes, and follow on_crash
    begun = begin(database, what, about)
    if runs is Pending.CANCEL:
        stopped = update(database.tables.run).where(c.state == "running", c.cancel_requested_at.is_(None))
        connection.write(
            lambda cursor: database.change(cursor, stopped.values(cancel_requested_at=database.dialect.now()))
        )
    query = select(c.node).where(c.state == "running", c.node.is_not(None)).distinct()
    nodes = [row[0] for row in connection.read(lambda cursor: database.rows(cursor, query))]
    about = about._replace(detail={**(about.detail or {}), "begun": begun})
    return sum(_reap_all(connection, node) for node in nodes), about


def _reap_all(connection: LedgerConnection, node: str) -> int:
    count = 0
    while reaped := reap(connection, node=node, limit=_BATCH, decide=_held, counts=False):
        count += len(reaped)
    return count


def _held(*_: object) -> HoldForPerson:
    return HoldForPerson(_WHY_HELD, code="restored")


def _pause_runtime_schedules(database: Database, cursor: Cursor, now_us: int, about: About) -> int:
    made = [row for row in every_schedule(database, cursor, now_us) if row.origin == RUNTIME]
    table = database.tables.schedule
    database.change(cursor, update(table).where(table.c.origin == RUNTIME).values(paused_until=None))
    for row in made:
        values = {"paused_at": now_us, "paused_by": about.by, "pause_reason": _WHY_CANCELLED, "next_due_at": None}
        update_row(database, cursor, row.id, values | {"updated_at": now_us})
        note(
            database,
            cursor,
            Noted.SCHEDULE_PAUSED,
            About(job=row.job, schedule=row.id, by=about.by, reason=_WHY_CANCELLED),
        )
    return len(made)
