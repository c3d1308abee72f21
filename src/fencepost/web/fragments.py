"""The parts of pages that change, shared for a second by all who may see the same.

A hundred open tabs ask for the same part when something changes. The first one is drawn from the ledger, the others get
a copy. The key has the whole address and the permissions of the caller: two who may see different jobs share nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from fencepost.core.runtime import Mutex, Runtime
    from fencepost.web.visits import Visit

SHARED_S = 1.0  # how old a part may be: the ledger is asked for changes as often (`ASK_EVERY_S`)
_MOST_KEPT = 200  # parts in memory, one for each address and set of permissions; the one unused longest goes first


class _Shared:
    """One part, and the lock under which it is drawn."""

    def __init__(self, lock: Mutex) -> None:
        self.lock = lock
        self.at = float("-inf")
        self.body = b""
        self.kind = ""


class Fragments:
    """The parts that were drawn within the last second."""

    def __init__(self, runtime: Runtime, version: Callable[[], int]) -> None:
        """Measure by the clock of `runtime`. `version` counts hints: what was drawn before one does not answer it."""
        self._runtime = runtime
        self._version = version
        self._lock = runtime.lock()
        self._kept: dict[object, _Shared] = {}

    def get(self, visit: Visit, draw: Callable[[], Response]) -> Response:
        """Return what `draw` returns, or a copy of what it returned within the last second for the same key."""
        shared = self._shared(
            (self._version(), visit.root_path, visit.path, tuple(visit.query.items()), visit.ask.scope_key)
        )
        with shared.lock:
            if self._runtime.monotonic() - shared.at < SHARED_S:
                return Response(shared.body, media_type=shared.kind)
            drawn = draw()
            if drawn.status_code == 200:
                shared.body, shared.kind = bytes(drawn.body), drawn.headers["content-type"]
                shared.at = self._runtime.monotonic()
            return drawn

    def _shared(self, key: object) -> _Shared:
        with self._lock:
            found = self._kept.pop(key, None) or _Shared(self._runtime.lock())
            self._kept[key] = found
            while len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            return found
