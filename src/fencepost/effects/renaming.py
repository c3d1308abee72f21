"""Renames a job permanently in a database of effects: checkpoints and dead letters get the new name.

**Promises.** Each database is changed in one transaction. Repeating the call is safe: it does only what is left. From
then on, a stale writer with the old name is refused there: its fence is raised above every issued token.

**Not promised.** Anything about rows of older versions, which do not name their ledger: they are not changed, because
it is unknown to which ledger they belong. Fences elsewhere (Redis, HTTP, files) are not changed either.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import insert, select, update

from fencepost.core.identity import LONGEST_KEY, fitted
from fencepost.effects.installing import tables_of
from fencepost.effects.pruning import need_tables
from fencepost.errors import LedgerRefused
from fencepost.ledger.begun_renames import compare
from fencepost.ledger.naming import Naming, ledger_in, naming

if TYPE_CHECKING:
    from fencepost.ledger.database import Database
    from fencepost.ledger.dialects import Cursor
    from fencepost.ledger.moving import Renaming


class Moved(NamedTuple):
    """How many rows got the new name."""

    checkpoints: int
    letters: int


def refuse_effects(database: Database, ledger: Database, renaming: Renaming) -> None:
    """Raise if the rows in this database could not get the new name: before anything is renamed anywhere."""
    need_tables(database)
    names = naming(ledger)
    database.read(lambda cursor: _new_names(database, cursor, names, renaming))


def has_effects(database: Database, ledger: Database, job: str) -> bool:
    """Whether there are checkpoints of the job in this database."""
    need_tables(database)
    names = naming(ledger)
    return bool(database.read(lambda cursor: _checkpoints(database, cursor, names, job)))


def move_effects(database: Database, ledger: Database, renaming: Renaming) -> Moved:
    """Give the rows in one database of effects the new name.

    In the ledger's own database, the rename is compared with what is stored of it in the same transaction; elsewhere
    right before it: whoever else renames the job meanwhile gives it the same name.
    """
    need_tables(database)
    names, token = naming(ledger), ledger.now_us()
    if database is not ledger:
        ledger.write(lambda cursor: compare(ledger.dialect, cursor, renaming.begun))

    def work(cursor: Cursor) -> Moved:
        if database is ledger:
            compare(ledger.dialect, cursor, renaming.begun)
        _raise_fences(database, cursor, [names.fence(key) for key in renaming.keys], token)
        if names.is_mixed:
            _raise_fences(database, cursor, renaming.keys, token)
        return Moved(
            _move_checkpoints(database, cursor, names, renaming), _move_letters(database, cursor, names, renaming)
        )

    return database.write(work)


def _raise_fences(database: Database, cursor: Cursor, keys: Sequence[str], token: int) -> None:
    table = tables_of(database).fence
    for key in map(fitted, keys):
        values: dict[str, Any] = {"token": token, "grant_id": "renamed", "holder": "fencepost jobs rename"}
        values["raised_at"] = database.dialect.now_us(cursor)
        found = database.rows(cursor, select(table.c.token).where(table.c.key == key).with_for_update())
        if not found:
            database.change(cursor, insert(table).values(key=key, **values))
        elif found[0][0] < token:
            database.change(cursor, update(table).where(table.c.key == key).values(values))


def _move_checkpoints(database: Database, cursor: Cursor, names: Naming, renaming: Renaming) -> int:
    table = tables_of(database).checkpoint
    wanted = _new_names(database, cursor, names, renaming)
    for old, new in wanted.items():
        database.change(cursor, update(table).where(table.c.name == old).values(name=new))
    return len(wanted)


def _new_names(database: Database, cursor: Cursor, names: Naming, renaming: Renaming) -> dict[str, str]:
    """Return the new name of each checkpoint, or raise if one cannot get it."""
    c, wanted = tables_of(database).checkpoint.c, dict[str, str]()
    for name in _checkpoints(database, cursor, names, renaming.old):
        wanted[name] = fitted(f"bulk:{renaming.new}@{name.removeprefix(f'bulk:{renaming.old}@')}")
        if len(name) == LONGEST_KEY and name[-65] == "#":
            raise LedgerRefused(
                f"the checkpoint {name!r} contains only a hash of its name: keep formerly={renaming.old!r}"
            )
        if database.rows(cursor, select(c.name).where(c.name == wanted[name])):
            raise LedgerRefused(
                f"{renaming.new!r} has begun the same work as {renaming.old!r}: the checkpoint {wanted[name]!r} "
                "exists. Decide which one to keep: fencepost bulk forget RUN removes that of a run"
            )
    return wanted


def _checkpoints(database: Database, cursor: Cursor, names: Naming, job: str) -> list[str]:
    c = tables_of(database).checkpoint.c
    start = f"bulk:{job}@{names.ledger}:"
    between = (c.name > start) & (c.name < start[:-1] + ";")
    return [row[0] for row in database.rows(cursor, select(c.name).where(between).order_by(c.name))]


def _move_letters(database: Database, cursor: Cursor, names: Naming, renaming: Renaming) -> int:
    c = tables_of(database).dead_letter.c
    moved = 0
    for old, new in renaming.pairs:
        rows = database.rows(cursor, select(c.id, c.payload).where(c.job == old).order_by(c.id))
        for number in [row[0] for row in rows if _ledger_of(row[1]) == names.ledger]:
            moved += database.change(cursor, update(c.id.table).where(c.id == number).values(job=new))
    return moved


def _ledger_of(payload: str | None) -> str:
    try:
        content = json.loads(payload or "")
        return ledger_in(str(content.get("instance", "")))
    except (ValueError, AttributeError):  # not ours
        return ""
