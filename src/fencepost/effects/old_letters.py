"""Removing dead letters that are settled: replayed or dropped. Those that are new stay, however old they are.

Whoever replays or drops a letter finds out by the letter itself that somebody was quicker; that there is none any more
says the same. So nobody needs to be asked before.

**Not promised.** That a letter stays for a time after it was settled: when that was is not on record, only when it was
put aside. One that was put aside long ago and is replayed today goes with the next pruning; the run that replayed it,
and the journal about what was dropped, are in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlalchemy import and_

from fencepost.effects.installing import tables_of
from fencepost.effects.pruning import BATCH, need_tables
from fencepost.effects.walking import remove, walk

if TYPE_CHECKING:
    from fencepost.ledger.database import Database

SETTLED = ("replayed", "dropped")


def prune_letters(database: Database, *, older_than_s: float, batch: int = BATCH, dry_run: bool = False) -> int:
    """Remove the letters that are settled and were put aside longer ago than that; return how many there were."""
    need_tables(database)
    before_us = database.now_us() - round(older_than_s * 1_000_000)
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
