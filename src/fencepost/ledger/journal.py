"""The journal: what people did, and what went wrong.

An entry is added in the same transaction as the change that it describes, so that neither is committed without the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Select, insert, select

from fencepost.core.noted import DONE_BY_PEOPLE, LONGEST_REASON, Noted, says_something
from fencepost.core.policy import Policy, Reason
from fencepost.core.rights import Caller
from fencepost.errors import InvalidParameters, InvalidPolicy
from fencepost.ledger.auditing import BEGUN, DONE, REFUSED, AuditAct, acting, next_number, record
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import clean, said, said_json
from fencepost.ledger.id_order import SLACK_US, first_id_at

_WITHOUT_REASON = frozenset({Noted.ACKNOWLEDGED, Noted.UNACKNOWLEDGED})  # they change nothing of the job


class JournalEntry(NamedTuple):
    """A journal entry. `detail` is JSON, or None."""

    id: int
    at: int
    what: str
    job: str | None
    run_id: int | None
    schedule: str | None
    node: str | None
    token: int | None
    by: str | None
    reason: str | None
    detail: str | None


class About(NamedTuple):
    """The subject of an entry, and the person who acted. Every field is optional."""

    job: str | None = None
    run_id: int | None = None
    schedule: str | None = None
    node: str | None = None
    token: int | None = None
    by: str | None = None
    reason: str | None = None
    detail: Mapping[str, Any] | None = None


def note(database: Database, cursor: Cursor, what: Noted, about: About) -> None:
    """Add an entry in the transaction of `cursor`. An act of a person is also recorded in the audit."""
    values: dict[str, Any] = {name: clean(value) for name, value in about._asdict().items()}
    values |= {"by": said(about.by), "reason": said(about.reason)}
    values["detail"] = None if about.detail is None else said_json(about.detail)
    row = {"at": database.dialect.now(), "what": str(what), **values}
    database.dialect.execute(cursor, insert(database.tables.journal).values(row).inline())
    if about.by is not None and what in DONE_BY_PEOPLE:
        audit(database, cursor, what, about)


def _begins(_: Cursor, number: int) -> int:
    return number


def begin(database: Database, what: Noted, *abouts: About, first: Callable[[Cursor, int], int] = _begins) -> int:
    """Record in the audit that a person begins an act of several transactions; call it before the first of them.

    Return the number of the first entry of the act. The transaction that completes it notes that it is done, with that
    number as the detail `begun`. Where the act is cut off, its entries ``begun`` remain: one for each of `abouts`.

    `first` is called in the same transaction, with the number of the entry. No other act begins, or records anything,
    until that has committed. It may refuse the act, store that it was begun, and return the number of an earlier entry
    with which the act was begun.
    """

    def work(cursor: Cursor) -> int:
        number = next_number(database, cursor)
        begun = first(cursor, number)
        for about in abouts:
            said_before = {} if begun == number else {"begun": begun}
            told = about._replace(detail={**(about.detail or {}), **said_before})
            audit(database, cursor, what, told, outcome=BEGUN)
        return begun

    return database.write(work)


def withdraw(database: Database, what: Noted, *abouts: About, first: Callable[[Cursor], bool]) -> None:
    """Record in the audit that an act was begun and is refused, and nothing of it was done, if `first` says so."""

    def work(cursor: Cursor) -> None:
        for about in abouts if first(cursor) else ():
            audit(database, cursor, what, about, outcome=REFUSED)

    database.write(work)


def audit(database: Database, cursor: Cursor, what: Noted, about: About, *, outcome: str = DONE) -> None:
    """Record the act in the audit when the transaction commits, unless its reason is not as it has to be."""
    _check_reason(database, cursor, what, about)
    caller = acting() or Caller(str(about.by))
    act = AuditAct(
        caller,
        str(what),
        job=about.job,
        run_id=about.run_id,
        schedule=about.schedule,
        reason=about.reason,
        outcome=outcome,
        detail=about.detail or {},
    )
    record(database, cursor, act)


def _check_reason(database: Database, cursor: Cursor, what: Noted, about: About) -> None:
    """Refuse the act if its reason is too long, or is wanted."""
    if len(about.reason or "") > LONGEST_REASON:
        raise InvalidParameters(f"a reason has {LONGEST_REASON:,} characters at most; nothing was done")
    if not says_something(about.reason) and what not in _WITHOUT_REASON and about.job is not None:
        _refuse_without_reason(database, cursor, about.job)


def _refuse_without_reason(database: Database, cursor: Cursor, job: str) -> None:
    c = database.tables.job.c
    found = database.rows(cursor, select(c.policy).where(c.name == job))
    try:
        is_wanted = bool(found) and Policy.from_json(found[0][0]).reason is Reason.ALWAYS
    except InvalidPolicy:
        return  # somebody has damaged it: people must be able to act
    if is_wanted:
        raise InvalidParameters(f'job {job!r} wants a reason for each act (reason="always"); nothing was done')


def journal(
    database: Database,
    connection: LedgerConnection | None = None,
    *,
    what: Noted,
    job: str | None = None,
    run_id: int | None = None,
    schedule: str | None = None,
    node: str | None = None,
    token: int | None = None,
    by: str | None = None,
    reason: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Add an entry in its own transaction."""
    about = About(job, run_id, schedule, node, token, by, reason, detail)
    (connection or database).write(lambda cursor: note(database, cursor, what, about))


def entries(
    database: Database,
    *,
    about: About | None = None,
    jobs: Collection[str] | None = None,
    what: str | None = None,
    since_us: int | None = None,
    before_id: int | None = None,
    after_id: int | None = None,
    limit: int = 100,
    connection: LedgerConnection | None = None,
) -> list[JournalEntry]:
    """Return entries, newest first; with `after_id`, those after it, oldest first.

    `jobs`: only what is about these; entries about no job are left out then.
    """
    table = database.tables.journal
    if jobs is not None and not jobs:
        return []
    wanted: dict[str, Any] = {} if about is None else {k: v for k, v in about._asdict().items() if v is not None}
    query: Select[Any] = select(*(table.c[name] for name in JournalEntry._fields)).limit(limit)
    for name, value in (wanted | ({"what": what} if what else {})).items():
        query = query.where(table.c[name] == value)
    if jobs is not None:
        query = query.where(table.c.job.in_(sorted(jobs)))
    if before_id is not None:
        query = query.where(table.c.id < before_id)
    query = (
        query.order_by(table.c.id.desc())
        if after_id is None
        else query.where(table.c.id > after_id).order_by(table.c.id)
    )

    def work(cursor: Cursor) -> list[JournalEntry]:
        bounded = query if since_us is None else _since(database, cursor, query, since_us)
        return [JournalEntry(*row) for row in database.rows(cursor, bounded)]

    return (connection or database).read(work)


def _since(database: Database, cursor: Cursor, query: Select[Any], since_us: int) -> Select[Any]:
    """Restrict a query to what was noted since then, also by ids: what is rare is not looked for in all the rest."""
    c = database.tables.journal.c
    first = first_id_at(database, cursor, since_us - SLACK_US, table="journal", column="at")
    return query.where(c.at >= since_us, c.id >= first)


def is_noted_since(
    database: Database, after_id: int, whats: Collection[Noted], *, connection: LedgerConnection | None = None
) -> bool:
    """Whether an entry after this one is of one of these kinds. Reads no other entries than those after it."""
    c = database.tables.journal.c
    query = select(c.id).where(c.id > after_id, c.what.in_([str(each) for each in whats])).limit(1)
    return bool((connection or database).read(lambda cursor: database.rows(cursor, query)))
