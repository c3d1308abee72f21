"""Since when each session has looked the same, by this process's own clock.

A database judges expiry by its own clock, and that clock may be stepped: forward, and every session that lives looks
expired until it is renewed. So whoever ends the session of a node must have seen it unrenewed for a whole ttl itself,
on a clock that nobody sets (`CLOCK_BOOTTIME`), *in addition* to what the database's clock says. `expires_at` is the
mark: every renewal writes another.

**Promises.** `spared_s` is 0 only if the mark was seen, and seen to be the same, over the session's whole ttl. The
holder's trust began before the write that made the mark, so it has ended by then.

**Not promised.** That a process which looks for the first time can tell a dead session from a living one. It cannot.
"""

from __future__ import annotations

from collections import OrderedDict

from fencepost.core.runtime import Runtime

_REMEMBERED = 5000  # and all that were seen lately
_WATCHED_WITHIN_S = 600.0


class Sightings:
    """What this process has seen of sessions. May be used from any thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._seen: OrderedDict[str, tuple[int, float, float]] = OrderedDict()  # mark, since when, seen last

    def __len__(self) -> int:
        """How many sessions are remembered."""
        return len(self._seen)

    def spared_s(self, session_id: str, *, mark: int, ttl_us: int) -> float:
        """Note what was just read; return for how much longer it has to look like that before it may be ended."""
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
        """Forget the session that was seen the longest ago, if that is long: one that is watched must be remembered."""
        session_id, (_, _, seen_at) = next(iter(self._seen.items()))
        if now - seen_at > _WATCHED_WITHIN_S:
            del self._seen[session_id]  # may cost one more ttl, never a wrong end

    def forget(self) -> None:
        """In a forked child: no lock can be trusted to be free."""
        self._lock = self._runtime.lock()
