"""Which fence protects a transaction of a run: the run's own row, or a fence row in the database that it writes to.

The ledger's own database is recognized by its identity: a random name in a table, which is read once per process and
database. All other databases have fence rows.

**Not promised.** That a copy of the ledger's database that includes its identity is distinguished from the ledger.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from fencepost.fence.families import Family
from fencepost.fence.fence_row import fence_row
from fencepost.fence.run_row import Fence, FencedRun
from fencepost.fence.writer import TablePlace
from fencepost.ledger.identity import identity
from fencepost.ledger.naming import run_floor
from fencepost.sql.troubles import NO_TABLES, trouble_of

if TYPE_CHECKING:
    from fencepost.engine.attempt import Attempt
    from fencepost.fence.sources.source import Source
    from fencepost.ledger.ledger import Ledger

_MOST_REMEMBERED = 1000  # bounds memory; a forgotten name is asked for again


def run_row(attempt: Attempt, ledger: Ledger) -> FencedRun:
    """Return the fence in the ledger's own database."""
    tables, claim = ledger.tables, attempt.claim
    return FencedRun(tables.name("run"), tables.name("check_run"), claim.run_id, claim.token, attempt.label)


def fence_of(attempt: Attempt, source: Source) -> Fence:
    """Return the fence for a source that is open."""
    ledger = attempt.context.ledger()
    if is_the_ledgers(source, ledger):
        return run_row(attempt, ledger)
    schema = ledger.url.schema if source.target.kind == "postgresql" else None
    shown, former = attempt.shown()
    row = fence_row(shown, TablePlace(ledger.url.prefix, schema), what=attempt.label, former=former)
    if attempt.claim.exclusive_key is not None:
        return row
    return replace(row, family=Family(attempt.context.naming().run_fences, lambda: run_floor(ledger)))


def is_the_ledgers(source: Source, ledger: Ledger) -> bool:
    """Whether a source that is open leads to the ledger's own database."""
    if source.target.kind != ledger.url.kind:
        return False
    place, remembered = source.place, _remembered(ledger)
    if place is None:
        return _has_identity(source, ledger)
    known = remembered.get(place)
    if known is None:
        known = _has_identity(source, ledger)
        remembered.put(place, known=known)
    return known


def is_known_to_be_the_ledgers(source: Source, ledger: Ledger) -> bool:
    """Whether a source, open or not, was found before to lead to the ledger's own database."""
    place = source.place
    return place is not None and _remembered(ledger).get(place) is True


class _Places:
    """Which databases are the ledger's. It does not keep engines alive."""

    def __init__(self) -> None:
        self._of_engines: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        self._of_names: dict[Hashable, bool] = {}

    def get(self, place: Hashable) -> bool | None:
        return self._of_names.get(place) if isinstance(place, tuple) else self._of_engines.get(place)

    def put(self, place: Hashable, *, known: bool) -> None:
        if not isinstance(place, tuple):
            self._of_engines[place] = known
            return
        if len(self._of_names) >= _MOST_REMEMBERED:
            self._of_names.clear()
        self._of_names[place] = known


_places: WeakKeyDictionary[Ledger, _Places] = WeakKeyDictionary()


def _remembered(ledger: Ledger) -> _Places:
    found = _places.get(ledger)
    return found if found is not None else _places.setdefault(ledger, _Places())


def _has_identity(source: Source, ledger: Ledger) -> bool:
    """Read the identity in a separate transaction, because a missing table aborts it."""
    table = ledger.tables.name("identity")
    source.begin("read committed")
    try:
        rows = source.target.execute(f"SELECT id FROM {table}").rows  # noqa: S608 - a checked identifier
    except Exception as error:
        if trouble_of(error) in NO_TABLES:
            return False
        raise
    finally:
        source.roll_back()
    return bool(rows) and str(rows[0][0]) == identity(ledger)
