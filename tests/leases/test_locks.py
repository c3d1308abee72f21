"""What users hold, on the memory store: locks, exclusive functions, the asynchronous face, and failures in between."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost import App, locks
from fencepost.core.events import Event, What
from fencepost.errors import InvalidName, InvalidTimings, LeaseLost, LockHeld, StoreUnavailable, TickDone
from fencepost.leases.exclusive_options import ExclusiveOptions, LockWishes
from fencepost.leases.locks import Locks
from fencepost.leases.stores.memory import MemoryStore
from fencepost.testing import FaultyStore, until
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()


@pytest.fixture
def faulty() -> FaultyStore:
    return FaultyStore(MemoryStore(RUNTIME), call_timeout_s=0.2)


@pytest.fixture
def heard() -> list[Event]:
    return []


@pytest.fixture
def store(faulty: FaultyStore, heard: list[Event]) -> Iterator[Locks]:
    connected = Locks(faulty, runtime=RUNTIME, observers=[heard.append])
    yield connected
    faulty.heal()
    connected.close()


def whats(heard: list[Event]) -> list[What]:
    return [event.what for event in heard]


# -- with ------------------------------------------------------------------------------------------------------------


def test_a_lock_is_held_inside_and_free_outside(store: Locks) -> None:
    before = locks.current_lease()
    with store.lock("a") as lease:
        assert not lease.lost
        assert locks.current_lease() is lease
        assert store.try_lock("a") is None
    assert locks.current_lease() is before
    second = store.try_lock("a")
    assert second is not None
    with second:
        assert second.token > lease.token


def test_the_body_s_error_comes_out_and_the_lock_is_free(store: Locks) -> None:
    with pytest.raises(ZeroDivisionError), store.lock("a"):
        _ = 1 // 0
    assert store.try_lock("a") is not None


def test_a_body_that_outlived_its_lease_is_told(store: Locks) -> None:
    with pytest.raises(LeaseLost, match="revoked"), store.lock("a") as lease:
        store.revoke("a")
        with pytest.raises(LeaseLost):
            lease.check()


def test_an_error_of_the_body_is_not_hidden_by_the_loss(store: Locks) -> None:
    with pytest.raises(ZeroDivisionError), store.lock("a"):
        store.revoke("a")
        _ = 1 // 0


def test_a_lock_object_is_entered_once(store: Locks) -> None:
    lock = store.lock("a")
    with lock, pytest.raises(RuntimeError, match="already in use"):
        lock.__enter__()


def test_release_may_come_early_and_twice(store: Locks) -> None:
    with store.lock("a") as lease:
        assert lease.release()
        assert not lease.release()
        assert not lease.lost
        with pytest.raises(LeaseLost, match="released"):
            lease.check()
        assert store.try_lock("a") is not None


@pytest.mark.parametrize(
    ("wishes", "error"),
    [
        ({"name": "x" * 10240}, InvalidName),
        ({"name": "a", "ttl": "10s", "renew_every": "9s"}, InvalidTimings),
        ({"name": "a", "ttl": "10ms"}, InvalidTimings),
    ],
)
def test_bad_wishes_are_refused_before_the_store_is_asked(
    store: Locks, faulty: FaultyStore, wishes: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        store.lock(**wishes)  # type: ignore[arg-type]
    assert faulty.calls == {}


# -- events ----------------------------------------------------------------------------------------------------------


def test_every_step_is_an_event(store: Locks, heard: list[Event]) -> None:
    with store.lock("a") as lease, pytest.raises(LockHeld):
        store.lock("a").acquire()
    assert whats(heard) == [What.ACQUIRED, What.REFUSED, What.RELEASED]
    assert {event.token for event in heard} == {lease.token}
    assert all(event.lock == "a" and event.holder == store.holder for event in heard)


def test_an_observer_that_fails_disturbs_nobody(store: Locks, heard: list[Event]) -> None:
    def broken(event: Event) -> None:
        raise ValueError("no")

    store.observe(broken)
    with store.lock("a"):
        pass
    assert What.OBSERVER_FAILED in whats(heard)
    assert What.RELEASED in whats(heard)


def test_events_are_logged_with_their_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fencepost.leases"), locks.connect("memory://") as store, store.lock("a b"):
        pass
    acquired = next(record for record in caplog.records if record.getMessage().startswith("acquired"))
    assert "lock='a b'" in acquired.getMessage()
    assert acquired.fencepost["event"] == "acquired"  # type: ignore[attr-defined]
    assert acquired.fencepost["token"] > 0  # type: ignore[attr-defined]


# -- what the store does not answer ------------------------------------------------------------------------------------


def test_an_error_while_acquiring_means_no_lock_and_leaves_none_behind(store: Locks, faulty: FaultyStore) -> None:
    with store.lock("warm"):
        pass
    faulty.lose_replies()
    with pytest.raises(StoreUnavailable), store.lock("a"):
        pytest.fail("the body ran")
    faulty.heal()
    until(lambda: store.try_lock("a"), 30, "what was got unknowingly is given back")


def test_an_unanswered_release_is_repeated_until_it_is_answered(
    store: Locks, faulty: FaultyStore, heard: list[Event]
) -> None:
    with store.lock("a"):
        faulty.hang()
    assert whats(heard)[-1] is What.RELEASE_UNANSWERED
    faulty.heal()
    until(lambda: store.try_lock("a"), 30, "the release is repeated")


def test_a_renewer_that_meets_any_exception_goes_on(
    store: Locks, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch, heard: list[Event]
) -> None:
    renew, failures = faulty.renew, iter([KeyError("driver bug"), OSError("reset")])

    def sometimes(session: object, grants: object) -> object:
        for failure in failures:
            raise failure
        return renew(session, grants)  # type: ignore[arg-type]

    monkeypatch.setattr(faulty, "renew", sometimes)
    with store.lock("a", ttl=15, renew_every=0.5, retry_every=0.2) as lease:
        until(lambda: What.RENEWED in whats(heard), 30, "a renewal gets through")
        assert not lease.lost


def test_renewals_that_are_not_answered_are_told_once_and_so_is_the_next_that_is(
    store: Locks, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch, heard: list[Event]
) -> None:
    renew, answers = faulty.renew, iter([False, False, True, False])

    def sometimes(session: object, grants: object) -> object:
        if not next(answers, True):
            raise OSError("reset")
        return renew(session, grants)  # type: ignore[arg-type]

    monkeypatch.setattr(faulty, "renew", sometimes)
    with store.lock("a", ttl=15, renew_every=0.5, retry_every=0.2):
        until(lambda: whats(heard).count(What.RENEWAL_ANSWERED) == 2, 30, "the second outage is over, too")
    told = [what for what in whats(heard) if what in (What.RENEWAL_UNANSWERED, What.RENEWAL_ANSWERED)]
    assert told == [What.RENEWAL_UNANSWERED, What.RENEWAL_ANSWERED] * 2


def test_loss_is_told_once_to_everybody_who_asked(store: Locks, faulty: FaultyStore, heard: list[Event]) -> None:
    lease = store.lock("a", ttl=0.6).acquire()
    told: list[str] = []
    lease.on_lost(lambda lost: told.append(lost.name))
    faulty.hang()
    until(lambda: told, 30, "the loss is told")
    lease.on_lost(lambda lost: told.append("late"))
    assert told == ["a", "late"]
    assert whats(heard).count(What.LOST) == 1
    assert lease.lost_reason is not None
    assert "trust ran out" in lease.lost_reason
    assert lease.release() is False


def test_a_session_is_closed_when_nobody_needs_it(store: Locks, faulty: FaultyStore) -> None:
    with store.lock("a", ttl=0.3):
        pass
    until(lambda: faulty.calls.get("close"), 30, "the idle session is closed")
    with store.lock("a", ttl=0.3):
        assert faulty.calls["open"] == 2


# -- exclusive functions -----------------------------------------------------------------------------------------------


def test_exclusive_runs_one_per_name_and_says_when_it_skipped(store: Locks, heard: list[Event]) -> None:
    @store.exclusive("report:{account}")
    def report(account: int, again: bool = True) -> object:
        return report(account, again=False) if again else "ran"

    skipped = report(7)
    assert isinstance(skipped, locks.Skipped)
    assert not skipped
    assert skipped.lock == "report:7"
    assert "held by" in skipped.reason
    assert What.SKIPPED in whats(heard)
    assert report(7, again=False) == "ran"
    assert report.__name__ == "report"


def test_exclusive_functions_of_other_arguments_run_side_by_side(store: Locks) -> None:
    @store.exclusive("report:{account}")
    def report(account: int) -> object:
        return account and report(account - 1)

    assert report(2) == 0


def test_exclusive_works_on_coroutines(store: Locks) -> None:
    @store.exclusive("job")
    async def job() -> object:
        return store.try_lock("job")

    async def main() -> object:
        return await job()

    assert asyncio.run(main()) is None
    assert store.try_lock("job") is not None


def test_exclusive_tick_is_skipped_when_done(store: Locks) -> None:
    @store.exclusive("daily", tick="2026-01-01T00:00Z")
    def daily() -> str:
        return "ran"

    assert daily() == "ran"
    assert isinstance(daily(), locks.Skipped)


def test_a_refusal_from_inside_the_function_is_not_swallowed(store: Locks) -> None:
    @store.exclusive("outer")
    def outer() -> None:
        with store.lock("inner"), store.lock("inner"):
            pass

    with pytest.raises(LockHeld, match="inner"):
        outer()


def test_a_name_with_an_unknown_parameter_is_refused_at_once(store: Locks) -> None:
    with pytest.raises(InvalidName, match="not a parameter"):

        @store.exclusive("report:{acount}")
        def report(account: int) -> None: ...


def test_generators_are_refused(store: Locks) -> None:
    with pytest.raises(TypeError, match="generator"):

        @store.exclusive("g")
        def g() -> Iterator[int]:
            yield 1


# -- async -------------------------------------------------------------------------------------------------------------


def test_async_with_holds_and_frees(store: Locks) -> None:
    async def main() -> None:
        async with store.lock("a") as lease:
            assert locks.current_lease() is lease
            with pytest.raises(LockHeld):
                async with store.lock("a"):
                    pytest.fail("two inside")
        async with store.lock("a", tick="2026-01-01T00:00Z"):
            pass
        with pytest.raises(TickDone):
            async with store.lock("a", tick="2026-01-01T00:00Z"):
                pytest.fail("twice")

    asyncio.run(main())


def test_async_waiters_do_not_block_the_loop(store: Locks) -> None:
    inside, most = 0, 0

    async def visit() -> None:
        nonlocal inside, most
        async with store.lock("a", wait=20):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    async def main() -> None:
        await asyncio.gather(*(visit() for _ in range(50)))

    asyncio.run(main())
    assert most == 1


def test_loss_cancels_the_task_and_raises_lease_lost(store: Locks, faulty: FaultyStore) -> None:
    async def main() -> str:
        try:
            async with store.lock("a", ttl=0.6):
                faulty.hang()
                await asyncio.sleep(30)
        except LeaseLost:
            await asyncio.sleep(0)  # the task itself goes on
            return "told"
        return "slept"

    assert asyncio.run(main()) == "told"


def test_somebody_else_s_cancellation_stays_one(store: Locks) -> None:
    async def main() -> None:
        async def work() -> None:
            async with store.lock("a"):
                entered.set()
                await asyncio.sleep(30)

        entered = asyncio.Event()
        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert store.try_lock("a") is not None


def test_a_lock_got_after_the_waiter_was_cancelled_is_given_back(store: Locks) -> None:
    async def main() -> None:
        lease = store.lock("a").acquire()

        async def wait() -> None:
            async with store.lock("a", wait=20):
                pytest.fail("it was cancelled")

        task = asyncio.create_task(wait())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        lease.release()
        again = await asyncio.to_thread(store.lock("a", wait=30).acquire)
        again.release()

    asyncio.run(main())


# -- elections ---------------------------------------------------------------------------------------------------------


def test_a_leader_that_cannot_lead_makes_room(store: Locks, heard: list[Event]) -> None:
    def broken() -> None:
        raise ValueError("cannot lead")

    with store.election("planner", ttl=0.6, on_elected=broken):
        until(lambda: What.RESIGNED in whats(heard), 30, "it resigns")
    resigned = next(event for event in heard if event.what is What.RESIGNED)
    assert "cannot lead" in (resigned.reason or "")


def test_an_election_survives_an_outage_of_the_store(store: Locks, faulty: FaultyStore) -> None:
    lost: list[int] = []
    with store.election("planner", ttl=0.6, on_lost=lambda lease: lost.append(lease.token)) as election:
        until(lambda: election.is_leader, 30, "it leads")
        faulty.hang()
        until(lambda: lost, 30, "it steps down")
        assert not election.is_leader
        faulty.heal()
        until(lambda: election.is_leader, 30, "it leads again")
        assert election.lease is not None
        assert election.lease.token > lost[0]


def test_async_callbacks_are_refused(store: Locks) -> None:
    async def elected() -> None: ...

    with pytest.raises(TypeError, match="cannot be async"):
        store.election("planner", on_elected=elected)


# -- signatures ------------------------------------------------------------------------------------------------------


def test_every_wish_is_a_parameter_of_its_own() -> None:
    taken = dict(inspect.signature(Locks.lock).parameters)
    assert list(taken)[:2] == ["self", "name"]
    assert all(each.kind is each.KEYWORD_ONLY for name, each in taken.items() if name not in ("self", "name"))
    assert set(taken) - {"self", "name"} == set(LockWishes.__annotations__) == set(ExclusiveOptions.__annotations__)


@pytest.mark.parametrize("ask", [App.lock, Locks.try_lock], ids=["App", "try_lock"])
def test_who_passes_wishes_on_takes_those_of_the_store_and_has_no_defaults(ask: Callable[..., object]) -> None:
    name, wishes = list(inspect.signature(ask).parameters.values())[1:]
    assert (name.name, wishes.kind, wishes.annotation) == ("name", wishes.VAR_KEYWORD, "Unpack[LockWishes]")


def test_a_misspelt_wish_is_refused_by_the_application_too(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/a.db", leases="memory://")
    with pytest.raises(TypeError, match="renew_evry"):
        app.lock("a", renew_evry="5s")  # type: ignore[call-arg]


def test_a_misspelt_wish_is_refused(store: Locks) -> None:
    for ask in (store.lock, store.try_lock, store.election):
        with pytest.raises(TypeError, match="renew_evry"):
            ask("a", renew_evry="5s")  # type: ignore[call-arg]
