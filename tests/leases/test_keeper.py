"""What keeps a lease, at its edges: slow answers, failing callbacks, interruptions, forks, and threads that cross."""

import asyncio
import contextvars
import gc
import os
import select
import signal
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from fencepost.core.events import Event, What
from fencepost.core.grants import AlreadyDone, Grant, Held, Lost, Renewed, Session
from fencepost.core.runtime import Task
from fencepost.errors import InvalidDuration, LeaseLost, StoreClosed, StoreUnavailable
from fencepost.leases.lease import Lease
from fencepost.leases.locks import Locks
from fencepost.leases.stores.memory import MemoryStore
from fencepost.testing import FaultyStore, Stopwatch, until
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore(RUNTIME)


@pytest.fixture
def heard() -> list[Event]:
    return []


@pytest.fixture
def store(memory: MemoryStore, heard: list[Event]) -> Iterator[Locks]:
    connected = Locks(memory, runtime=RUNTIME, observers=[heard.append])
    yield connected
    connected.close()


def count(heard: list[Event], what: What) -> int:
    return sum(event.what is what for event in heard)


# -- renewal -----------------------------------------------------------------------------------------------------------


def test_a_renewal_that_took_longer_than_the_renewal_interval_is_followed_by_another(
    store: Locks, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch, heard: list[Event]
) -> None:
    renew = memory.renew

    def slow(session: Session, grants: Any) -> Renewed | Lost:
        outcome = renew(session, grants)
        RUNTIME.sleep(0.3)
        return outcome

    monkeypatch.setattr(memory, "renew", slow)
    with store.lock("a", ttl=15, renew_every=0.2, call_timeout=0.5) as lease:
        until(lambda: count(heard, What.RENEWED) >= 6 or lease.lost, 30, "it is renewed again and again")
        assert not lease.lost


# -- callbacks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_callback_that_raises_keeps_nobody_else_from_being_told(
    store: Locks, memory: MemoryStore, heard: list[Event], error: type[BaseException]
) -> None:
    def broken(_: Lease) -> None:
        raise error("no")

    told: list[str] = []
    for name in ("a", "b", "c"):
        lease = store.lock(name, ttl=0.6).acquire()
        lease.on_lost(broken)
        lease.on_lost(lambda lost: told.append(lost.name))
    memory.wipe()
    until(lambda: len(told) == 3, 30, "all are told")
    until(lambda: count(heard, What.LOST) == 3, 30, "each loss is an event")
    assert count(heard, What.OBSERVER_FAILED) == 3


def test_closing_frees_everything_although_a_callback_raises(store: Locks, memory: MemoryStore) -> None:
    def broken(_: Lease) -> None:
        raise ValueError("no")

    store.lock("a").acquire().on_lost(broken)
    store.close()
    record = memory.read("a")
    assert record is not None
    assert not record.is_held


# -- the current lease -------------------------------------------------------------------------------------------------


def test_a_lock_left_in_another_context_than_it_was_entered_is_free(store: Locks) -> None:
    lock = store.lock("a")
    contextvars.copy_context().run(lock.__enter__)
    lock.__exit__(None, None, None)
    assert store.try_lock("a") is not None


def test_an_async_lock_left_in_another_context_than_it_was_entered_is_free(store: Locks) -> None:
    async def ticks() -> AsyncIterator[int]:
        async with store.lock("a"):
            yield 1

    async def main() -> None:
        generator = ticks()

        async def first() -> None:
            await anext(generator)

        await asyncio.create_task(first())
        await generator.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())
    assert store.try_lock("a") is not None


# -- async -------------------------------------------------------------------------------------------------------------


def is_free(memory: MemoryStore, name: str) -> bool:
    record = memory.read(name)
    return record is not None and not record.is_held


def test_a_lock_got_in_the_moment_of_cancellation_is_given_back(
    store: Locks, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is there, the task has not resumed yet, and then it is cancelled: it never sees the result."""

    async def enter() -> None:
        async with store.lock("a"):
            pytest.fail("it was cancelled")

    async def main() -> None:
        task = asyncio.create_task(enter())
        loop = asyncio.get_running_loop()
        call_soon_threadsafe = loop.call_soon_threadsafe

        def and_cancel(call: Callable[..., object], *arguments: Any) -> object:
            def both() -> None:
                call(*arguments)
                task.cancel()

            return call_soon_threadsafe(both)

        monkeypatch.setattr(loop, "call_soon_threadsafe", and_cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        monkeypatch.undo()

    asyncio.run(main())
    until(lambda: is_free(memory, "a"), 30, "the lock is given back")


def test_a_lock_got_when_the_loop_is_closed_is_given_back(
    store: Locks, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop takes the result and is closed before it delivers it."""

    async def enter() -> None:
        async with store.lock("a"):
            pytest.fail("the loop was closed")

    loop = asyncio.new_event_loop()
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *_: None)
    task = loop.create_task(enter())
    loop.run_until_complete(asyncio.sleep(0.2))
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    gc.collect()
    until(lambda: is_free(memory, "a"), 30, "the lock is given back")


def test_a_lock_that_is_given_back_was_never_held_at_least(store: Locks) -> None:
    async def main() -> None:
        first = store.lock("a").acquire()
        task = asyncio.create_task(store.lock("a", wait=20, at_least=60).__aenter__())
        await asyncio.sleep(0.05)
        task.cancel()
        first.release()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    store.lock("a", wait=30).acquire()


def test_a_cancelled_waiter_stops_waiting(store: Locks) -> None:
    def waiters() -> int:
        return sum(thread.name == "fencepost-async" for thread in threading.enumerate())

    async def main() -> None:
        store.lock("a").acquire()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), store.lock("a", wait="1h"):
                pytest.fail("it is held")

    asyncio.run(main())
    until(lambda: waiters() == 0, 30, "its thread ends")


def test_loss_is_told_as_such_in_a_task_that_was_cancelled_before(store: Locks) -> None:
    async def clean_up() -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            try:
                async with store.lock("a", ttl=0.6):
                    store.revoke("a")
                    await asyncio.sleep(30)
            except LeaseLost:
                return "told"
        return "not told"

    async def main() -> str:
        task = asyncio.create_task(clean_up())
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(main()) == "told"


def test_an_outer_timeout_is_told_as_such_although_the_lease_was_lost_meanwhile(
    store: Locks, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with asyncio.timeout(None) as timeout:
            async with store.lock("a", ttl=0.6) as lease:
                await asyncio.sleep(0)
                slow = lease.release
                monkeypatch.setattr(lease, "release", lambda **given: (RUNTIME.sleep(0.5), slow(**given))[1])
                try:
                    store.revoke("a")
                    await asyncio.sleep(30)
                finally:  # the loss has cancelled us; the timeout comes while the lock is left
                    timeout.reschedule(asyncio.get_running_loop().time() + 0.1)

    with pytest.raises(TimeoutError):
        asyncio.run(main())


def test_a_lock_object_that_two_share_gives_neither_the_lease_of_the_other(store: Locks, memory: MemoryStore) -> None:
    shared = store.lock("a", wait=20)
    with shared:
        thread_error: list[BaseException] = []

        def enter() -> None:
            try:
                shared.__enter__()
            except RuntimeError as error:
                thread_error.append(error)

        thread = threading.Thread(target=enter, daemon=True)
        thread.start()
        thread.join(15)
        assert thread_error
    waiting = store.lock("a", wait=30)
    first = store.lock("a").acquire()
    thread = threading.Thread(target=waiting.__enter__, daemon=True)
    thread.start()
    until(lambda: memory._waiters.get("a"), 30, "it waits")
    with pytest.raises(RuntimeError, match="already in use"):  # it is being waited for
        waiting.__enter__()
    first.release()
    thread.join(30)
    waiting.__exit__(None, None, None)
    with waiting:  # one after the other is no harm
        pass


# -- release and check, crossed and interrupted ------------------------------------------------------------------------


def test_two_releases_at_once_are_one_release_and_no_loss(
    store: Locks, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch, heard: list[Event]
) -> None:
    lease = store.lock("a").acquire()
    release, second = memory.release, list[bool]()

    def crossed(grant: Grant, **given: Any) -> bool:
        thread = threading.Thread(target=lambda: second.append(lease.release()))
        thread.start()
        thread.join()
        return release(grant, **given)

    monkeypatch.setattr(memory, "release", crossed)
    assert lease.release()
    assert second == [False]
    assert not lease.lost
    assert count(heard, What.LOST) == 0
    assert count(heard, What.RELEASED) == 1


def test_two_releases_are_one_although_both_begin_before_either_goes_on(
    memory: MemoryStore, heard: list[Event]
) -> None:
    """Both threads look at the clock at the same moment, in the middle of `release`."""

    class Crossing(ThreadedRuntime):
        barrier: threading.Barrier | None = None

        def monotonic(self) -> float:
            if self.barrier is not None and threading.current_thread().name.startswith("releaser"):
                try:
                    self.barrier.wait(0.3)
                except threading.BrokenBarrierError:
                    self.barrier = None
            return super().monotonic()

    runtime = Crossing()
    with Locks(memory, runtime=runtime, observers=[heard.append]) as store:
        lease = store.lock("a").acquire()
        runtime.barrier = threading.Barrier(2)
        answers: list[bool] = []
        threads = [
            threading.Thread(target=lambda: answers.append(lease.release()), name=f"releaser-{each}")
            for each in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == [False, True]
        assert not lease.lost
        assert count(heard, What.LOST) == 0


def test_a_check_crossed_by_a_release_is_no_loss(
    store: Locks, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch, heard: list[Event]
) -> None:
    lease = store.lock("a").acquire()
    missing = memory.missing

    def late(grants: Any) -> frozenset[str]:
        lease.release()
        return missing(grants)

    monkeypatch.setattr(memory, "missing", late)
    with pytest.raises(LeaseLost, match="released"):
        lease.check()
    assert not lease.lost
    assert count(heard, What.LOST) == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_release_that_ends_with_any_exception_is_repeated(
    store: Locks, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    other = store.lock("b").acquire()  # keeps the session alive
    lease = store.lock("a").acquire()
    release, errors = memory.release, [error("in the middle")]

    def interrupted(grant: Grant, **given: Any) -> bool:
        if errors:
            raise errors.pop()
        return release(grant, **given)

    monkeypatch.setattr(memory, "release", interrupted)
    with pytest.raises(error):
        lease.release()
    until(lambda: is_free(memory, "a"), 30, "the release is repeated")
    assert not other.lost


def test_an_owed_release_keeps_the_name_closed_no_longer_than_was_asked(memory: MemoryStore) -> None:
    faulty = FaultyStore(memory, call_timeout_s=0.1)
    with Locks(faulty, runtime=RUNTIME) as store:
        lease = store.lock("a", ttl=60, renew_every=2, retry_every=0.4, at_least=1.5).acquire()
        with Stopwatch() as took:
            faulty.hang()
            lease.release()
            RUNTIME.sleep(1.0)
            faulty.heal()
            store.lock("a", ttl=60, wait=30).acquire()
        assert took.whole_s >= 1.4
        assert took.awake_s <= 2.2


# -- interruptions, and stores that keep nothing -----------------------------------------------------------------------


class _Interrupt:
    """Raises KeyboardInterrupt at the nth call of a function of ours: where CPython looks for signals."""

    def __init__(self, nth: int) -> None:
        self._left = nth
        self.at = ""

    def __call__(self, frame: FrameType, what: str, _: object) -> None:
        code = frame.f_code
        if "/fencepost/leases/" not in code.co_filename or what != "call":
            return
        self._left -= 1
        if self._left == 0:
            sys.settrace(None)
            self.at = code.co_qualname
            raise KeyboardInterrupt


def test_an_interruption_at_any_call_leaves_no_lock_behind(store: Locks, memory: MemoryStore) -> None:
    other = store.lock("other").acquire()  # keeps the session alive, and with it all that hangs on it
    before, nth = sys.gettrace(), 0
    points: list[str] = []
    while not points or points[-1]:
        nth += 1
        interrupt = _Interrupt(nth)
        sys.settrace(interrupt)
        try:
            with store.lock("a", wait=30):
                pass
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        points.append(interrupt.at)
        if interrupt.at == "Lock.__exit__":  # before its first line: no context manager can help that
            assert store.revoke("a")
        until(lambda: not (record := memory.read("a")) or not record.is_held, 30, f"free after {interrupt.at}")
    assert len(points) > 30
    assert not other.lost


def test_a_store_that_keeps_no_session_is_not_asked_for_ever(
    store: Locks, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "acquire", lambda *_, **__: Lost("never heard of it"))
    with pytest.raises(StoreUnavailable, match="in a row"):
        store.lock("a").acquire()


# -- forks, and owners that go before what they gave -------------------------------------------------------------------


def in_child(work: Callable[[], object]) -> str:
    """Fork, and return what `work` answers in the child; nothing if it does not within some seconds."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, str(work()).encode())
        os._exit(0)
    os.close(writer)
    has_answered = select.select([reader], [], [], 5)[0]
    answer = os.read(reader, 1000).decode() if has_answered else ""
    os.close(reader)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return answer


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_tells_nobody_of_a_loss_that_is_none(store: Locks, heard: list[Event]) -> None:
    lease = store.lock("a").acquire()
    told: list[str] = []
    lease.on_lost(lambda lost: told.append(lost.name))
    before = len(heard)
    assert in_child(lambda: (lease.lost, told, len(heard) - before)) == str((True, [], 0))
    assert not lease.lost


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_another_thread_is_in_the_middle_of_a_lease_does_not_hang_the_child(store: Locks) -> None:
    lease = store.lock("a").acquire()
    with lease._ending:
        assert in_child(lambda: lease.lost) == "True"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_lease_outlives_the_last_reference_to_its_store(memory: MemoryStore) -> None:
    store = Locks(memory, runtime=RUNTIME)
    gone = weakref.ref(store)
    lease = store.lock("a").acquire()
    del store
    gc.collect()
    assert in_child(lambda: lease.lost) == "True"
    owner = gone()
    assert owner is not None, "nobody is left to release at exit"
    owner.close()


# -- trust -------------------------------------------------------------------------------------------------------------


class _Hesitant(ThreadedRuntime):
    """A runtime whose renewer can be paused just after it has looked at the clock."""

    def __init__(self) -> None:
        self.pause_s = 0.0

    def monotonic(self) -> float:
        now = super().monotonic()
        if self.pause_s and threading.current_thread().name == "fencepost-renewer":
            pause_s, self.pause_s = self.pause_s, 0.0
            self.sleep(pause_s)
        return now


def test_a_lease_that_was_seen_lost_does_not_stay_held(memory: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The renewal is confirmed in time by a clock that was read just before trust ended, and noted after."""
    runtime = _Hesitant()
    renew = memory.renew

    def and_pause(session: Session, grants: Any) -> Renewed | Lost:
        outcome = renew(session, grants)
        runtime.pause_s = 0.6
        monkeypatch.setattr(memory, "renew", renew)
        return outcome

    with Locks(memory, runtime=runtime) as store:
        lease = store.lock("a", ttl=0.9).acquire()
        trusted_until = lease.trusted_until
        monkeypatch.setattr(memory, "renew", and_pause)
        until(lambda: RUNTIME.monotonic() > trusted_until, 30, "trust runs out unless the renewal counts")
        was_lost = lease.lost
        RUNTIME.sleep(1.5)
        assert lease.lost == was_lost
        assert is_free(memory, "a") == was_lost


# -- elections, and waiting --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["stop", "resign", "close"])
def test_an_election_may_be_ended_from_its_own_on_lost(store: Locks, heard: list[Event], act: str) -> None:
    returned: list[str] = []

    def on_lost() -> None:
        (store.close if act == "close" else getattr(election, act))()
        returned.append(act)

    election = store.election("planner", ttl=0.6, on_lost=on_lost)
    until(lambda: election.is_leader, 30, "it leads")
    election.resign()
    assert returned == [act]
    assert count(heard, What.OBSERVER_FAILED) == 0
    election.stop()


@pytest.mark.parametrize("error", [SystemExit, ValueError])
def test_a_callback_that_raises_anything_leaves_the_leadership_free(
    store: Locks, memory: MemoryStore, heard: list[Event], error: type[BaseException]
) -> None:
    def broken() -> None:
        raise error("no")

    election = store.election("planner", ttl=0.6, on_elected=broken, on_lost=broken)
    until(lambda: (record := memory.read("planner")) and not record.is_held, 30, "it makes room")
    until(lambda: count(heard, What.ELECTED) >= 2, 30, "it stands again")
    election.stop()


def test_a_candidate_survives_whatever_a_watch_throws(
    store: Locks, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(held: Held, timeout_s: float) -> None:
        raise OSError("driver bug")

    monkeypatch.setattr(memory, "wait_change", broken)
    with store.lock("planner"):
        election = store.election("planner", ttl=0.6)
        until(lambda: election.leader, 30, "it stands by")
        RUNTIME.sleep(0.2)
    until(lambda: election.is_leader, 30, "it leads")


def test_a_refusal_that_says_free_now_is_asked_again_at_once(
    store: Locks, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire, refusals = memory.acquire, [Held("a", None, 0, free_in_s=0.0)]

    def faster(*asked: Any, **given: Any) -> Grant | Held | AlreadyDone | Lost:
        return refusals.pop() if refusals else acquire(*asked, **given)

    monkeypatch.setattr(memory, "acquire", faster)
    asked_at = RUNTIME.monotonic()
    store.lock("a", wait=20).acquire()
    assert RUNTIME.monotonic() - asked_at < 10


# -- what is owed, and what is over ------------------------------------------------------------------------------------


class _LateStore(FaultyStore):
    """An acquisition is given up by its caller and takes effect only after the release that was to undo it."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(RUNTIME), call_timeout_s=0.2)
        self.late: list[Callable[[], object]] = []

    def acquire(self, session: Session, name: str, **wishes: Any) -> Any:
        if name != "late":
            return super().acquire(session, name, **wishes)
        self.late.append(lambda: FaultyStore.acquire(self, session, name, **wishes))
        raise StoreUnavailable("too slow")

    def release(self, grant: Grant, **how: Any) -> bool:
        was_held = super().release(grant, **how)
        while grant.name == "late" and not was_held and self.late:
            self.late.pop()()
        return was_held


def test_a_grant_that_arrives_after_its_release_does_not_stay() -> None:
    store = _LateStore()
    locks = Locks(store, runtime=RUNTIME)
    with locks.lock("a lease that keeps the session alive", ttl=3):
        with pytest.raises(StoreUnavailable):
            locks.lock("late", ttl=3).acquire()
        until(lambda: "late" in str(store.read("late")), 30, "the request arrives late")
        until(lambda: not (record := store.read("late")) or not record.is_held, 30, "it is given back all the same")
    locks.close()


def test_closing_settles_what_is_owed_so_that_a_tick_stays_done() -> None:
    store = FaultyStore(MemoryStore(RUNTIME), call_timeout_s=0.2)
    locks = Locks(store, runtime=RUNTIME)
    with locks.lock("a", ttl=30, tick="2026-01-01T00:00Z"):
        store.hang()
    store.heal()
    locks.close()
    record = store.read("a")
    assert record is not None
    assert record.last_tick_us is not None
    assert not record.is_held


def test_a_closed_store_gives_no_more_locks() -> None:
    locks = Locks(MemoryStore(RUNTIME), runtime=RUNTIME)
    before = locks.lock("a")
    locks.close()
    with pytest.raises(StoreClosed):
        before.acquire()
    with pytest.raises(StoreClosed):
        locks.lock("a")


def test_a_candidate_that_is_stopped_while_it_is_elected_does_not_lead() -> None:
    store = FaultyStore(MemoryStore(RUNTIME))
    locks = Locks(store, runtime=RUNTIME)
    calls: list[str] = []
    asked, may_answer = RUNTIME.event(), RUNTIME.event()
    acquire = store.acquire

    def slowly(*args: Any, **wishes: Any) -> Any:
        outcome = acquire(*args, **wishes)
        asked.set()
        may_answer.wait(30)
        return outcome

    store.acquire = slowly  # type: ignore[method-assign]
    election = locks.election("planner", on_elected=lambda: calls.append("elected"))
    assert asked.wait(30)
    election.stop()
    may_answer.set()
    until(lambda: not (record := store.read("planner")) or not record.is_held, 30, "it gives back what it got")
    assert calls == []
    locks.close()


class _SlowLeaders(ThreadedRuntime):
    """A machine on which the leader's thread is slow to get its first turn."""

    def spawn(self, name: str, work: Callable[[], None]) -> Task:
        def slowly() -> None:
            threading.Event().wait(0.3 if name.startswith("fencepost-leader") else 0)
            work()

        return super().spawn(name, slowly)


def test_on_lost_never_comes_before_on_elected(memory: MemoryStore) -> None:
    store = Locks(memory, runtime=_SlowLeaders())
    calls: list[str] = []
    election = store.election(
        "planner", on_elected=lambda: calls.append("elected"), on_lost=lambda: calls.append("lost")
    )
    until(lambda: election._lease, 30, "it is elected")
    election.stop()
    until(lambda: len(calls) == 2, 30, "both are called")
    assert calls == ["elected", "lost"]
    store.close()


@pytest.mark.parametrize("ttl", [True, [1]])
def test_what_is_no_duration_is_refused_whatever_was_asked_before(ttl: object) -> None:
    locks = Locks(MemoryStore(RUNTIME), runtime=RUNTIME)
    locks.lock("a", ttl=1)
    with pytest.raises(InvalidDuration):
        locks.lock("a", ttl=ttl)  # type: ignore[arg-type]


# -- a store that forgets ----------------------------------------------------------------------------------------------


def test_a_release_that_the_store_has_forgotten_is_repeated_by_whoever_meets_it(
    store: Locks, memory: MemoryStore
) -> None:
    with store.lock("other", ttl="10s") as other:  # keeps the session alive: nothing becomes free by its end
        store.lock("job", ttl="10s").acquire().release()
        with store.lock("job", ttl="10s"):
            before = memory._entries["job"]
        memory._entries["job"] = before  # as after a failover to a replica that had not heard of the release
        with store.lock("job", ttl="10s", wait="5s") as lease:
            assert lease.token > before.token
        assert not other.lost
