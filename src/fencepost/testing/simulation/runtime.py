"""The `Runtime` of a simulated process, and that of the stores.

Every node has a clock of its own: its monotonic one runs a little fast or slow and began at some other time, its wall
clock is off and may be stepped. The stores have the true one, whose wall clock may be stepped as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import NoReturn, Unpack

from fencepost.core import runtime
from fencepost.core.runtime import Guarding
from fencepost.testing.simulation.hub import STUCK_AFTER, GreenTask, Hub, Process

EPOCH_US = 1_767_225_600_000_000  # 2026-01-01T00:00Z, when every simulation begins
_PREEMPTED = 0.02  # the share of locks before which a task is interrupted, for up to a millisecond


class Clock:
    """A clock of one machine: how fast it runs, where it began, and by how much its wall clock is off."""

    def __init__(self, hub: Hub, *, drift: float = 0.0, began_at: float = 0.0, off_us: int = 0) -> None:
        self.hub = hub
        self.rate = 1.0 + drift
        self.began_at = began_at
        self.off_us = off_us

    def monotonic(self) -> float:
        """Read the clock that only goes forward."""
        return self.began_at + self.hub.now * self.rate

    def drift(self, drift: float) -> None:
        """Run faster or slower from now on."""
        now, self.rate = self.monotonic(), 1.0 + drift
        self.began_at = now - self.hub.now * self.rate

    def wall_us(self) -> int:
        """Read the clock on the wall."""
        return EPOCH_US + self.off_us + round(self.hub.now * self.rate * 1_000_000)


class SimEvent:
    """A flag that can be waited for."""

    __slots__ = ("_clock", "_hub", "_is_set", "_waiters")

    def __init__(self, hub: Hub, clock: Clock) -> None:
        self._hub = hub
        self._clock = clock
        self._is_set = False
        self._waiters: list[tuple[GreenTask, int]] = []

    def set(self) -> None:
        self._is_set = True
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for task, turn in waiters:
                self._hub.wake(task, turn)

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        if self._is_set:
            return True
        waiters = self._waiters
        if len(waiters) > 8:  # those whose wait has timed out are removed now and then
            waiters[:] = [(task, turn) for task, turn in waiters if turn == task.turn]
        return self._hub.wait(None if timeout is None else timeout / self._clock.rate, about=waiters)


class SimLock:
    """Mutual exclusion between the tasks of one process. A task may be interrupted right before it takes it."""

    __slots__ = ("_hub", "_is_held", "_waiters")

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._is_held = False
        self._waiters: list[tuple[GreenTask, int]] = []

    def __enter__(self) -> bool:
        hub = self._hub
        if hub.dice.random() < _PREEMPTED and hub.current is not None:
            hub.wait(hub.dice.random() * 1e-3)
        while self._is_held:
            hub.wait(None, about=self._waiters)
        self._is_held = True
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._is_held = False
        if self._waiters:
            self._hub.wake(*self._waiters.pop(0))


class NoLock:
    """The lock of a store, whose calls are one step each."""

    def __enter__(self) -> bool:
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        pass


class SimTask:
    """What `spawn` returns."""

    __slots__ = ("_clock", "_hub", "_task")

    def __init__(self, hub: Hub, task: GreenTask, clock: Clock) -> None:
        self._hub = hub
        self._task = task
        self._clock = clock

    def join(self, timeout: float | None = None) -> None:
        if not self._task.is_done:
            self._hub.wait(None if timeout is None else timeout / self._clock.rate, about=self._task.joiners)

    def is_alive(self) -> bool:
        return not self._task.is_done


class SimRuntime:
    """The runtime of one simulated process."""

    def __init__(self, hub: Hub, process: Process, clock: Clock) -> None:
        self.hub = hub
        self.process = process
        self.clock = clock

    def monotonic(self) -> float:
        hub, clock = self.hub, self.clock  # called six thousand times per seed
        hub.asked += 1
        if hub.asked > STUCK_AFTER:
            hub.give_up()
        return clock.began_at + hub.now * clock.rate

    def wall_us(self) -> int:
        return self.clock.wall_us()

    def boot_id(self) -> str:
        return f"boot-{self.process.name}"

    def host(self) -> str:
        return self.process.name

    def process_id(self) -> int:
        return self.process.number

    def new_id(self) -> str:
        return f"{self.hub.dice.getrandbits(128):032x}"

    def random(self) -> float:
        return self.hub.dice.random()

    def sleep(self, duration_s: float) -> None:
        self.hub.wait(max(duration_s, 0.0) / self.clock.rate)

    def spawn(self, name: str, work: Callable[[], None]) -> runtime.Task:
        return SimTask(self.hub, self.hub.spawn(self.process, name, work), self.clock)

    def event(self) -> runtime.Flag:
        return SimEvent(self.hub, self.clock)

    def lock(self) -> runtime.Mutex:
        return SimLock(self.hub)

    def after_fork(self, owner: object, forget: Callable[[], None]) -> None:
        """Nothing forks here."""

    def at_exit(self, owner: object, close: Callable[[], None]) -> None:
        """A simulated process ends by its own order, or without any."""

    def guarded(
        self, argv: Sequence[str], *, env: Mapping[str, str], term_at: float, kill_at: float, **how: Unpack[Guarding]
    ) -> NoReturn:
        raise OSError("programs are not simulated")

    def workers(self, output: object = None) -> NoReturn:
        raise OSError("worker processes are not simulated")

    def on_signals(self, names: Collection[str], call: Callable[[int], None]) -> AbstractContextManager[None]:
        raise OSError("signals are not simulated")


class StoreRuntime(SimRuntime):
    """The runtime of a store: its own clock, and calls that are not interrupted."""

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def lock(self) -> runtime.Mutex:
        return NoLock()
