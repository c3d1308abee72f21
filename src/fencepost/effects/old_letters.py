"""Removes dead letters that were replayed or dropped. New ones are kept, however old they are.

A command that replays or drops a letter checks the letter itself, so it notices if another command was faster. A
removed letter means the same. So no coordination is needed.

**Not promised.** That a letter is kept for a while after it was replayed or dropped. Only the time at which it was
written is recorded. A letter that was written long ago and is replayed today is removed by the next pruning. The run
that replayed it, and the journal entry of a drop, are in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlalchemy import and_

from fencepost.core.duration import whole_us
from fencepost.effects.installing import tables_of
from fencepost.effects.pruning import BATCH, need_tables
from fencepost.effects.walking import remove, walk

if TYPE_CHECKING:
    from fencepost.ledger.database import Database

SETTLED = ("replayed", "dropped")


def prune_letters(database: Database, *, older_than_s: float, batch: int = BATCH, dry_run: bool = False) -> int:
    """Remove replayed and dropped letters that were written longer ago than this; return how many there were."""
    need_tables(database)
    before_us = database.now_us() - whole_us(older_than_s)
    found = _found(database, before_us, batch)
    if dry_run:
        return sum(1 for _ in found)
    c = tables_of(database).dead_letter.c
    still = and_(c.state.in_(SETTLED), c.created_at < before_us)
    return remove(database, c.id, found, still=still, batch=batch)


def _found(database: Database, before_us: int, page: int) -> Iterator[int]:
    c = tables_of(database).dead_letter.c
    for number, state, created_at in walk(database, (c.id, c.state, c.created_at), after=0, page=page):
        if state in SETTLED and created_at < before_us:
            yield number
