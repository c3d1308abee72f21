"""The log of a run."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import datetime

from fencepost.app.records.record import LedgerRecord
from fencepost.core.log_chunks import LogChunk, Position
from fencepost.core.tick import instant


@dataclass(frozen=True, slots=True)
class LogRecord(LedgerRecord):
    """Lines that an attempt wrote, about a second of them.

    `at` is when the first of them was written, by the clock of its node. `missing` is how many lines before them were
    not kept. `text` has no secrets that are recognized, but it may have control sequences. `position` is what to ask
    for next: `log(run_id, after=position)`.
    """

    run_id: int
    attempt: int
    position: str
    at: datetime
    missing: int
    lines: int
    text: str

    @staticmethod
    def of(chunk: LogChunk, *, missing: int, position: Position) -> LogRecord:
        """Make it from a row."""
        text = zlib.decompress(chunk.text).decode("utf-8", "backslashreplace")
        at = instant(chunk.first_at)
        return LogRecord(chunk.run_id, chunk.attempt, str(position), at, missing, chunk.lines, text)
