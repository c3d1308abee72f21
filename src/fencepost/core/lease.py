"""The lease machine: decides when a holder may trust its session and what to do next. Without input or output.

Each call reports what happened, with a monotonic reading, and returns what to do::

                 granted                    renewed
      (new) ───────────────▶ HELD ◀────────────────────┐
                              │ │                      │
              tick: trust ran │ │ tick: renewal due    │
              out, or refused │ └──────▶ [Renew] ──────┤
                              ▼                        │ unknown: retry soon
      ended ◀──────────────  LOST                      └─────────────
             (released)        [StepDown]

**Promises.** `trusted_until = sent_at + ttl − margin`, where `sent_at` was read *before* the request was sent. The
store starts counting its ttl when the request arrives, so it grants the lock to no other holder before
`sent_at + ttl`. Trust ends earlier than that, by the margin, however long the reply took. Trust that has ended is never
regained: a late reply to a renewal does not revive a holder that may already have been stopped.

**Not promised.** That the holder *notices* in time: a paused process notices when it resumes. Use fences for that.

A renewal without a reply is neither a success nor a loss. Trust runs out, unless a later one succeeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fencepost.core.timings import Timings

RAN_OUT = "trust ran out: the store did not confirm a renewal in time"
"""The reason of a session that ended without the store reporting its loss."""


class Phase(Enum):
    """The phase of a session."""

    NEW = "new"
    HELD = "held"
    LOST = "lost"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Renew:
    """Send a renewal now."""


@dataclass(frozen=True, slots=True)
class StepDown:
    """Stop acting under this session, at once."""

    reason: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Do nothing before this monotonic reading."""

    at: float


Effect = Renew | StepDown | WakeAt


class LeaseMachine:
    """The state of one session. The caller serializes the calls."""

    __slots__ = ("_in_flight", "_renew_at", "phase", "reason", "timings", "trusted_until")

    def __init__(self, timings: Timings) -> None:
        self.timings = timings
        self.phase = Phase.NEW
        self.reason: str | None = None
        self.trusted_until = float("-inf")
        self._renew_at = float("inf")
        self._in_flight = False

    def is_trusted_at(self, now: float) -> bool:
        """Whether the holder may act at `now`."""
        return self.phase is Phase.HELD and now < self.trusted_until

    @property
    def stop_work_at(self) -> float:
        """When to begin to stop the work, so that it has ended when trust ends."""
        return self.trusted_until - self.timings.stop_s

    def granted(self, *, sent_at: float, now: float) -> StepDown | WakeAt:
        """Start: the store opened the session, in reply to a request sent at `sent_at`."""
        if self.phase is not Phase.NEW:
            raise RuntimeError(f"granted in phase {self.phase.value}")
        self.phase = Phase.HELD
        self._extend(sent_at)
        return self._outlook(now)

    def tick(self, now: float) -> Effect:
        """Return what to do at `now`: step down, renew, or wait."""
        effect = self._outlook(now)
        if self.phase is Phase.HELD and not self._in_flight and now >= self._renew_at:
            self._in_flight = True
            return Renew()
        return effect

    def expire(self, now: float) -> StepDown | WakeAt:
        """Return whether to step down at `now`, without starting a renewal. For the watcher, while a renewal hangs."""
        if self.phase is not Phase.HELD:
            return WakeAt(float("inf"))
        if now >= self.trusted_until:
            return self._lose(RAN_OUT)
        return WakeAt(self.trusted_until)

    def renewed(self, *, sent_at: float, now: float) -> StepDown | WakeAt:
        """Record that the store confirmed a renewal. After trust has run out, this has no effect."""
        self._in_flight = False
        if self.is_trusted_at(now):
            self._extend(sent_at)
        return self._outlook(now)

    def unknown(self, now: float) -> StepDown | WakeAt:
        """Record that a renewal got no reply or an error: retry soon."""
        self._in_flight = False
        self._renew_at = now + self.timings.retry_every_s
        return self._outlook(now)

    def refused(self, reason: str) -> Effect:
        """Record that the store reported the loss of the session."""
        self._in_flight = False
        if self.phase is not Phase.HELD:
            return WakeAt(float("inf"))
        return self._lose(reason)

    def released(self) -> None:
        """End the session, because its owner closed it."""
        if self.phase is not Phase.LOST:
            self.phase = Phase.ENDED
            self.reason = "released"

    def _outlook(self, now: float) -> StepDown | WakeAt:
        """Return what comes next without starting a renewal: only `tick` may, because only its caller sends one."""
        effect = self.expire(now)
        if isinstance(effect, StepDown) or self.phase is not Phase.HELD or self._in_flight:
            return effect
        return WakeAt(min(self._renew_at, self.trusted_until))

    def _extend(self, sent_at: float) -> None:
        self.trusted_until = max(self.trusted_until, sent_at + self.timings.trust_s)
        self._renew_at = sent_at + self.timings.renew_every_s

    def _lose(self, reason: str) -> StepDown:
        self.phase = Phase.LOST
        self.reason = reason
        return StepDown(reason)
