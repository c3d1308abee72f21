"""``fencepost runs --follow``: prints changes of runs as they happen.

It polls the ledger about once a second for new runs, and for runs seen before that had not ended. A run is
shown again when its state or its attempt has changed. Several changes between two polls are shown as one.

Ids are assigned before transactions commit: a run may appear after others with higher ids. So missing ids are
queried again for a while.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fencepost.cli.documents import document
from fencepost.cli.output import print_line, visible
from fencepost.cli.run_rows import COLUMNS, run_cells
from fencepost.core.states import TERMINAL
from fencepost.errors import NoSuchRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from fencepost.app.operations import Operations
    from fencepost.app.records import RunRecord

_CHANGING = frozenset({"states", "waits_for", "node"})  # a run that is not shown now may be later
_EVERY_S = 1.0  # how late a change is shown; each time, every watched run is queried
_PAGE = 500  # new runs in one query; if there are more, the next query follows at once
_MOST_WATCHED = 100
"""How many of the newest runs that have not ended are polled again. Older ones would cost a query each."""
_MISSING_FOR = timedelta(minutes=10)
"""How long a missing id is queried: a transaction that enqueues rarely takes longer."""
_MOST_MISSING = 1000  # ids in one query; of more missing ids, the highest are kept
_USUAL_WIDTHS = {"state": 9, "due": 20, "late": 5, "took": 5, "token": 16}
"""Minimum widths, so that the head is above its columns even if nothing has run yet."""


class Following:
    """Shows the last runs, then every change, until it is interrupted."""

    def __init__(self, ops: Operations, wanted: Mapping[str, Any], *, as_json: bool) -> None:
        """Show the runs that `ops.runs(**wanted)` would."""
        self._ops = ops
        self._wanted = wanted
        self._any_state = {name: wanted[name] for name in wanted.keys() - _CHANGING}
        self._as_json = as_json
        self._now = ops.now()
        self._watched: dict[int, tuple[str, int]] = {}
        self._last_id = 0
        self._missing: dict[int, datetime] = {}  # missing ids, and until when to query them
        self._widths = [max(len(name), _USUAL_WIDTHS.get(name, 0)) for name in COLUMNS]

    def run(self, limit: int) -> None:
        """Show the last `limit` runs, then follow."""
        latest = self._ops.find_runs(**self._wanted, limit=limit).runs  # of what no index leads to, those it finds
        newest = self._ops.runs(**self._any_state, limit=_MOST_WATCHED)
        if newest:
            self._last_id = newest[-1].id
            self._passed([row.id for row in reversed(newest)])
        for row in newest:
            self._watch(row)
        if not self._as_json:
            for row in latest:
                self._widen(run_cells(row))
            self._print(COLUMNS)
        for row in reversed(latest):
            self._show(row)
        while True:
            self._now = self._ops.now()
            for row in self._changed():
                self._show(row)
            self._ops.runtime.sleep(_EVERY_S)

    def _changed(self) -> Iterator[RunRecord]:
        """Yield runs that have changed since the last poll, the oldest first."""
        for run_id, seen in sorted(self._watched.items()):
            try:
                row = self._ops.run(run_id)
            except NoSuchRun:  # pruned meanwhile
                del self._watched[run_id]
                continue
            if (row.state, row.attempts) != seen:
                self._watch(row)
                yield row
        for row in self._late():
            self._watch(row)
            yield row
        while page := self._ops.runs(**self._any_state, after_id=self._last_id, limit=_PAGE):
            self._passed([row.id for row in page])
            for row in page:
                self._watch(row)
                yield row

    def _passed(self, ids: Sequence[int]) -> None:
        """Continue after the last of these runs, and note which ids before it are missing."""
        until = self._now + _MISSING_FOR
        for low, high in pairwise((self._last_id, *ids)):
            for number in range(max(low + 1, high - _MOST_MISSING), high):
                self._missing[number] = until
        self._last_id = max(ids)

    def _late(self) -> list[RunRecord]:
        """Return runs whose ids were missing and that exist now."""
        kept = sorted(number for number, until in self._missing.items() if until > self._now)[-_MOST_MISSING:]
        self._missing = {number: self._missing[number] for number in kept}
        if not kept:
            return []
        found = self._ops.runs(**self._any_state, ids=kept, after_id=0, limit=len(kept))
        for row in found:
            del self._missing[row.id]
        return found

    def _watch(self, row: RunRecord) -> None:
        if row.state in TERMINAL:
            self._watched.pop(row.id, None)
        else:
            self._watched[row.id] = (row.state, row.attempts)
        while len(self._watched) > _MOST_WATCHED:
            del self._watched[min(self._watched)]

    def _show(self, row: RunRecord) -> None:
        states, waits_for = self._wanted.get("states"), self._wanted.get("waits_for")
        if states and row.state not in states:
            return
        if waits_for is not None and row.waits_for != waits_for:
            return
        if self._wanted.get("node") not in (None, row.node):
            return
        if self._as_json:
            print_line(document(row))
        else:
            self._print(run_cells(row))

    def _print(self, cells: Sequence[str]) -> None:
        """Print a line below the others: a column is as wide as the widest cell so far."""
        shown = self._widen(cells)
        line = "  ".join(cell.ljust(width) for cell, width in zip(shown, self._widths, strict=True))
        print(line.rstrip(), flush=True)

    def _widen(self, cells: Sequence[str]) -> list[str]:
        """Widen the columns for these cells; return the cells as they are shown."""
        shown = [visible(cell) or "–" for cell in cells]
        self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, shown, strict=True)]
        return shown
