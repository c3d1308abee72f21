"""``fencepost runs --follow``: what happens, as it happens.

The ledger is asked about once a second for runs that are new, and for those seen before that had not ended. A run is
shown again whenever its state or its attempt has changed; what came and went within that second is shown once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fencepost.cli.drawing import print_line, visible
from fencepost.cli.run_rows import Seen, run_cells, run_fields
from fencepost.core.states import TERMINAL
from fencepost.errors import NoSuchRun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fencepost.ledger.history import RunFilter, RunRow
    from fencepost.ledger.ledger import Ledger

_EVERY_S = 1.0
_PAGE = 500
_MOST_WATCHED = 100
"""Of runs that have not ended, the newest so many are looked at again; those behind them would cost a query each."""


class Following:
    """Shows the last runs, then every change, until it is interrupted."""

    def __init__(self, ledger: Ledger, wanted: RunFilter, *, as_json: bool) -> None:
        self._ledger = ledger
        self._wanted = wanted
        self._any_state = replace(wanted, states=(), waits_for=None)
        self._as_json = as_json
        self._seen = Seen.of(ledger)
        self._watched: dict[int, tuple[str, int]] = {}
        self._last_id = 0

    def run(self, limit: int) -> None:
        """Show the last `limit` runs, then follow."""
        latest = self._ledger.runs(self._wanted, limit=limit)
        newest = self._ledger.runs(self._any_state, limit=_MOST_WATCHED)
        self._last_id = max((row.id for row in newest), default=0)
        for row in newest:
            self._watch(row)
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
                row = self._ledger.run(run_id)
            except NoSuchRun:  # pruned meanwhile
                del self._watched[run_id]
                continue
            if (row.state, row.attempts) != seen:
                self._watch(row)
                yield row
        while page := self._ledger.runs(self._any_state, after_id=self._last_id, limit=_PAGE):
            for row in page:
                self._last_id = row.id
                self._watch(row)
                yield row

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
        if row.node is not None and row.node not in self._seen.nodes:
            self._seen = Seen.of(self._ledger)
        if self._as_json:
            print_line(run_fields(row, self._seen))
        else:
            print(visible("  ".join(cell or "–" for cell in run_cells(row, self._seen))), flush=True)
