"""``fencepost runs --follow``: what happens, as it happens.

The ledger is asked about once a second for runs that are new, and for those seen before that had not ended. A run is
shown again whenever its state or its attempt has changed; what came and went within that second is shown once.

Numbers are given before transactions commit: a run may appear after others with higher numbers. So those that were
passed over are asked for again, for a while.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from fencepost.cli.output import print_line, visible
from fencepost.cli.run_rows import COLUMNS, RunListContext, run_cells, run_fields
from fencepost.core.states import TERMINAL
from fencepost.errors import NoSuchRun
from fencepost.ledger import history

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fencepost.ledger.history import RunFilter, RunRow
    from fencepost.ledger.ledger import Ledger

_EVERY_S = 1.0
_PAGE = 500
_MOST_WATCHED = 100
"""Of runs that have not ended, the newest so many are looked at again; those behind them would cost a query each."""
_MISSING_FOR_US = 600_000_000
"""For how long a number that was passed over is asked for: a transaction that enqueues seldom takes longer."""
_MOST_MISSING = 1000
_USUAL_WIDTHS = {"state": 9, "due": 20, "late": 5, "took": 5, "token": 16}
"""So that the head stands above its columns also where nothing has run yet."""


class Following:
    """Shows the last runs, then every change, until it is interrupted."""

    def __init__(self, ledger: Ledger, wanted: RunFilter, *, as_json: bool) -> None:
        self._ledger = ledger
        self._wanted = wanted
        self._any_state = replace(wanted, states=(), waits_for=None)
        self._as_json = as_json
        self._seen = RunListContext.of(ledger)
        self._watched: dict[int, tuple[str, int]] = {}
        self._last_id = 0
        self._missing: dict[int, int] = {}  # numbers that were passed over, and until when to ask for them
        self._widths = [max(len(name), _USUAL_WIDTHS.get(name, 0)) for name in COLUMNS]

    def run(self, limit: int) -> None:
        """Show the last `limit` runs, then follow."""
        latest = history.runs(self._ledger, self._wanted, limit=limit)
        newest = history.runs(self._ledger, self._any_state, limit=_MOST_WATCHED)
        if newest:
            self._last_id = newest[-1].id
            self._passed([row.id for row in reversed(newest)])
        for row in newest:
            self._watch(row)
        if not self._as_json:
            for row in latest:
                self._widen(self._cells(row))
            self._print(COLUMNS)
        for row in reversed(latest):
            self._show(row)
        while True:
            self._seen = replace(self._seen, now_us=self._ledger.now_us())
            for row in self._changed():
                self._show(row)
            self._ledger.runtime.sleep(_EVERY_S)

    def _changed(self) -> Iterator[RunRow]:
        """Yield runs that look different from the last time, the oldest first."""
        for run_id, seen in sorted(self._watched.items()):
            try:
                row = history.run(self._ledger, run_id)
            except NoSuchRun:  # pruned meanwhile
                del self._watched[run_id]
                continue
            if (row.state, row.attempts) != seen:
                self._watch(row)
                yield row
        for row in self._late():
            self._watch(row)
            yield row
        while page := history.runs(self._ledger, self._any_state, after_id=self._last_id, limit=_PAGE):
            self._passed([row.id for row in page])
            for row in page:
                self._watch(row)
                yield row

    def _passed(self, ids: Sequence[int]) -> None:
        """Go on behind the last of these; note which numbers before it were not there."""
        until_us = self._seen.now_us + _MISSING_FOR_US
        for low, high in pairwise((self._last_id, *ids)):
            for number in range(max(low + 1, high - _MOST_MISSING), high):
                self._missing[number] = until_us
        self._last_id = max(ids)

    def _late(self) -> list[RunRow]:
        """Return runs whose numbers had been passed over, and which are there now."""
        now_us = self._seen.now_us
        kept = sorted(number for number, until_us in self._missing.items() if until_us > now_us)[-_MOST_MISSING:]
        self._missing = {number: self._missing[number] for number in kept}
        if not kept:
            return []
        found = history.runs(self._ledger, replace(self._any_state, ids=kept), after_id=0, limit=len(kept))
        for row in found:
            del self._missing[row.id]
        return found

    def _watch(self, row: RunRow) -> None:
        if row.state in TERMINAL:
            self._watched.pop(row.id, None)
        else:
            self._watched[row.id] = (row.state, row.attempts)
        while len(self._watched) > _MOST_WATCHED:
            del self._watched[min(self._watched)]

    def _show(self, row: RunRow) -> None:
        if self._wanted.states and row.state not in self._wanted.states:
            return
        if self._wanted.waits_for is not None and row.waits_for != self._wanted.waits_for:
            return
        cells = self._cells(row)
        if self._as_json:
            print_line(run_fields(row, self._seen))
        else:
            self._print(cells)

    def _cells(self, row: RunRow) -> Sequence[str]:
        if row.node is not None and row.node not in self._seen.nodes:
            self._seen = RunListContext.of(self._ledger)
        return run_cells(row, self._seen)

    def _print(self, cells: Sequence[str]) -> None:
        """Print a line below the others: a column is as wide as the widest cell so far."""
        shown = self._widen(cells)
        line = "  ".join(cell.ljust(width) for cell, width in zip(shown, self._widths, strict=True))
        print(line.rstrip(), flush=True)

    def _widen(self, cells: Sequence[str]) -> list[str]:
        """Make room for these cells; return them as they are shown."""
        shown = [visible(cell) or "–" for cell in cells]
        self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, shown, strict=True)]
        return shown
