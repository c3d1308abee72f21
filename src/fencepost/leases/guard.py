"""Limits a guarded program to a lease: it runs only while the lease can be trusted.

**Promises.** The program's process group gets SIGTERM at the latest `term_grace + kill` before trust ends, and is
killed at the latest `kill` before trust ends. So it is dead before the store may grant the lock to another holder. When
the store reports that the lease is lost, the group gets SIGTERM at once. The guardian enforces these deadlines by
itself; this loop only moves them.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.core.runtime import GuardedProcess, ProgramExit, Runtime
from fencepost.core.timings import Timings
from fencepost.leases.lease import Lease

_POLLS_PER_RENEWAL = 10  # a renewal moves the deadlines with a delay of at most a tenth of the renewal interval
_LONGEST_POLL_S = 1.0  # so that long intervals do not delay it by more than this


@dataclass(frozen=True, slots=True)
class ProgramDeadlines:
    """When to send SIGTERM to a program and when to kill it, on the monotonic clock."""

    term_at: float
    kill_at: float

    @staticmethod
    def of(lease: Lease) -> ProgramDeadlines:
        """Return the deadlines that follow from the lease's trust, if it is not renewed."""
        timings = lease.timings
        return ProgramDeadlines(lease.trusted_until - timings.stop_s, lease.trusted_until - timings.kill_s)

    def now_at(self, now: float, timings: Timings) -> ProgramDeadlines:
        """Return the deadlines of a program that must end now. It is killed no later than before."""
        return ProgramDeadlines(now, min(self.kill_at, now + timings.term_grace_s))


def guard(process: GuardedProcess, lease: Lease, *, runtime: Runtime) -> ProgramExit:
    """Let `process` run while `lease` is held, and return how it ended."""

    def end_now(_: Lease) -> None:
        at_once = ProgramDeadlines.of(lease).now_at(runtime.monotonic(), lease.timings)
        process.extend(term_at=at_once.term_at, kill_at=at_once.kill_at)

    lease.on_lost(end_now)
    current: ProgramDeadlines | None = None
    pause_s = min(lease.timings.renew_every_s / _POLLS_PER_RENEWAL, _LONGEST_POLL_S)
    while True:
        allowed = ProgramDeadlines.of(lease)
        if allowed != current and not lease.lost:
            process.extend(term_at=allowed.term_at, kill_at=allowed.kill_at)
            current = allowed
        if (ended := process.wait(pause_s)) is not None:
            return ended
