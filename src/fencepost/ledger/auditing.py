"""The audit in the ledger: what people did, in a chain of hashes (`fencepost.core.audit`).

Every act of a person is noted in the journal, and `journal.note` records it here, so no act can be missed. Adding
entries locks the single row of the head, which gives them one order and keeps the chain from forking. This is the last
step of a transaction, so the row is locked only while that commits.

**Promises.** An entry commits together with the act that it describes, or neither does. An act of several transactions
has an entry with the outcome ``begun`` before the first of them, unless the first one has the entry of the act.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import LargeBinary, Select, String, cast, delete, func, insert, or_, select, update

from fencepost.core.audit import COPIED, PRUNED, ChainEnd, ChainRow, chain_hash, copied_from, entry_text
from fencepost.core.rights import Caller
from fencepost.errors import AuditHeadMissing
from fencepost.ledger.answers import note_act
from fencepost.ledger.connection import last_of
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import clean, said, said_json
from fencepost.ledger.identity import identity_within

LONGEST_WHO = 160  # the width of the column
DONE, BEGUN, REFUSED = "done", "begun", "refused"
_PRINCIPALS = ("user", "host", "proxy", "local", "token")
_ROWS_PER_PAGE = 1000  # entries that are kept in memory at once
_STRETCH = 50_000  # entries that one statement looks through
_ROWS_PER_INSERT = 50  # SQLite and MySQL limit the length of a statement


_ACTING: ContextVar[Caller | None] = ContextVar("fencepost_acting", default=None)


def acting() -> Caller | None:
    """Return the caller who acts in this context; None if none is set, as for direct access to the database."""
    return _ACTING.get()


@contextmanager
def acting_as(caller: Caller) -> Iterator[None]:
    """Attribute the acts within this block to `caller`, including how that caller was identified."""
    token = _ACTING.set(caller)
    try:
        yield
    finally:
        _ACTING.reset(token)


@dataclass(frozen=True, slots=True)
class AuditAct:
    """The content of an entry: who did what, to which job or run, why, and with which outcome."""

    caller: Caller
    act: str
    job: str | None = None
    run_id: int | None = None
    schedule: str | None = None
    reason: str | None = None
    outcome: str = DONE
    detail: Mapping[str, Any] = field(default_factory=dict)


class AuditRow(NamedTuple):
    """An entry as listed. `entry` is the JSON text that was hashed."""

    n: int
    at: int
    who: str
    act: str
    job: str | None
    run_id: int | None
    entry: str
    hash: str
    is_readable: bool = True  # False: a column has bytes that are not UTF-8, which stand here as \\xff


class ChainState(NamedTuple):
    """The last entry of the chain, and the last entry that was pruned."""

    head: ChainEnd
    floor: ChainEnd


def record(database: Database, cursor: Cursor, act: AuditAct) -> None:
    """Add an entry when the transaction of `cursor` commits; at once in a transaction that a caller began.

    If the act is that of a request with a key, its answer is kept in the same transaction.
    """
    if act.outcome == DONE:
        note_act(database, cursor, act.job)
    last = last_of(cursor)
    if last is None:
        append(database, cursor, [act])
        return
    entries_ = next((each for each in last if isinstance(each, _Entries)), None)
    if entries_ is None:
        last.append(entries_ := _Entries(database))
    entries_.acts.append(act)


class _Entries:
    """The entries of one transaction, which are added together."""

    def __init__(self, database: Database) -> None:
        self.acts: list[AuditAct] = []
        self._database = database

    def __call__(self, cursor: Cursor) -> None:
        append(self._database, cursor, self.acts)


def append(database: Database, cursor: Cursor, acts: Sequence[AuditAct]) -> ChainEnd:
    """Add entries, as the last step of the transaction of `cursor`; return the new end of the chain."""
    end = _state(database, cursor, is_locked=True).head
    at, ledger_id = database.dialect.now_us(cursor), identity_within(cursor, database)
    rows: list[dict[str, Any]] = []
    for act in acts:
        entry = _entry(act, ledger_id=ledger_id, n=end.n + 1, at=at)
        new = ChainEnd(end.n + 1, chain_hash(end.hash, entry))
        copied = dict(zip(COPIED, copied_from(entry), strict=True))
        rows.append({"n": new.n, "entry": entry, "prev": end.hash, "hash": new.hash, **copied})
        end = new
    audit, head = database.tables.operating["audit"], database.tables.operating["audit_head"]
    for start in range(0, len(rows), _ROWS_PER_INSERT):
        database.change(cursor, insert(audit).values(rows[start : start + _ROWS_PER_INSERT]).inline())
    database.change(cursor, update(head).where(head.c.only == 1).values(n=end.n, hash=end.hash))
    return end


def _entry(act: AuditAct, *, ledger_id: str, n: int, at: int) -> str:
    fields = {
        "ledger": ledger_id,
        "n": n,
        "at": at,
        "who": _short(said(act.caller.name)),
        "how": act.caller.how,
        "from": act.caller.address,
        "request": act.caller.request_id,
        "act": str(act.act),
        "job": act.job,
        "run_id": act.run_id,
        "schedule": act.schedule,
        "reason": said(act.reason),
        "outcome": act.outcome,
        "detail": (act.detail if act.act == PRUNED else json.loads(said_json(act.detail))) or None,
    }
    return entry_text({name: clean(value) for name, value in fields.items()})


def next_number(database: Database, cursor: Cursor) -> int:
    """Return the number of the next entry, and let nobody else add one until the transaction of `cursor` has ended."""
    return _state(database, cursor, is_locked=True).head.n + 1


def state(database: Database) -> ChainState:
    """Return both ends of the chain."""
    return database.read(lambda cursor: _state(database, cursor))


def chain(database: Database, *, after_n: int, through_n: int) -> Iterator[ChainRow]:
    """Yield the entries in order, reading a page at a time: the chain may not fit in memory."""
    c = database.tables.operating["audit"].c
    query = (
        select(c.n, c.entry, c.prev, c.hash, c.at, c.who, c.act, c.job, c.run_id).order_by(c.n).limit(_ROWS_PER_PAGE)
    )
    while True:
        wanted = query.where(c.n > after_n, c.n <= through_n)
        page = database.read(lambda cursor, wanted=wanted: database.rows(cursor, wanted))  # type: ignore[misc]
        for n, entry, prev, hashed, *copied in page:
            yield ChainRow(n, entry, prev, hashed, tuple(copied))
        if len(page) < _ROWS_PER_PAGE:
            return
        after_n = page[-1][0]


def outside(database: Database, state: ChainState) -> list[ChainRow]:
    """Return the first entry after the head and the first one that should have been pruned, if there are any.

    Neither belongs to the chain.
    """
    c = database.tables.operating["audit"].c
    columns = (c.n, c.entry, c.prev, c.hash)
    behind = select(*columns).where(c.n > state.head.n).order_by(c.n).limit(1)
    before = select(*columns).where(c.n <= state.floor.n).order_by(c.n).limit(1)
    queries = (before, behind)
    return database.read(lambda cursor: [ChainRow(*row) for each in queries for row in database.rows(cursor, each)])


def entries(
    database: Database,
    *,
    jobs: Collection[str] | None = None,
    who: str | None = None,
    acts: Collection[str] | None = None,
    run_id: int | None = None,
    before_n: int | None = None,
    limit: int = 100,
) -> list[AuditRow]:
    """Return entries, newest first. `jobs` limits them to those about these jobs, `acts` to these words; None: all.

    `who` is a principal such as ``user:ann``, or a bare name, which stands for every kind of principal of that name.
    """
    c = database.tables.operating["audit"].c
    query: Select[Any] = select(*_as_bytes(database, c)).order_by(c.n.desc()).limit(limit)
    if jobs is not None:
        query = query.where(c.job.in_(sorted(jobs)))
    if who is not None:
        query = query.where(c.who.in_([who] if ":" in who else [who, *(f"{kind}:{who}" for kind in _PRINCIPALS)]))
    if run_id is not None:
        query = query.where(c.run_id == run_id)
    if acts is not None:
        query = query.where(c.act.in_(sorted(acts)))
    if acts is None:
        bounded = query if before_n is None else query.where(c.n < before_n)
        return database.read(lambda cursor: [_audit_row(row) for row in database.rows(cursor, bounded)])
    return database.read(lambda cursor: _in_stretches(database, cursor, query, before_n, limit))


def _in_stretches(
    database: Database, cursor: Cursor, query: Select[Any], before_n: int | None, limit: int
) -> list[AuditRow]:
    """Look for what no index leads to, a stretch of entries after the other: no statement reads all of a long chain."""
    c, known = database.tables.operating["audit"].c, _state(database, cursor)
    top = known.head.n + 1 if before_n is None else min(before_n, known.head.n + 1)
    found: list[AuditRow] = []
    while len(found) < limit and top > known.floor.n:
        bottom = top - _STRETCH
        rows = database.rows(cursor, query.where(c.n < top, c.n >= bottom))
        found += map(_audit_row, rows)
        top = bottom
    return found[:limit]


def _as_bytes(database: Database, c: Any) -> list[Any]:
    """Return the columns of an `AuditRow`. On SQLite texts come as bytes: they need not be UTF-8."""
    columns = [c[name] for name in AuditRow._fields if name != "is_readable"]
    if database.dialect.name != "sqlite":
        return columns
    return [cast(each, LargeBinary) if isinstance(each.type, String) else each for each in columns]


def _audit_row(row: Sequence[Any]) -> AuditRow:
    read: list[Any] = [each.decode("utf-8", "backslashreplace") if isinstance(each, bytes) else each for each in row]
    is_readable = all(text.encode() == each for text, each in zip(read, row, strict=True) if isinstance(each, bytes))
    return AuditRow(*read)._replace(is_readable=is_readable)


def prune_through(database: Database, n: int, act: AuditAct) -> ChainState:
    """Remove all entries up to `n`, and store where the chain begins now. The newest entry is always kept.

    The removal is recorded as an entry, which names the hash of the last removed entry.
    """

    def work(cursor: Cursor) -> ChainState:
        before = _state(database, cursor, is_locked=True)
        through = min(n, before.head.n - 1)
        floor = _hash_at(database, cursor, through)
        if floor is None or through <= before.floor.n:
            return before
        audit, head = database.tables.operating["audit"], database.tables.operating["audit_head"]
        database.change(cursor, delete(audit).where(audit.c.n <= through))
        database.change(cursor, update(head).where(head.c.only == 1).values(floor_n=through, floor_hash=floor))
        detail = {**json.loads(said_json(act.detail)), "through": through, "hash": floor}
        append(database, cursor, [AuditAct(act.caller, act.act, reason=act.reason, detail=detail)])
        return _state(database, cursor)

    return database.write(work)


def last_before(database: Database, before_us: int) -> int | None:
    """Return the number of the last entry before the first one that is from `before_us` or later; None if none is."""
    c = database.tables.operating["audit"].c
    first_kept = select(func.min(c.n)).where(c.at >= before_us).scalar_subquery()
    query = select(func.max(c.n)).where(or_(first_kept.is_(None), c.n < first_kept))
    [row] = database.read(lambda cursor: database.rows(cursor, query))
    return None if row[0] is None else int(row[0])


def _hash_at(database: Database, cursor: Cursor, n: int) -> str | None:
    c = database.tables.operating["audit"].c
    rows = database.rows(cursor, select(c.hash).where(c.n == n))
    return str(rows[0][0]) if rows else None


def _state(database: Database, cursor: Cursor, *, is_locked: bool = False) -> ChainState:
    c = database.tables.operating["audit_head"].c
    query = select(c.n, c.hash, c.floor_n, c.floor_hash).where(c.only == 1)
    rows = database.rows(cursor, query.with_for_update() if is_locked else query)
    if not rows:
        raise AuditHeadMissing(database.tables.name("audit_head"))
    [row] = rows
    return ChainState(ChainEnd(row[0], row[1]), ChainEnd(row[2], row[3]))


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_WHO else f"{name[: LONGEST_WHO - 1]}…"
