"""Where a service keeps its high-water marks. For each key, the mark is the highest accepted token and its grant.

``MemoryMarks`` belong to one process. With several workers each has its own, so a worker that has not seen the newer
token accepts an old one. `RedisMarks` and `fencepost.fence.sql_marks.SqlMarks` are shared.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Protocol

from fencepost.core.fencing import NOTHING_WRITTEN, FencingToken, Mark, refusal
from fencepost.core.runtime import Runtime
from fencepost.errors import LeaseLost
from fencepost.fence.redis import RedisFence

_OF_ONE_RUN = re.compile(r"(ledger:\w+/)?run:\d+")
_RUN_KEPT_FOR = "30d"  # far longer than two attempts at one run can be apart


def is_of_one_run(key: str) -> bool:
    """Whether this is the key of a single run, as runs without an exclusive key send it."""
    return _OF_ONE_RUN.fullmatch(key) is not None


class Stale(NamedTuple):
    """Why a token is refused. `mark` is the mark at that time; None if the token itself is implausible."""

    mark: Mark | None
    why: str


class Marks(Protocol):
    """A store of marks."""

    @property
    def blocks(self) -> bool:
        """Whether `admit` blocks on a round trip, so that an event loop must not call it directly."""
        ...

    def admit(self, offered: FencingToken) -> Stale | None:
        """Compare the token with the mark and raise the mark if the token is higher, atomically. None if accepted."""
        ...


class MemoryMarks:
    """Marks in memory, lost when the process ends. For tests, and for services with one process and one worker."""

    blocks = False

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._marks: dict[str, Mark] = {}

    def admit(self, offered: FencingToken) -> Stale | None:
        """Compare and raise the mark while holding a lock."""
        with self._lock:
            mark = self._marks.get(offered.key)
            why = refusal(mark, offered, now_us=self._runtime.wall_us())
            if why is not None:
                return Stale(mark, why)
            self._marks[offered.key] = Mark(offered.token, offered.grant_id)
        return None


class RedisMarks:
    """Marks in Redis or Valkey, one hash for each key. They are as durable as the server.

    Marks do not expire, with one exception. A run of a job without an exclusive key has a mark of its own. It matters
    only while two attempts at that run can meet, so it expires 30 days after it was last raised.
    """

    blocks = True

    def __init__(self, client: Any, *, prefix: str = "fencepost:fence:") -> None:
        self._client = client
        self._prefix = prefix

    def admit(self, offered: FencingToken) -> Stale | None:
        """Compare and raise the mark in one script."""
        expire = _RUN_KEPT_FOR if is_of_one_run(offered.key) else None
        fence = RedisFence(self._client, f"{self._prefix}{{{offered.key}}}", expire=expire)
        try:
            fence.check(offered)
        except LeaseLost as lost:
            mark = fence.mark()
            return Stale(mark, refusal(mark, offered, now_us=None) or lost.reason.removesuffix(f"; {NOTHING_WRITTEN}"))
        return None
