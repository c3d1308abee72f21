"""`@store.exclusive` around the functions of somebody else's scheduler: a due time once, and what a skipped call is."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any, assert_type

import pytest

from fencepost import locks
from fencepost.core.tick import Tick, microseconds
from fencepost.errors import ConfigurationError, InvalidDuration, InvalidTick, InvalidTimings, LockHeld, TickDone
from fencepost.leases.locks import Locks
from fencepost.leases.stores.memory import MemoryStore
from fencepost.threaded import ThreadedRuntime

MINUTE_US = 60_000_000

ran: list[str] = []


async def noted(what: str) -> None:
    ran.append(what)


class AsyncCallable:
    async def __call__(self) -> None:
        await noted("a")


async def each_of(items: str) -> AsyncIterator[str]:
    for each in items:
        yield each


class SetClock(ThreadedRuntime):
    """A machine whose clock the test sets."""

    now_us = microseconds(datetime(2026, 11, 1, 4, tzinfo=UTC))

    def wall_us(self) -> int:
        return self.now_us


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def store(clock: SetClock) -> Iterator[Locks]:
    connected = Locks(MemoryStore(clock), runtime=clock)
    yield connected
    connected.close()


class TestWhatItCannotHold:
    """What a call only prepares would run when the lock is free again."""

    @pytest.mark.parametrize(
        "function",
        [AsyncCallable(), lambda: noted("b"), lambda: (each for each in "ab"), lambda: each_of("ab")],
        ids=["object with async __call__", "coroutine", "generator", "async generator"],
    )
    def test_is_refused(self, store: Locks, function: Any) -> None:
        with pytest.raises(TypeError, match="async def"):
            store.exclusive("nightly")(function)()
        assert not ran


class TestTicks:
    def test_of_three_schedulers_one_runs_each_due_time(self, clock: SetClock) -> None:
        """Each calls at its own moment within the same five minutes, and the job is over at once."""
        shared = MemoryStore(clock)
        ran: list[int] = []
        processes = [Locks(shared, runtime=clock) for _ in range(3)]
        jobs = [
            each.exclusive("report", tick="auto:*/5 * * * *")(lambda: ran.append(clock.now_us)) for each in processes
        ]
        for _ in range(3):
            for job in jobs:
                job()
                clock.now_us += MINUTE_US
            clock.now_us += 2 * MINUTE_US
        assert len(ran) == 3

    def test_due_times_of_the_repeated_hour_run_once_each(self, store: Locks, clock: SetClock) -> None:
        ran: list[int] = []

        @store.exclusive("report", tick="auto:*/15 * * * *", tz="America/New_York")
        def report() -> None:
            ran.append(clock.now_us)

        for _ in range(4 * 60):
            report()
            clock.now_us += MINUTE_US
        assert len(ran) == 16

    def test_a_parameter_of_the_call_is_the_due_time(self, store: Locks) -> None:
        @store.exclusive("report:{account}", tick="{due}")
        def report(account: int, due: Any) -> str:
            return f"{account} at {due}"

        due = datetime(2026, 1, 1, tzinfo=UTC)
        assert report(1, due)
        assert not report(1, due=due)
        assert not report(1, "2026-01-01T00:00Z")
        assert report(1, Tick.of("2026-01-02T00:00Z"))
        assert report(2, due)

    def test_a_text_made_of_parameters_is_one(self, store: Locks) -> None:
        @store.exclusive("report", tick="{day:%Y-%m-%d}T00:00Z")
        def report(day: datetime) -> str:
            return "ran"

        assert report(datetime(2026, 1, 1, 5))
        assert not report(datetime(2026, 1, 1, 6))
        assert report(datetime(2026, 1, 2, 6))

    def test_a_function_of_the_arguments_says_it(self, store: Locks) -> None:
        @store.exclusive("report", tick=lambda day, **_: None if day is None else f"{day}T00:00Z")
        def report(day: str | None, again: bool = False) -> str:
            return "ran"

        assert report("2026-01-01", again=True)
        assert not report("2026-01-01")
        assert report(None)

    def test_at_most_once_counts_a_failed_one_as_done(self, store: Locks) -> None:
        @store.exclusive("report", tick="auto:@daily", at_most_once=True)
        def report() -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            report()
        assert isinstance(report(), locks.Skipped)

    def test_a_lock_takes_them_too(self, store: Locks) -> None:
        with store.lock("a", tick="auto:0 9 * * *", tz="Asia/Seoul"):
            pass
        with pytest.raises(TickDone, match="2026-11-01T00:00:00Z"), store.lock("a", tick="2026-11-01T00:00Z"):
            pytest.fail("twice")


class TestWhatIsRefusedAtOnce:
    def test_a_function_where_the_name_of_the_lock_belongs(self) -> None:
        with locks.connect("memory://") as store, pytest.raises(TypeError, match="needs the name of the lock"):
            store.exclusive(print)  # type: ignore[call-overload]

    @pytest.mark.parametrize(
        ("options", "error", "says"),
        [
            ({"wiat": "1s"}, TypeError, r"'wiat'; did you mean 'wait'\?"),
            ({"renew_evry": "1s"}, TypeError, "renew_every"),
            ({"wait": "soon"}, InvalidDuration, "wait 'soon'"),
            ({"at_least": "-1s"}, InvalidDuration, "at_least"),
            ({"ttl": "1ms"}, InvalidTimings, "ttl"),
            ({"tick": "yesterday"}, InvalidTick, "yesterday"),
            ({"tick": "auto:* * *"}, InvalidTick, "3 fields"),
            ({"tick": "auto:* * * * *", "tz": "Mars/Olympus"}, InvalidTick, "Mars/Olympus"),
            ({"tz": "UTC"}, ConfigurationError, "tz"),
            ({"tick": "{due}", "tz": "UTC"}, ConfigurationError, "tz"),
            ({"tick": "{dew}"}, ConfigurationError, r"\{dew\}.*not a parameter \(there are: due\)"),
            ({"tick": 7}, InvalidTick, "7"),
            ({"on_skip": "rise"}, ConfigurationError, r"did you mean 'raise'\?"),
        ],
    )
    def test_when_it_decorates(self, store: Locks, options: Any, error: type[Exception], says: str) -> None:
        with pytest.raises(error, match=says):
            store.exclusive("report", **options)(lambda due: None)


class TestSkipped:
    def test_it_is_false_and_says_why(self, store: Locks) -> None:
        skipped = self.skipped(store)
        assert not skipped
        assert skipped.lock == "report"
        assert "report" in skipped.reason

    def test_task_queues_can_store_it(self, store: Locks) -> None:
        skipped = self.skipped(store)
        assert json.loads(json.dumps({"result": skipped})) == {"result": str(skipped)}
        assert json.loads(json.dumps(skipped, indent=1)) == str(skipped)
        again = pickle.loads(pickle.dumps(skipped))
        assert (again, again.lock, again.reason, bool(again)) == (skipped, skipped.lock, skipped.reason, False)

    def test_it_may_be_raised_instead(self, store: Locks) -> None:
        report = store.exclusive("report", on_skip="raise")(lambda: "ran")
        assert_type(report(), str)
        with store.lock("report"), pytest.raises(LockHeld):
            report()

    @pytest.mark.parametrize("value", [None, 0, "nothing to do"])
    def test_a_value_may_be_returned_instead(self, store: Locks, value: object) -> None:
        report = store.exclusive("report", on_skip=value)(lambda: "ran")
        with store.lock("report"):
            assert report() == value
        assert report() == "ran"

    def test_so_it_is_of_a_coroutine(self, store: Locks) -> None:
        @store.exclusive("report")
        async def report() -> int:
            return 7

        @store.exclusive("report", on_skip="raise")
        async def raising() -> int:
            return 7

        async def main() -> None:
            async with store.lock("report"):
                assert_type(await report(), int | locks.Skipped)
                assert isinstance(await report(), locks.Skipped)
                with pytest.raises(LockHeld):
                    await raising()
            assert_type(await raising(), int)

        asyncio.run(main())

    def test_its_type_is_part_of_what_is_returned(self, store: Locks) -> None:
        @store.exclusive("report:{account}")
        def report(account: int) -> str:
            return "ran"

        assert_type(report(1), str | locks.Skipped)
        assert report(1) == "ran"

    @staticmethod
    def skipped(store: Locks) -> locks.Skipped:
        report = store.exclusive("report")(lambda: "ran")
        with store.lock("report"):
            skipped = report()
        assert isinstance(skipped, locks.Skipped)
        return skipped
