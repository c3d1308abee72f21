"""Ties a guarded program to a lease: it may run as long as the lease can be trusted, and no longer.

**Promises.** The program's group is told to end (SIGTERM) at the latest `term_grace + kill` before trust ends and is
killed at the latest `kill` before, so that it is dead when the store may let somebody else in. When the store says that
the lease is gone, it is told to end at once. The guardian keeps these times by itself; this loop only moves them.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.core.runtime import GuardedProcess, ProgramExit, Runtime
from fencepost.core.timings import Timings
from fencepost.leases.lease import Lease

_POLLS_PER_RENEWAL = 10
_LONGEST_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class ProgramDeadlines:
    """When a program must be told to end and when it must be killed, on the monotonic clock."""

    term_at: float
    kill_at: float

    @staticmethod
    def of(lease: Lease) -> ProgramDeadlines:
        """Return what the lease's trust allows, unless it is renewed."""
        timings = lease.timings
        return ProgramDeadlines(lease.trusted_until - timings.stop_s, lease.trusted_until - timings.kill_s)

    def now_at(self, now: float, timings: Timings) -> ProgramDeadlines:
        """Return the deadlines of a program that has to end now; its grace must not outlast the old ones."""
        return ProgramDeadlines(now, min(self.kill_at, now + timings.term_grace_s))


def guard(process: GuardedProcess, lease: Lease, *, runtime: Runtime) -> ProgramExit:
    """Let `process` run as long as `lease` lives, and return how it ended."""

    def end_now(_: Lease) -> None:
        at_once = ProgramDeadlines.of(lease).now_at(runtime.monotonic(), lease.timings)
        process.extend(term_at=at_once.term_at, kill_at=at_once.kill_at)

    lease.on_lost(end_now)
    told: ProgramDeadlines | None = None
    pause_s = min(lease.timings.renew_every_s / _POLLS_PER_RENEWAL, _LONGEST_POLL_S)
    while True:
        allowed = ProgramDeadlines.of(lease)
        if allowed != told and not lease.lost:
            process.extend(term_at=allowed.term_at, kill_at=allowed.kill_at)
            told = allowed
        if (ended := process.wait(pause_s)) is not None:
            return ended
