"""A fenced transaction in the ledger's own database, where the run's row is the fence."""

from __future__ import annotations

from typing import Any

from fencepost.fence.fence_options import FenceOptions
from fencepost.fence.run_row import FencedRun
from fencepost.fence.sources import source_of
from fencepost.fence.transaction import FencedTransaction


class LedgerTransaction(FencedTransaction):
    """A fenced transaction on `source`: an engine or a connection of any supported kind to the ledger's database."""

    def __init__(self, source: Any, row: FencedRun, terms: FenceOptions) -> None:
        super().__init__(source_of(source), lambda _: row, terms)
