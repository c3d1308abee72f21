"""Answers to acts, kept for a day under the key that the sender chose: a repeated request gets the same answer.

`answering` marks the acts of a block as those of one request. The first transaction in it that records an act in the
audit also writes the answer, right before its COMMIT.

**Promises.** An act and its answer commit together, or neither does. Of two requests with one key at the same time, one
is done: the other one waits for it, is rolled back, and raises `AnsweredMeanwhile`. Keys of different principals never
meet.

**Not promised.** The text of the answer, where an act takes several transactions: the first one writes that it was
begun, and `complete` the text. After a crash in between, the request counts as done, with an answer without text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import delete, select, update

from fencepost.ledger.connection import LedgerConnection, last_of, returned_by
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor

KEPT_US = 24 * 3600 * 1_000_000  # so long a repeated request does nothing again; later, it is a new request
LONGEST_KEY = 60  # a UUID with a word before it
BEGUN = 0
"""The status of an answer whose text is not known yet, or was lost in a crash."""


class AnsweredMeanwhile(Exception):
    """Another request with the same key was done first. This one has changed nothing."""


class RequestKey(NamedTuple):
    """Whose request it is, the key that the sender chose, and what was asked.

    `sending` is another text each time that the request arrives.
    """

    principal: str
    key: str
    path: str
    body_hash: str
    sending: str


class KeptAnswer(NamedTuple):
    """What was answered: to which request, with which status and text. `job` is the one that the act was about."""

    request: RequestKey
    status: int
    job: str | None = None
    text: str = ""


@dataclass(slots=True)
class Answering:
    """A request whose answer is kept. `shown` makes the text, of what the act's transaction has returned.

    With None as its result, the text follows with `complete`.
    """

    request: RequestKey
    shown: Callable[[Any], str | None]
    status: int = 200
    job: str | None = None

    def keep(self, database: Database, cursor: Cursor) -> None:
        """Write the answer, as the last step of the act's transaction."""
        text = self.shown(returned_by(cursor))
        answer = KeptAnswer(self.request, BEGUN if text is None else self.status, self.job, text or "")
        insert_answer(database, cursor, answer)


_ANSWERING: ContextVar[Answering | None] = ContextVar("fencepost_answering", default=None)


@contextmanager
def answering(given: Answering) -> Iterator[None]:
    """Keep the answer of the act within this block."""
    token = _ANSWERING.set(given)
    try:
        yield
    finally:
        _ANSWERING.reset(token)


def note_act(database: Database, cursor: Cursor, job: str | None) -> None:
    """Have the transaction of `cursor`, which records an act about `job`, write the answer before it commits."""
    given, last = _ANSWERING.get(), last_of(cursor)
    if given is None or last is None or any(isinstance(each, _Keeping) for each in last):
        return
    given.job = job
    last.append(_Keeping(database, given))


class _Keeping:
    """Writes the answer."""

    def __init__(self, database: Database, given: Answering) -> None:
        self._database = database
        self._given = given

    def __call__(self, cursor: Cursor) -> None:
        self._given.keep(self._database, cursor)


def find_answer(database: Database, principal: str, key: str) -> KeptAnswer | None:
    """Return what was answered to a request; None if there was none within a day."""
    return database.read(lambda cursor: _found(database, cursor, principal, key))


def insert_answer(database: Database, cursor: Cursor, answer: KeptAnswer) -> None:
    """Write an answer; raise `AnsweredMeanwhile` if another request has one under this key.

    An expired one goes. One that an earlier transaction of the same request wrote stays as it is.
    """
    table, request = database.tables.operating["answer"], answer.request
    now = database.dialect.now_us(cursor)
    here = (table.c.principal == request.principal, table.c.request_key == request.key)
    database.change(cursor, delete(table).where(*here, table.c.at <= now - KEPT_US))
    row = {
        "principal": request.principal,
        "request_key": request.key,
        "path": request.path,
        "body_hash": request.body_hash,
        "status": answer.status,
        "body": _packed(answer),
        "at": now,
    }
    if not database.dialect.insert_row(cursor, table, row):
        found = _found(database, cursor, request.principal, request.key)
        if found is None or found.request.sending != request.sending:
            raise AnsweredMeanwhile


def complete(database: Database, answer: KeptAnswer) -> None:
    """Write the text of an answer that was begun, or the whole answer of an act that had nothing to do."""
    table, request = database.tables.operating["answer"], answer.request
    here = (table.c.principal == request.principal, table.c.request_key == request.key, table.c.status == BEGUN)

    def work(cursor: Cursor) -> None:
        insert_answer(database, cursor, answer)  # nothing, if it was begun
        database.change(cursor, update(table).where(*here).values(status=answer.status, body=_packed(answer)))

    database.write(work)


def prune_answers(database: Database, place: LedgerConnection | Database, now_us: int, limit: int) -> int:
    """Remove a batch of answers that are older than a day; return how many."""
    table = database.tables.operating["answer"]
    columns = (table.c.principal, table.c.request_key, table.c.at)
    query = select(*columns).where(table.c.at <= now_us - KEPT_US).limit(limit).with_for_update(skip_locked=True)

    def work(cursor: Cursor) -> int:
        removed = 0
        for principal, key, at in database.rows(cursor, query):
            here = (table.c.principal == principal, table.c.request_key == key, table.c.at == at)
            removed += database.change(cursor, delete(table).where(*here))
        return removed

    return place.write(work)


def _found(database: Database, cursor: Cursor, principal: str, key: str) -> KeptAnswer | None:
    c = database.tables.operating["answer"].c
    fresh = c.at > database.dialect.now_us(cursor) - KEPT_US
    query = select(c.principal, c.request_key, c.path, c.body_hash, c.status, c.body).where(
        c.principal == principal, c.request_key == key, fresh
    )
    # Compared again: some databases take a text with spaces behind it for the same.
    for found, found_key, path, body_hash, status, packed in database.rows(cursor, query):
        if (found, found_key) == (principal, key):
            sending, job, text = packed.split("\n", 2)
            return KeptAnswer(RequestKey(principal, key, path, body_hash, sending), status, job or None, text)
    return None


def _packed(answer: KeptAnswer) -> str:
    """Return the text with what a repetition needs: which sending it answers, and the job whose rights count."""
    return f"{answer.request.sending}\n{answer.job or ''}\n{answer.text}"
