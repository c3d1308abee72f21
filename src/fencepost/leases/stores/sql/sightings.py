"""Records since when each session has been unchanged, by this process's own clock.

A database judges expiry by its own clock, and that clock may be stepped forward: then every live session looks expired
until its next renewal. So a process may end the session of a node only if it has itself seen it without a renewal for a
whole ttl, on a clock that cannot be set (`CLOCK_BOOTTIME`), *in addition* to the database's clock. `expires_at` is the
mark: every renewal changes it.

**Promises.** `spared_s` is 0 only if the mark was seen unchanged over the session's whole ttl. The holder's trust began
before the write of the mark, so it has ended by then.

**Not promised.** That a process can distinguish a dead session from a live one when it sees it for the first time.
"""

from __future__ import annotations

from collections import OrderedDict

from fencepost.core.runtime import Runtime

_REMEMBERED = 5000  # sessions; beyond that, those that were not seen lately are forgotten
_WATCHED_WITHIN_S = 600.0  # sessions that are being watched are seen far more often than this


class Sightings:
    """What this process has seen of sessions. Can be used from any thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._seen: OrderedDict[str, tuple[int, float, float]] = OrderedDict()  # mark, since when, seen last

    def __len__(self) -> int:
        """How many sessions are remembered."""
        return len(self._seen)

    def spared_s(self, session_id: str, *, mark: int, ttl_us: int) -> float:
        """Record a mark that was just read; return how much longer it must stay the same before the session may end."""
        now = self._runtime.monotonic()
        with self._lock:
            known, since, _ = self._seen.get(session_id, (None, now, now))
            if known != mark:
                since = now
            self._seen[session_id] = (mark, since, now)
            self._seen.move_to_end(session_id)
            if len(self._seen) > _REMEMBERED:
                self._forget_one(now)
        return max(0.0, since + ttl_us / 1_000_000 - now)

    def _forget_one(self, now: float) -> None:
        """Forget the session that was seen the longest ago, unless it is being watched."""
        session_id, (_, _, seen_at) = next(iter(self._seen.items()))
        if now - seen_at > _WATCHED_WITHIN_S:
            del self._seen[session_id]  # may cost another ttl, but never ends a live session

    def forget(self) -> None:
        """In a forked child: replace the lock, which a thread of the parent may have held."""
        self._lock = self._runtime.lock()
