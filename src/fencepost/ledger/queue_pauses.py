"""Pauses of a queue, or of everything: nodes claim nothing from it until it is resumed, or until its end.

**Promises.** Every statement that starts runs compares the pauses with the ledger's clock (`{unpaused:…}` in
`dialects.statements`). So no run is claimed by a claim that begins after the pause was recorded, on any node; only a
claim that is under way at that moment may still take runs. What is queued stays queued, in its order, and nothing else
changes: runs that execute go on, and schedules are planned. A pause ends at its end even if no node lives then; a node
removes the row afterwards, and notes it.

**Not promised.** That nodes of versions before `KNOWN_SINCE` pause: they do not know the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import Select, Table, delete, select, update

from fencepost.core.noted import Noted
from fencepost.core.tick import spelled_us
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import said, statements_for
from fencepost.ledger.journal import About, note
from fencepost.ledger.nodes import NodeRow
from fencepost.schema.revisions import known_by

EVERYTHING = ""
"""The queue of a pause of everything. No queue can have this name."""
KNOWN_SINCE = 5  # the migration step that introduced the table


class QueuePause(NamedTuple):
    """A pause; `queue` is `EVERYTHING` or a queue, `until` its end, if it has one."""

    queue: str
    paused_at: int
    until: int | None
    by: str
    reason: str | None

    def concerns(self, queue: str) -> bool:
        """Whether runs of this queue wait for it."""
        return self.queue in (EVERYTHING, queue)

    def lasts_at(self, now_us: int) -> bool:
        """Whether it has not ended by itself."""
        return self.until is None or self.until > now_us

    def __str__(self) -> str:
        what = "everything has" if self.queue == EVERYTHING else f"the queue {self.queue!r} has"
        until = "" if self.until is None else f", until {spelled_us(self.until)}"
        since = f"{what} been paused since {spelled_us(self.paused_at)}"
        return f"{since} by {self.by}{until}: {self.reason or 'no reason given'}"


PauseCheck = Callable[[QueuePause | None], None]
"""Looks at the pause that is there inside of the act's own transaction, and raises if the act is not to be done."""


def any_pause(_: QueuePause | None) -> None:
    """Allow the act whatever is there."""


_LASTING = """
SELECT z.queue, z.paused_at, z.until, z.{by}, z.reason FROM {pause} z WHERE z.until IS NULL OR z.until > {clock}
ORDER BY z.queue
"""


def queue_pauses(database: Database, connection: LedgerConnection | None = None) -> list[QueuePause]:
    """Return the pauses that last, that of everything first."""
    statements = statements_for(database)
    found = (connection or database).read(lambda cursor: statements.rows(cursor, _LASTING, *statements.clock()))
    return [QueuePause(*row) for row in found]


def pause_of(database: Database, queue: str) -> QueuePause | None:
    """Return the pause that runs of this queue wait for: that of everything, else that of the queue, or None."""
    return next((each for each in queue_pauses(database) if each.concerns(queue)), None)


def pause_queue(
    database: Database,
    queue: str,
    *,
    by: str,
    reason: str,
    until_us: int | None = None,
    check: PauseCheck = any_pause,
) -> QueuePause:
    """Pause a queue, or `EVERYTHING`. A pause that is there stays, with the new end and reason."""

    def work(cursor: Cursor) -> QueuePause:
        table = _table(database)
        while True:
            now_us = database.dialect.now_us(cursor)
            there = _lasting(database, cursor, queue, now_us)
            check(there)
            new = QueuePause(queue, now_us if there is None else there.paused_at, until_us, said(by), said(reason))
            if there == new:
                return new
            if there is not None:
                database.change(cursor, update(table).where(table.c.queue == queue).values(new._asdict()))
                break
            if database.dialect.insert_row(cursor, table, new._asdict()):
                break
            # Another one was first. A row that was not there could not be locked: look at the one that is there now.
        _note(database, cursor, queue, is_paused=True, by=by, reason=reason, until_us=until_us)
        return new

    return database.write(work)


def resume_queue(
    database: Database, queue: str, *, by: str, reason: str | None = None, check: PauseCheck = any_pause
) -> QueuePause | None:
    """End the pause of a queue, or of `EVERYTHING`; return it, or None if there was none."""

    def work(cursor: Cursor) -> QueuePause | None:
        there = _lasting(database, cursor, queue, database.dialect.now_us(cursor))
        check(there)
        if there is not None:
            _remove(database, cursor, queue)
            _note(database, cursor, queue, is_paused=False, by=by, reason=reason)
        return there

    return database.write(work)


def end_queue_pauses(
    database: Database,
    *,
    is_believed: Callable[[int], bool] = lambda _: True,
    connection: LedgerConnection | None = None,
) -> int | None:
    """Remove the pauses that have ended by themselves, and note that; return the next end, None if there is none.

    Claims need none of it: this keeps the journal complete. Nothing is removed if the ledger's time is not believed.
    """
    use = connection or database
    query = _all(database).where(_table(database).c.until.is_not(None))
    now_us, rows = use.read(lambda cursor: (database.dialect.now_us(cursor), database.rows(cursor, query)))
    found = [QueuePause(*row) for row in rows]
    over = [each for each in found if not each.lasts_at(now_us)]
    if over and is_believed(now_us):
        for each in over:
            use.write(lambda cursor, queue=each.queue: _end(database, cursor, queue))  # type: ignore[misc]
    return min((each.until for each in found if each.until is not None and each.lasts_at(now_us)), default=None)


def ignores_pauses(node: NodeRow) -> bool:
    """Whether a node is of a version that does not know pauses, nor requests to drain."""
    return known_by(node.version) < KNOWN_SINCE


def _end(database: Database, cursor: Cursor, queue: str) -> None:
    """Remove a pause that has ended, unless somebody has begun another one meanwhile."""
    there = _locked(database, cursor, queue)
    if there is not None and not there.lasts_at(database.dialect.now_us(cursor)):
        _remove(database, cursor, queue)
        _note(database, cursor, queue, is_paused=False, by=None, reason=None, until_us=there.until)


def _lasting(database: Database, cursor: Cursor, queue: str, now_us: int) -> QueuePause | None:
    """Lock the row of a queue, and return its pause if that lasts; one that has ended is removed first."""
    _end(database, cursor, queue)
    there = _locked(database, cursor, queue)
    return there if there is not None and there.lasts_at(now_us) else None


def _locked(database: Database, cursor: Cursor, queue: str) -> QueuePause | None:
    query = _all(database).where(_table(database).c.queue == queue).with_for_update()
    found = database.rows(cursor, query)
    return QueuePause(*found[0]) if found else None


def _table(database: Database) -> Table:
    return database.tables.operating["pause"]


def _all(database: Database) -> Select[tuple[object, ...]]:
    return select(*(_table(database).c[name] for name in QueuePause._fields))


def _remove(database: Database, cursor: Cursor, queue: str) -> None:
    table = _table(database)
    database.change(cursor, delete(table).where(table.c.queue == queue))


def _note(
    database: Database,
    cursor: Cursor,
    queue: str,
    *,
    is_paused: bool,
    by: str | None,
    reason: str | None,
    until_us: int | None = None,
) -> None:
    """Note it in the journal and in the audit, and wake the nodes."""
    of_all, of_one = (Noted.ALL_PAUSED, Noted.QUEUE_PAUSED) if is_paused else (Noted.ALL_RESUMED, Noted.QUEUE_RESUMED)
    named = {} if queue == EVERYTHING else {"queue": queue}
    detail = named | ({} if until_us is None else {"until": spelled_us(until_us)})
    what = of_all if queue == EVERYTHING else of_one
    note(database, cursor, what, About(by=by, reason=reason, detail=detail or None))
    statements_for(database).notify(cursor)
