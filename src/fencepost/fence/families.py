"""The fences of runs without an exclusive key. There is one for each such run, so later runs remove them again.

The keys of these fences have the same prefix in one ledger, and sort by the age of the run. One raise in fifty reads
the first of them, and removes those below a token that no run of the ledger has any more. A writer that such a row
would refuse is then refused by the floor: a row whose key is the prefix itself, raised in the same transaction. The
floor never goes down.

**Not promised.** That all are removed at once: a few hundred are each time, many more than are added meanwhile. That
fences of older versions are removed, whose names do not contain the ledger: `fencepost effects prune --fences` removes
these.
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

ONE_IN = 50  # raises per clean-up: the cost of one is spread over many runs
_MOST = 500  # rows per clean-up: ten times what comes up between two of them, in one short transaction
_WAIT_S = 0.5  # for a lock; the next clean-up does what this one could not


@dataclass(frozen=True, slots=True)
class Family:
    """The fences whose keys begin with `prefix`. `oldest` returns a token that is not above that of any holder."""

    prefix: str
    oldest: Callable[[], int]

    def tidy(self, source: Source, table: str, runtime: Runtime) -> None:
        """Now and then, remove some fences that are not needed any more. After an error, a later call does it."""
        if runtime.random() * ONE_IN >= 1:
            return
        with suppress(Exception):  # the run itself will report a broken connection or a missing privilege
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
        """Whether the key belongs to the family. A user's key may begin with the prefix that older versions used."""
        return key.removeprefix(self.prefix).isdecimal()

    def _raise_floor(self, target: Target, table: str, floor: int, locking: str) -> None:
        key, now_us = SPELLING[target.kind].key, target.now_us()
        found = _locked(target, table, self.prefix, locking)
        if not found:
            _locked(target, table, FLOOR_KEY, locking)  # a raise in progress has not seen the new floor: wait for it
            insert = f"INSERT INTO {table} (token, grant_id, raised_at, {key}) VALUES (%s, '', %s, %s)"  # noqa: S608
            target.execute(insert, (floor, now_us, self.prefix))
        elif found[0] < floor:
            update = f"UPDATE {table} SET token = %s, raised_at = %s WHERE {key} = %s"  # noqa: S608
            target.execute(update, (floor, now_us, self.prefix))


def _locked(target: Target, table: str, key: str, locking: str) -> list[int]:
    """Lock the row of a key, and return its token if there is one."""
    query = f"SELECT token FROM {table} WHERE {SPELLING[target.kind].key} = %s {locking}".rstrip()  # noqa: S608
    return [int(row[0]) for row in target.execute(query, (key,)).rows]
