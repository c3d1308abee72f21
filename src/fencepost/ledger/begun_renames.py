"""Renames for good that were begun: until one is done, its two names can only be renamed as was begun.

A rename takes several transactions, some of them in other databases. Each of them moves a part: checkpoints first, then
runs, and the job last. Cut off in between, the job has parts under two names, and only the same rename brings them
together: another one, or a run of bulk work, would not find what was moved.

So the transaction that begins one stores it, and the one that completes it removes that again. It is a row of
`acknowledged`, of a kind of its own: nodes write the whole row of a job whenever they start, which a name without a job
does not even have, while versions that do not know this kind leave such rows alone.

**Promises.** Of two renames that have a name in common, one is begun; the other one is refused, and has changed
nothing. Every later transaction of a rename in the ledger compares the row.

**Not promised.** Anything about versions that do not know these rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from sqlalchemy import delete, select, update

from fencepost.core.noted import Noted
from fencepost.errors import LedgerRefused
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor, Dialect
from fencepost.ledger.dialects.statements import said
from fencepost.ledger.journal import About, begin, withdraw
from fencepost.ledger.tables import Tables

SUFFIXES = ("", "/part", "/replay")  # of a bulk job itself, its parts and its replays
_KIND = "rename begun"  # no kind of what needs a person: see `core.concerns`


class BegunRename(NamedTuple):
    """A rename that was begun. `number` is that of its first entry in the audit; `at` is when it was last begun.

    `between`: names that the job had between the two.
    """

    old: str
    new: str
    number: int
    by: str
    at: int
    is_merge: bool = False  # with another job, of the new name
    is_repeated: bool = False  # it was begun before
    between: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """All of its names, and the additional ones of a bulk job."""
        return frozenset(name + each for name in (self.old, *self.between, self.new) for each in SUFFIXES)

    @property
    def note(self) -> str:
        """What is compared: the same until the rename is done."""
        merge = {"into_existing": True} if self.is_merge else {}
        between = {"between": self.between} if self.between else {}
        return json.dumps({"new": self.new, "begun": self.number, **merge, **between}, sort_keys=True)

    def __str__(self) -> str:
        """Return a sentence that says what to do."""
        return (
            f"job {self.old!r} is being renamed to {self.new!r}: that was begun, and is not done. Complete it first: "
            f"fencepost jobs rename {self.old} {self.new} (with the --effects that were given); afterwards "
            f"{self.new!r} can be renamed"
        )


def begun_renames(database: Database, *, connection: LedgerConnection | None = None) -> list[BegunRename]:
    """Return all renames that were begun and are not done."""
    return (connection or database).read(lambda cursor: begun_within(database, cursor))


def begun_within(database: Database, cursor: Cursor) -> list[BegunRename]:
    """Return them in a transaction."""
    c = database.tables.operating["acknowledged"].c
    query = select(c.id, c.note, c.by, c.at).where(c.what == _KIND).order_by(c.id)
    return [_read(*row) for row in database.rows(cursor, query)]


def _read(old: str, note: str, by: str, at: int) -> BegunRename:
    content = json.loads(note)
    begun = BegunRename(old, content["new"], content["begun"], by, at, content.get("into_existing", False))
    return begun._replace(between=tuple(content.get("between", ())))


def refuse_begun(found: Iterable[BegunRename], names: Collection[str], *, but: tuple[str, str] | None = None) -> None:
    """Refuse to act on these names while a rename of one of them was begun, unless it is the rename `but`."""
    for each in found:
        if (each.old, each.new) != but and not each.names.isdisjoint(names):
            raise LedgerRefused(str(each))


def begin_rename(
    database: Database,
    old: str,
    new: str,
    about: About,
    *,
    is_merge: bool = False,
    between: tuple[str, ...] = (),
) -> BegunRename:
    """Store that a rename begins, or begins again, with an entry of the audit for each of the two names."""
    rename = BegunRename(old, new, 0, str(said(about.by)), 0, is_merge, between=between)

    def first(cursor: Cursor, number: int) -> int:
        nonlocal rename
        known = begun_within(database, cursor)
        refuse_begun(known, rename.names, but=(old, new))
        at = database.dialect.now_us(cursor)
        rename = next((_again(each, at) for each in known if each.old == old), rename._replace(number=number, at=at))
        _store(database, cursor, rename)
        return rename.number

    begin(database, Noted.JOB_RENAMED, *abouts(about, old, new), first=first)
    return rename


def _again(begun: BegunRename, at: int) -> BegunRename:
    return begun._replace(at=max(at, begun.at + 1), is_repeated=True)


def _store(database: Database, cursor: Cursor, rename: BegunRename) -> None:
    table = database.tables.operating["acknowledged"]
    if rename.is_repeated:  # so that whoever began it does not take it back
        database.change(cursor, update(table).where(*_same(table, rename)).values(at=rename.at))
        return
    row = {"what": _KIND, "id": rename.old, "by": rename.by, "at": rename.at, "until": None, "note": rename.note}
    database.dialect.insert_row(cursor, table, row)


def abouts(about: About, old: str, new: str) -> tuple[About, About]:
    """Return what the entries of a rename are about: it is found under either name."""
    detail = dict(about.detail or {})
    return (
        about._replace(job=old, detail={"new": new, **detail}),
        about._replace(job=new, detail={"formerly": old, **detail}),
    )


def take_back(database: Database, begun: BegunRename, about: About) -> None:
    """Store no longer that a rename was begun of which nothing is done, unless somebody else has begun it again."""
    if begun.is_repeated:
        return
    table = database.tables.operating["acknowledged"]

    def gone(cursor: Cursor) -> bool:
        return database.change(cursor, delete(table).where(*_same(table, begun), table.c.at == begun.at)) > 0

    told = about._replace(detail={"begun": begun.number})
    withdraw(database, Noted.JOB_RENAMED, *abouts(told, begun.old, begun.new), first=gone)


def compare(dialect: Dialect, cursor: Cursor, begun: BegunRename | None) -> None:
    """Refuse to go on with a rename that somebody else has done meanwhile; None compares nothing."""
    if begun is None:
        return
    table = Tables.of(dialect.url).operating["acknowledged"]
    query = select(table.c.id).where(*_same(table, begun)).with_for_update()
    if not dialect.execute(cursor, query).fetchall():
        raise _done_meanwhile(begun)


def end(database: Database, cursor: Cursor, begun: BegunRename | None) -> None:
    """Store no longer that a rename was begun: this transaction completes it."""
    if begun is None:
        return
    table = database.tables.operating["acknowledged"]
    if not database.change(cursor, delete(table).where(*_same(table, begun))):
        raise _done_meanwhile(begun)


def _same(table: Any, begun: BegunRename) -> tuple[Any, ...]:
    return (table.c.what == _KIND, table.c.id == begun.old, table.c.note == begun.note)


def _done_meanwhile(begun: BegunRename) -> LedgerRefused:
    return LedgerRefused(
        f"somebody else has completed the rename of job {begun.old!r} to {begun.new!r} meanwhile: "
        f"fencepost audit list --job {begun.old}"
    )
