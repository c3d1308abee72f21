"""Acknowledgements: a person knows of something that needs one, until a time or until it is something else.

A row names one occurrence (`fencepost.core.concerns`); what is shown as one may stand for many, and has a row for
each. **Promises.** Each change is in the audit, in its transaction.
Rows whose occurrence is gone are removed (`prune_acknowledged`); rows of kinds that this version does not know stay.
Renames that were begun are stored here, too, as rows of a kind of their own (`begun_renames`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import delete, select, update

from fencepost.core.concerns import HASHED, ConcernKind, Occurrence, parsed_id
from fencepost.core.noted import Noted
from fencepost.core.states import TERMINAL
from fencepost.core.tick import spelled_us
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import said
from fencepost.ledger.journal import About, note

MOST_READ = 5000  # people write them one by one
_DAY_US = 86_400_000_000
_KEPT_US = 30 * _DAY_US  # of what no row tells whether it is over


_OF_ONE_RUN = (ConcernKind.HELD, ConcernKind.NEAR_TIMEOUT)  # whose subject is the run


class Acknowledgement(NamedTuple):
    """A person's word that something is known. `until`: when it needs a person again, None if not by itself."""

    what: str
    id: str
    by: str
    at: int
    until: int | None = None
    note: str | None = None


def acknowledged(database: Database) -> list[Acknowledgement]:
    """Return all acknowledgements, also those whose time is over."""
    return database.read(lambda cursor: _rows(database, cursor))


def acknowledge(
    database: Database,
    what: str,
    id_: str,
    *,
    until_us: int | None,
    about: About,
    text: str | None,
    also: Sequence[str] = (),
) -> Acknowledgement:
    """Record that `about.by` knows of an occurrence, and of those that it also stood for; return the row of the first.

    What was acknowledged before is replaced.
    """

    def work(cursor: Cursor) -> Acknowledgement:
        now_us = database.dialect.now_us(cursor)
        row = Acknowledgement(what, id_, str(said(about.by)), now_us, until_us, said(text))
        for each in sorted({id_, *also}):  # in one order, so that two who write the same do not wait for each other
            _put(database, cursor, row._replace(id=each))
        detail: dict[str, Any] = {"what": what, "id": id_} | (
            {} if until_us is None else {"until": spelled_us(until_us)}
        )
        if also:
            detail["also"] = len(also)
        note(database, cursor, Noted.ACKNOWLEDGED, about._replace(reason=text, detail=detail))
        return row

    return database.write(work)


def unacknowledge(database: Database, what: str, id_: str, *, about: About, also: Sequence[str] = ()) -> bool:
    """Remove an acknowledgement, and those of what it also stood for.

    Return False if there was none, and nothing is recorded then.
    """
    table = database.tables.operating["acknowledged"]

    def work(cursor: Cursor) -> bool:
        removed = database.change(cursor, delete(table).where(table.c.what == what, table.c.id.in_([id_, *also])))
        if removed:
            note(database, cursor, Noted.UNACKNOWLEDGED, about._replace(detail={"what": what, "id": id_}))
        return removed > 0

    return database.write(work)


def prune_acknowledged(database: Database, place: LedgerConnection | Database, now_us: int, limit: int) -> int:
    """Remove acknowledgements of what is gone, and those that ended more than a day ago; return how many."""
    table = database.tables.operating["acknowledged"]

    def work(cursor: Cursor) -> int:
        rows = _rows(database, cursor)
        gone = [row for row in rows if row.until is not None and row.until < now_us - _DAY_US]
        gone += _gone(database, cursor, [row for row in rows if row not in gone], now_us)
        for row in gone[:limit]:
            same = (table.c.what == row.what, table.c.id == row.id, table.c.at == row.at)
            database.change(cursor, delete(table).where(*same))
        return len(gone[:limit])

    found = place.read(lambda cursor: database.rows(cursor, select(table.c.what).limit(1)))
    return place.write(work) if found else 0


def _put(database: Database, cursor: Cursor, row: Acknowledgement) -> None:
    table = database.tables.operating["acknowledged"]
    values = {name: value for name, value in row._asdict().items() if name not in ("what", "id")}
    change = update(table).where(table.c.what == row.what, table.c.id == row.id).values(values)
    if database.change(cursor, change) == 0 and not database.dialect.insert_row(cursor, table, row._asdict()):
        database.change(cursor, change)  # another one was first


def _rows(database: Database, cursor: Cursor) -> list[Acknowledgement]:
    c = database.tables.operating["acknowledged"].c
    query = select(*(c[name] for name in Acknowledgement._fields)).order_by(c.at.desc()).limit(MOST_READ)
    return [Acknowledgement(*row) for row in database.rows(cursor, query)]


Named = tuple[Acknowledgement, str, Occurrence]


def _gone(database: Database, cursor: Cursor, rows: list[Acknowledgement], now_us: int) -> list[Acknowledgement]:
    named = [(row, *parsed) for row in rows if (parsed := parsed_id(row.id)) is not None]
    named = [each for each in named if each[0].what not in _OF_ONE_RUN or each[1].isdigit()]
    tables = database.tables
    run, schedule, node, line = tables.run.c, tables.schedule.c, tables.node.c, tables.journal.c
    pause = tables.operating["pause"].c
    times = (schedule.id, schedule.next_due_at, schedule.no_node_since, schedule.paused_at)

    def those(*kinds: ConcernKind) -> list[Named]:
        return [each for each in named if each[0].what in kinds and HASHED not in each[1]]

    lasting = those(ConcernKind.GIVEN_UP, ConcernKind.SLA_MISSED)
    live = those(ConcernKind.HELD, ConcernKind.LATE, ConcernKind.NEAR_TIMEOUT)
    run_of = {each: int(each[1]) if each[0].what in _OF_ONE_RUN else each[2].number for each in lasting + live}
    of_nodes = those(ConcernKind.NODE_DIED, ConcernKind.NODE_LATE)
    noted = those(ConcernKind.REFUSED_WRITE, ConcernKind.CLOCK_LEAPT)
    paused, drains = those(ConcernKind.PAUSED), those(ConcernKind.NODE_DRAINS)
    planned, served = those(ConcernKind.NOT_PLANNED), those(ConcernKind.JOB_WITHOUT_NODE)
    resting = those(ConcernKind.SCHEDULE_PAUSED)
    runs = _known(database, cursor, (run.id, run.state), set(run_of.values()))
    schedules = _known(database, cursor, times, {each[1] for each in planned + served + resting})
    nodes = _known(database, cursor, (node.id, node.left_at, node.dead_at), {each[1] for each in of_nodes + drains})
    pauses = _known(database, cursor, (pause.queue, pause.paused_at), {each[1] for each in paused})
    lines = _known(database, cursor, (line.id,), {each[2].number for each in noted})
    gone = [each for each in lasting if run_of[each] not in runs]
    gone += [each for each in live if runs.get(run_of[each], (0, "succeeded"))[1] in TERMINAL]
    gone += [each for each in planned if schedules.get(each[1], (0, 0, 0, 0))[1] != each[2].since_us]
    gone += [each for each in served if schedules.get(each[1], (0, 0, 0, 0))[2] != each[2].since_us]
    gone += [each for each in resting if schedules.get(each[1], (0, 0, 0, 0))[3] != each[2].since_us]
    gone += [each for each in of_nodes if each[1] not in nodes]
    gone += [each for each in drains if nodes.get(each[1], (0, 0, 0))[1:] != (None, None)]
    gone += [each for each in paused if pauses.get(each[1], (0, 0))[1] != each[2].since_us]
    gone += [each for each in noted if each[2].number not in lines]
    timeless = those(ConcernKind.NO_NODE, ConcernKind.LEDGER_HELD) + [each for each in named if HASHED in each[1]]
    gone += [each for each in timeless if each[0].at < now_us - _KEPT_US]
    return [each[0] for each in gone]


def _known(
    database: Database, cursor: Cursor, columns: tuple[Any, ...], ids: Collection[Any]
) -> dict[Any, tuple[Any, ...]]:
    """Return the rows of those ids that are there, by id."""
    if not ids:
        return {}
    query = select(*columns).where(columns[0].in_(sorted(ids)))
    return {row[0]: tuple(row) for row in database.rows(cursor, query)}
