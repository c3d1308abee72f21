"""`Runtime.guarded` and the loop that ties it to a lease, without the command around them."""

import os
import signal
from collections.abc import Iterator

import pytest

from fencepost import locks
from fencepost.core.runtime import GuardedProcess, ProgramExit
from fencepost.core.timings import Timings
from fencepost.leases.guard import ProgramDeadlines, guard
from fencepost.leases.lease import Lease
from fencepost.threaded import ThreadedRuntime
from testbed.wait import until
from tests.cli.command import LONG_S, parent_of

RUNTIME = ThreadedRuntime()
TIMINGS = Timings.of("30s")


@pytest.fixture
def sleeping() -> Iterator[GuardedProcess]:
    process = started("sleep", "60")
    yield process
    process.extend(term_at=0, kill_at=0)
    process.wait(LONG_S)


def started(*argv: str, lasts_s: float = 60.0) -> GuardedProcess:
    at = RUNTIME.monotonic() + lasts_s
    return RUNTIME.guarded(argv, env=dict(os.environ), term_at=at, kill_at=at + 1)


def test_an_order_to_end_is_not_undone_by_a_late_extension(sleeping: GuardedProcess) -> None:
    guardian = parent_of(sleeping.pid)
    os.kill(guardian, signal.SIGSTOP)  # so that it reads both at once
    now = RUNTIME.monotonic()
    sleeping.extend(term_at=now, kill_at=now + 1)
    sleeping.extend(term_at=now + 60, kill_at=now + 61)
    os.kill(guardian, signal.SIGCONT)
    ended = sleeping.wait(LONG_S)
    assert ended == ProgramExit(-signal.SIGTERM, "its trust was not extended")


def test_nothing_is_started_after_its_time() -> None:
    ended = started("touch", "/no/such", lasts_s=-1).wait(LONG_S)
    assert ended is not None
    assert ended.forced == "its trust ended before it was started"


def test_waiting_ends_with_its_timeout_and_the_program_runs_on(sleeping: GuardedProcess) -> None:
    assert sleeping.wait(0.01) is None
    sleeping.signal(signal.SIGUSR1)
    assert sleeping.wait(LONG_S) == ProgramExit(-signal.SIGUSR1)
    assert sleeping.wait(0) == ProgramExit(-signal.SIGUSR1)
    sleeping.signal(signal.SIGUSR1)  # to nobody, and harmless


def test_a_failed_start_leaves_no_guardian_and_no_pipe() -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        started("no-such-program")
    assert set(os.listdir("/proc/self/fd")) == before


def test_an_ended_program_leaves_no_pipe() -> None:
    before = set(os.listdir("/proc/self/fd"))
    assert started("true").wait(LONG_S) == ProgramExit(0)
    assert set(os.listdir("/proc/self/fd")) == before


class Recorded:
    """A program that notes what it is told, and ends when told to."""

    pid = 1

    def __init__(self) -> None:
        self.told: list[ProgramDeadlines] = []

    def extend(self, *, term_at: float, kill_at: float) -> None:
        self.told.append(ProgramDeadlines(term_at, kill_at))

    def signal(self, number: int) -> None:
        raise NotImplementedError

    def wait(self, timeout: float) -> ProgramExit | None:
        RUNTIME.sleep(min(timeout, 0.01))
        return ProgramExit(0, "told") if self.told and self.told[-1].term_at <= RUNTIME.monotonic() else None


class TestGuard:
    @pytest.fixture
    def store(self) -> Iterator[locks.Locks]:
        with locks.connect("memory://") as store:
            yield store

    def test_deadlines_leave_time_to_die_before_trust_ends(self, store: locks.Locks) -> None:
        lease = store.lock("x").acquire()
        deadlines = ProgramDeadlines.of(lease)
        assert lease.trusted_until - deadlines.kill_at == pytest.approx(TIMINGS.kill_s)
        assert deadlines.kill_at - deadlines.term_at == pytest.approx(TIMINGS.term_grace_s)

    def test_a_lost_lease_ends_the_program_at_once(self, store: locks.Locks) -> None:
        lease = store.lock("x").acquire()
        process, ended = Recorded(), []
        task = RUNTIME.spawn("guard", lambda: ended.append(_guard(process, lease)))
        until(lambda: process.told, LONG_S)
        assert process.told == [ProgramDeadlines.of(lease)]
        lost_at = RUNTIME.monotonic()
        store.revoke("x")
        with pytest.raises(locks.LeaseLost):
            lease.check()
        task.join(LONG_S)
        assert ended == [ProgramExit(0, "told")]
        assert lost_at <= process.told[-1].term_at <= RUNTIME.monotonic()
        assert process.told[-1].kill_at == pytest.approx(process.told[-1].term_at + TIMINGS.term_grace_s)

    def test_every_renewal_moves_the_deadlines(self, store: locks.Locks) -> None:
        lease = store.lock("x", ttl="3s").acquire()  # a busy machine loses a shorter one
        process = Recorded()
        task = RUNTIME.spawn("guard", lambda: _guard(process, lease))
        until(lambda: len(process.told) >= 4, LONG_S)
        lease.end("enough")
        task.join(LONG_S)
        extensions = process.told[:-1]
        assert extensions == sorted(extensions, key=lambda told: told.term_at)
        assert len(set(extensions)) == len(extensions)


def _guard(process: Recorded, lease: Lease) -> ProgramExit:
    return guard(process, lease, runtime=RUNTIME)
