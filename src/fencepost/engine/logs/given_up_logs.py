"""What remains of logs that were given up: how many lines each had. The log of the run shows them as not kept."""

from __future__ import annotations

from collections import deque

from fencepost.core.log_chunks import FIRST_OF_TAIL, LogChunk
from fencepost.engine.logs.attempt_log import packed

_NOTHING = packed(b"")


class GivenUpLogs:
    """Those that wait for the ledger, at most so many: the oldest are forgotten. The caller serializes calls."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[LogChunk] = deque()
        self._taken: list[LogChunk] = []  # handed out, and not in the ledger yet

    def __len__(self) -> int:
        return len(self._waiting) + len(self._taken)

    def add(self, chunk: LogChunk) -> None:
        """Keep what remains of a log: a chunk that only counts its lines."""
        self._waiting.append(chunk)
        if len(self._waiting) > self._most:
            self._waiting.popleft()

    def take(self, most: int) -> list[LogChunk]:
        """Return what waits, up to so many. Nothing new while something is handed out."""
        if not self._taken:
            self._taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        return self._taken

    def sent(self) -> int:
        """Note that the ledger has what was handed out; return how many that were."""
        count, self._taken = len(self._taken), []
        return count


def given_up_brief(run_id: int, attempt: int, at_us: int, lines: int) -> LogChunk:
    """Return what remains of a brief log of which nothing is in the ledger."""
    return LogChunk(run_id, attempt, FIRST_OF_TAIL, at_us, 0, 0, lines, _NOTHING)
