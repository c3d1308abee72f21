"""A fenced transaction whose fence is known beforehand: a run's row, in the ledger's own database."""

from __future__ import annotations

from typing import Any

from fencepost.fence.fence_options import FenceOptions
from fencepost.fence.run_row import FencedRun
from fencepost.fence.sources import source_of
from fencepost.fence.transaction import FencedTransaction


class LedgerTransaction(FencedTransaction):
    """Enter it for what `source` gives: an engine, or a connection to the ledger's database, of any kind we take."""

    def __init__(self, source: Any, row: FencedRun, terms: FenceOptions) -> None:
        super().__init__(source_of(source), lambda _: row, terms)
