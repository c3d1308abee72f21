"""The lease machine: when a holder may trust its session, and what it has to do next. No input, no output.

It is told what happened, each time with a monotonic reading, and answers with what to do::

                 granted                    renewed
      (new) ───────────────▶ HELD ◀────────────────────┐
                              │ │                      │
              tick: trust ran │ │ tick: renewal due    │
              out, or refused │ └──────▶ [Renew] ──────┤
                              ▼                        │ unknown: try again soon
      ended ◀──────────────  LOST                      └─────────────
             (released)        [StepDown]

**Promises.** `trusted_until = sent_at + ttl − margin`, where `sent_at` was read *before* the request left.
The store begins to count its ttl when the request arrives, so it lets nobody else in before
`sent_at + ttl`: trust ends first, by the margin, however long the reply took. Trust that ended is never
regained: a renewal that is answered late does not revive a holder that may already have been stopped.

**Not promised.** That the holder *notices* in time: a process that is paused notices when it wakes up.
That is what fences are for.

An unanswered renewal is neither success nor loss. Trust simply runs out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fencepost.core.timings import Timings

RAN_OUT = "trust ran out: the store did not confirm a renewal in time"
"""The reason for which a session ends of which nobody said that it is gone."""


class Phase(Enum):
    """Where a session stands."""

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
    """Nothing to do before this monotonic reading."""

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
        """When work that takes its time to end has to be told, so that it is dead when trust ends."""
        return self.trusted_until - self.timings.stop_s

    def granted(self, *, sent_at: float, now: float) -> StepDown | WakeAt:
        """Begin: the store opened the session, in answer to a request sent at `sent_at`."""
        if self.phase is not Phase.NEW:
            raise RuntimeError(f"granted in phase {self.phase.value}")
        self.phase = Phase.HELD
        self._extend(sent_at)
        return self._outlook(now)

    def tick(self, now: float) -> Effect:
        """Time has passed: step down, renew, or sleep."""
        effect = self._outlook(now)
        if self.phase is Phase.HELD and not self._in_flight and now >= self._renew_at:
            self._in_flight = True
            return Renew()
        return effect

    def expire(self, now: float) -> StepDown | WakeAt:
        """Time has passed, and only trust is asked about: for whoever watches while a renewal hangs."""
        if self.phase is not Phase.HELD:
            return WakeAt(float("inf"))
        if now >= self.trusted_until:
            return self._lose(RAN_OUT)
        return WakeAt(self.trusted_until)

    def renewed(self, *, sent_at: float, now: float) -> StepDown | WakeAt:
        """Note that the store confirmed a renewal. After trust has run out it comes too late."""
        self._in_flight = False
        if self.is_trusted_at(now):
            self._extend(sent_at)
        return self._outlook(now)

    def unknown(self, now: float) -> StepDown | WakeAt:
        """Note that a renewal was not answered, or with an error: try again soon."""
        self._in_flight = False
        self._renew_at = now + self.timings.retry_every_s
        return self._outlook(now)

    def refused(self, reason: str) -> Effect:
        """Note that the store says the session is no longer ours."""
        self._in_flight = False
        if self.phase is not Phase.HELD:
            return WakeAt(float("inf"))
        return self._lose(reason)

    def released(self) -> None:
        """End: the session was closed by its owner."""
        if self.phase is not Phase.LOST:
            self.phase = Phase.ENDED
            self.reason = "released"

    def _outlook(self, now: float) -> StepDown | WakeAt:
        """Say what comes next without beginning it: only `tick` begins a renewal, for only its caller sends one."""
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
