"""Where a service keeps its high-water marks: one for each key, the highest token that was let in, and its grant.

``MemoryMarks`` are those of one process: with several workers each has its own, and an old token gets in by a worker
that has not seen the newer one. `RedisMarks` and `fencepost.fence.sql_marks.SqlMarks` are shared.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Protocol

from fencepost.core.fencing import NOTHING_WRITTEN, FencingToken, Mark, refusal
from fencepost.core.runtime import Runtime
from fencepost.errors import LeaseLost
from fencepost.fence.redis import RedisFence

_OF_ONE_RUN = re.compile(r"(ledger:\w+/)?run:\d+")
_RUN_KEPT_FOR = "30d"


def is_of_one_run(key: str) -> bool:
    """Whether a key is that of a run which excludes nobody, as runs show it."""
    return _OF_ONE_RUN.fullmatch(key) is not None


class Stale(NamedTuple):
    """A token that is refused, and why. `mark` is the one it met; None if it was not believed at all."""

    mark: Mark | None
    why: str


class Marks(Protocol):
    """A store of marks."""

    @property
    def blocks(self) -> bool:
        """Whether asking takes a round trip: then an event loop must not wait for it."""
        ...

    def admit(self, offered: FencingToken) -> Stale | None:
        """Compare, and raise the mark if the token is higher, in one step. None if it may write."""
        ...


class MemoryMarks:
    """Marks of one process, gone with it. For tests, and for services that run as one process with one worker."""

    blocks = False

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._marks: dict[str, Mark] = {}

    def admit(self, offered: FencingToken) -> Stale | None:
        """Compare and raise, under a lock."""
        with self._lock:
            mark = self._marks.get(offered.key)
            why = refusal(mark, offered, now_us=self._runtime.wall_us())
            if why is not None:
                return Stale(mark, why)
            self._marks[offered.key] = Mark(offered.token, offered.grant_id)
        return None


class RedisMarks:
    """Marks in Redis or Valkey, one hash for each key, which do not expire. As durable as the server is.

    But those of single runs do, of jobs that exclude nobody: there is one for each run, and it is of use only while
    two attempts at that run can meet. It is kept for 30 days after the last of them.
    """

    blocks = True

    def __init__(self, client: Any, *, prefix: str = "fencepost:fence:") -> None:
        self._client = client
        self._prefix = prefix

    def admit(self, offered: FencingToken) -> Stale | None:
        """Compare and raise, in one script."""
        expire = _RUN_KEPT_FOR if is_of_one_run(offered.key) else None
        fence = RedisFence(self._client, f"{self._prefix}{{{offered.key}}}", expire=expire)
        try:
            fence.check(offered)
        except LeaseLost as lost:
            mark = fence.mark()
            return Stale(mark, refusal(mark, offered, now_us=None) or lost.reason.removesuffix(f"; {NOTHING_WRITTEN}"))
        return None
