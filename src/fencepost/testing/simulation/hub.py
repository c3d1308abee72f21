"""Virtual time: tasks are greenlets, and the clock jumps to the next wake-up.

All tasks of all processes share one thread. One runs until it waits; then the hub takes the next wake-up from a heap
and moves the clock there. A draw decides the order of tasks that wake at the same instant, so each seed
is one order of events.

A process can be *paused*: what should wake its tasks is kept, and delivered when it goes on. A process that *died* is
never resumed: its greenlets stay where they are, no `finally` runs, until the whole simulation is over. Only then are
they unwound, with every call they make refused.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

from greenlet import GreenletExit, getcurrent, greenlet

LEAST_S = 1e-6  # a wait of nothing moves the clock all the same, so a loop of such waits ends
STUCK_AFTER = 20_000  # readings of the clock without a wait; a whole seed has about six thousand


class StuckTask(Exception):
    """A task read the clock in a loop and never waited: in real life it would have kept a core busy."""


class Process:
    """A simulated process: tasks that are paused together and die together."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.is_dead = False
        self.is_paused = False
        self.tasks: list[GreenTask] = []
        self.held_up: list[tuple[GreenTask, int, bool]] = []
        self.on_death: list[Callable[[], None]] = []


class GreenTask:
    """A greenlet of a process. `turn` distinguishes a wake-up for this wait from one that came too late."""

    __slots__ = ("greenlet", "is_done", "joiners", "name", "process", "turn", "was_woken")

    def __init__(self, hub: Hub, process: Process, name: str, work: Callable[[], None]) -> None:
        self.process = process
        self.name = name
        self.turn = 0
        self.was_woken = False
        self.is_done = False
        self.joiners: list[tuple[GreenTask, int]] = []
        self.greenlet = greenlet(lambda: self._run(hub, work), parent=hub.main)

    def _run(self, hub: Hub, work: Callable[[], None]) -> None:
        try:
            work()
        except GreenletExit:
            pass
        except BaseException as error:  # noqa: BLE001 - a dying thread reports its error and ends no other thread
            hub.task_failed(self, error)
        self.is_done = True
        for task, turn in self.joiners:
            hub.wake(task, turn)


class Hub:
    """The heap of wake-ups, the clock and the dice."""

    def __init__(self, seed: int) -> None:
        self.main = getcurrent()
        self.now = 0.0
        self.dice = Random(seed)
        self.current: GreenTask | None = None
        self.is_over = False
        self.failures: list[tuple[str, str, BaseException]] = []
        self.switches = 0
        self._heap: list[tuple[float, int, GreenTask, int, bool]] = []
        self._order = 0
        self.asked = 0
        self._tasks: list[GreenTask] = []
        self._until = 0.0

    # -- from the outside --------------------------------------------------------------------------------------------

    def run(self, until: float) -> None:
        """Run all tasks up to `until`."""
        self._until = until
        while (task := self._next()) is not None:
            task.greenlet.switch()
            self.current = None
        self.now = max(self.now, until)

    def _next(self, *, may_begin: bool = True) -> GreenTask | None:
        """Move the clock to the next wake-up, and return whose it is; None if it is not due yet."""
        heap, until = self._heap, self._until
        while heap and heap[0][0] <= until:
            at, _, task, turn, woken = heap[0]
            if turn == 0 and not may_begin:
                return None
            heappop(heap)
            if turn != task.turn:
                continue
            process = task.process
            if process.is_dead:
                continue
            if process.is_paused:
                process.held_up.append((task, turn, woken))
                continue
            self.now = max(self.now, at)
            task.turn = turn + 1
            task.was_woken = woken
            self.current = task
            self.asked = 0
            self.switches += 1
            return task
        return None

    def spawn(self, process: Process, name: str, work: Callable[[], None]) -> GreenTask:
        """Start a task, which begins a moment later."""
        task = GreenTask(self, process, name, work)
        process.tasks.append(task)
        self._tasks.append(task)
        self._push(self.now + self._moment(), task, 0, woken=True)
        return task

    def pause(self, process: Process) -> None:
        """Stop a process where it is."""
        process.is_paused = True

    def resume(self, process: Process) -> None:
        """Continue it; all wake-ups of the pause come at once."""
        process.is_paused = False
        held_up, process.held_up = process.held_up, []
        for task, turn, woken in held_up:
            self._push(self.now + self._moment(), task, turn, woken=woken)

    def kill(self, process: Process) -> None:
        """End a process: none of its tasks is ever resumed."""
        if process.is_dead:
            return
        process.is_dead = True
        process.held_up = []
        for call in process.on_death:
            call()

    def over(self) -> None:
        """Unwind the remaining greenlets after the simulation, when their calls have no effect any more."""
        self.is_over = True
        for task in self._tasks:
            for _ in range(10):  # code may catch even this, once
                if task.greenlet.dead or not task.greenlet:
                    break
                task.greenlet.throw(GreenletExit)
        self._tasks.clear()
        self._heap.clear()

    def task_failed(self, task: GreenTask, error: BaseException) -> None:
        """Record that a task ended by an uncaught exception."""
        if not self.is_over:
            self.failures.append((task.process.name, task.name, error))

    # -- from a task -------------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None, *, about: list[tuple[GreenTask, int]] | None = None) -> bool:
        """Wait to be woken, or for the timeout; return whether it was woken. `about` is the list of waiters."""
        task = self.current
        if self.is_over or task is None:
            raise GreenletExit
        turn = task.turn
        if about is not None:
            about.append((task, turn))
        if timeout_s is not None:
            self._order = order = self._order + 1
            at = self.now + (timeout_s if timeout_s > LEAST_S else LEAST_S)
            process = task.process
            heap = self._heap
            if at <= self._until and not ((heap and heap[0][0] <= at) or process.is_dead or process.is_paused):
                self.now = at  # it is next: go on
                task.turn = turn + 1
                task.was_woken = False
                self.asked = 0
                self.switches += 1
                return False
            heappush(heap, (at, order, task, turn, False))
        other = self._next(may_begin=False)
        if other is not task:
            (self.main if other is None else other.greenlet).switch()
        if self.is_over:
            raise GreenletExit
        return task.was_woken

    def wake(self, task: GreenTask, turn: int) -> None:
        """Wake a waiting task, as soon as it gets a processor."""
        if not self.is_over and turn == task.turn:
            self._push(self.now + self._moment(), task, turn, woken=True)

    def give_up(self) -> None:
        """Stop a task that loops without waiting."""
        self.asked = 0
        raise StuckTask

    def _moment(self) -> float:
        """Return the delay of a wake-up: mostly none, now and then a slice of the scheduler."""
        draw = self.dice.random()
        return draw * 2e-4 if draw < 0.95 else draw * 5e-3

    def _push(self, at: float, task: GreenTask, turn: int, *, woken: bool) -> None:
        self._order += 1
        heappush(self._heap, (at, self._order, task, turn, woken))
