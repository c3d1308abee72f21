"""The last processed number of a sequence, changed by compare-and-swap in the transaction that did the processing.

::

    feed = Sequence("bank-feed")
    with run.transaction() as tx:
        last = feed.last(tx)
        batch = rows_after(last)
        ...                                              # process the batch in tx
        feed.advance(tx, after=last, to=batch[-1].number)

**Promises.** `advance` succeeds only if the sequence is still at the number that the caller read. Of two callers that
read the same number, the second waits for the first and gets `SequenceConflict`, and its effects are rolled back. A
sequence never goes back.

**Not promised.** As with idempotency keys, under *repeatable read* and *serializable* the second may get the database's
serialization failure instead.
"""

from __future__ import annotations

import json
from typing import Any

from fencepost.core.identity import fitted
from fencepost.core.keyed import note_key
from fencepost.errors import InvalidName, SequenceConflict
from fencepost.fence.effect_statements import EffectStatements
from fencepost.fence.writer import current_writer


class Sequence:
    """A named sequence, in the database of the transaction that is passed to each call.

    Args:
        name: the name of the sequence, the same for all that process it.
        prefix: the prefix of the effect tables there; by default that of the current run's ledger.
        schema: the schema of these tables, on PostgreSQL; the same default.
    """

    def __init__(self, name: str, *, prefix: str | None = None, schema: str | None = None) -> None:
        if not name:
            raise InvalidName("the name of a sequence must be a non-empty string")
        self.name = name
        self._row = fitted(f"sequence:{name}")
        self._prefix = prefix
        self._schema = schema

    def __repr__(self) -> str:
        return f"Sequence({self.name!r})"

    def last(self, tx: Any) -> int | None:
        """Return the last processed number; None if there is none yet."""
        return self._read(self._landing(tx), lock="")

    def advance(self, tx: Any, *, after: int | None, to: int) -> None:
        """Set the last processed number to `to`. Raise `SequenceConflict` if it is not `after`."""
        _check(after, to)
        landing = self._landing(tx)
        note_key(tx)
        moved = self._begin(landing, to) if after is None else self._move(landing, after, to)
        if not moved:
            raise SequenceConflict(self.name, expected=after, found=self._read(landing, lock=landing.past_snapshot))

    def _landing(self, tx: Any) -> EffectStatements:
        return EffectStatements(tx, current_writer(self._prefix, self._schema))

    def _read(self, landing: EffectStatements, *, lock: str) -> int | None:
        query = f"SELECT position FROM {landing.table('checkpoint')} WHERE name = %s{lock}"  # noqa: S608 - ours
        rows = landing.execute(query, [self._row]).rows
        return int(json.loads(rows[0][0])) if rows else None

    def _begin(self, landing: EffectStatements, to: int) -> bool:
        values: dict[str, tuple[str, list[Any]]] = {
            "name": ("%s", [self._row]),
            "position": ("%s", [str(to)]),
            "token": ("%s", [landing.writer.token]),
            "updated_at": (landing.now, []),
        }
        return landing.insert("checkpoint", values)

    def _move(self, landing: EffectStatements, after: int, to: int) -> bool:
        sets = f"position = %s, token = %s, updated_at = {landing.now}"
        statement = f"UPDATE {landing.table('checkpoint')} SET {sets} WHERE name = %s AND position = %s"  # noqa: S608 - ours
        return landing.execute(statement, [str(to), landing.writer.token, self._row, str(after)]).count == 1


def _check(after: object, to: object) -> None:
    for number in (to, *(() if after is None else (after,))):
        if not isinstance(number, int) or isinstance(number, bool):
            raise TypeError(f"the numbers of a sequence must be integers, not {number!r}")
    if after is not None and to <= after:  # type: ignore[operator]
        raise ValueError(f"a sequence only goes up: to={to} must be greater than after={after}")
