"""The fences of runs that exclude nobody: one for each such run, so they are removed again by those who come later.

The keys of a ledger's such fences begin alike, and old runs come first. One raise in fifty looks at the first of them,
and removes those below a token that no run of the ledger has any more. Whoever was refused by such a row is refused by
the floor from then on: a row under the beginning of the keys itself, raised in the same transaction. It never falls.

**Not promised.** That all go at once: a few hundred at a time do, many more than come up meanwhile. That those go which
older versions made, under names without the ledger: `fencepost effects prune --fences` removes them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.fence.databases import database_for
from fencepost.schema.effects import FLOOR_KEY
from fencepost.sql.spelling import SPELLING

if TYPE_CHECKING:
    from fencepost.core.runtime import Runtime
    from fencepost.fence.sources.source import Source
    from fencepost.fence.target import Target

ONE_IN = 50
_MOST = 500
_WAIT_S = 0.5


@dataclass(frozen=True, slots=True)
class Family:
    """The fences whose keys begin with `prefix`. `oldest` returns a token that none of their holders is below."""

    prefix: str
    oldest: Callable[[], int]

    def tidy(self, source: Source, table: str, runtime: Runtime) -> None:
        """Remove a few that nobody can need, now and then. What is in its way leaves that to the next one."""
        if runtime.random() * ONE_IN >= 1:
            return
        with suppress(Exception):  # a connection that is broken, or a right that is lacking, is met by the run itself
            self._tidied(source, table, self.oldest())

    def _tidied(self, source: Source, table: str, floor: int) -> None:
        database = database_for(source.target.kind)
        source.begin("read committed")
        try:
            database.begin_raising(source, table, wait_s=_WAIT_S)
            self._remove(source.target, table, floor, database.locking(shared=False))
            source.commit()
        except BaseException:
            source.roll_back()
            raise
        finally:
            database.end(source)

    def _remove(self, target: Target, table: str, floor: int, locking: str) -> None:
        key = SPELLING[target.kind].key
        page = f"SELECT {key}, token FROM {table} WHERE {key} > %s AND {key} < %s ORDER BY {key} LIMIT {_MOST}"  # noqa: S608
        rows = target.execute(page, (self.prefix, self.prefix[:-1] + chr(ord(self.prefix[-1]) + 1))).rows
        old = [str(row[0]) for row in rows if int(row[1]) < floor and self._has(str(row[0]))]
        if not old:
            return
        self._raise_floor(target, table, floor, locking)
        marks = ", ".join(["%s"] * len(old))
        target.execute(f"DELETE FROM {table} WHERE {key} IN ({marks}) AND token < %s", (*old, floor))  # noqa: S608 - ours

    def _has(self, key: str) -> bool:
        """Whether it is one of them; a user's key may begin as theirs did before they had the ledger in them."""
        return key.removeprefix(self.prefix).isdecimal()

    def _raise_floor(self, target: Target, table: str, floor: int, locking: str) -> None:
        key, now_us = SPELLING[target.kind].key, target.now_us()
        found = _locked(target, table, self.prefix, locking)
        if not found:
            _locked(target, table, FLOOR_KEY, locking)  # whoever raises meanwhile has not seen a floor of this family
            insert = f"INSERT INTO {table} (token, grant_id, raised_at, {key}) VALUES (%s, '', %s, %s)"  # noqa: S608
            target.execute(insert, (floor, now_us, self.prefix))
        elif found[0] < floor:
            update = f"UPDATE {table} SET token = %s, raised_at = %s WHERE {key} = %s"  # noqa: S608
            target.execute(update, (floor, now_us, self.prefix))


def _locked(target: Target, table: str, key: str, locking: str) -> list[int]:
    """Lock a row, and return its token."""
    query = f"SELECT token FROM {table} WHERE {SPELLING[target.kind].key} = %s {locking}".rstrip()  # noqa: S608
    return [int(row[0]) for row in target.execute(query, (key,)).rows]
