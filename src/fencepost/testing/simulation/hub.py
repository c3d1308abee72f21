"""Virtual time: tasks are greenlets, and the clock leaps to whatever is due next.

All tasks of all processes share one thread. One runs until it waits; then the hub takes the next wake-up from a heap
and moves the clock there. Who is awake at the same instant is decided by a draw, so a seed is one order of events, and
another seed another.

A process can be *paused*: what should wake its tasks is kept, and delivered when it goes on. A process that *died* is
never resumed: its greenlets stay where they are, no `finally` runs, until the whole simulation is over. Only then are
they unwound, with every call they make refused.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

from greenlet import GreenletExit, getcurrent, greenlet

LEAST_S = 1e-6
STUCK_AFTER = 20_000


class StuckTask(Exception):
    """A task asked for the time again and again and never waited: in real life it would have kept a core busy."""


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
    """A greenlet of a process. `turn` tells a wake-up that is meant for this wait from one that came too late."""

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
        except BaseException as error:  # noqa: BLE001 - a thread that dies says so and takes nobody along
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
        """Let happen what happens up to `until`."""
        heap = self._heap
        self._until = until
        while heap and heap[0][0] <= until:
            at, _, task, turn, woken = heappop(heap)
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
            task.greenlet.switch()
            self.current = None
        self.now = max(self.now, until)

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
        """Let it go on; everything that it slept through comes at once."""
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
        """Unwind what is left, when nothing that it does counts any more."""
        self.is_over = True
        for task in self._tasks:
            for _ in range(10):  # somebody may catch even this, once
                if task.greenlet.dead or not task.greenlet:
                    break
                task.greenlet.throw(GreenletExit)
        self._tasks.clear()
        self._heap.clear()

    def task_failed(self, task: GreenTask, error: BaseException) -> None:
        """Note that a task ended by an exception that nobody caught."""
        if not self.is_over:
            self.failures.append((task.process.name, task.name, error))

    # -- from a task -------------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None, *, about: list[tuple[GreenTask, int]] | None = None) -> bool:
        """Wait to be woken, or for the timeout; say whether somebody did. `about` lists those to be woken."""
        task = self.current
        if self.is_over or task is None:
            raise GreenletExit
        turn = task.turn
        if about is not None:
            about.append((task, turn))
        if timeout_s is not None:
            self._order = order = self._order + 1
            at = self.now + (timeout_s if timeout_s > LEAST_S else LEAST_S)
            if self._is_next(at, task):  # go on, as `run` would let it
                self.now = at
                task.turn = turn + 1
                task.was_woken = False
                self.asked = 0
                self.switches += 1
                return False
            heappush(self._heap, (at, order, task, turn, False))
        self.main.switch()
        if self.is_over:
            raise GreenletExit
        return task.was_woken

    def _is_next(self, at: float, task: GreenTask) -> bool:
        """Whether nobody else does anything until then: it is most often so, and saves two switches."""
        heap = self._heap
        while heap and heap[0][0] <= at:
            _, _, other, turn, _ = heap[0]
            if turn == other.turn and not other.process.is_dead:
                return False
            heappop(heap)
        process = task.process
        return at <= self._until and not (process.is_dead or process.is_paused)

    def wake(self, task: GreenTask, turn: int) -> None:
        """Let a waiting task go on, as soon as it gets a processor."""
        if not self.is_over and turn == task.turn:
            self._push(self.now + self._moment(), task, turn, woken=True)

    def give_up(self) -> None:
        """Stop whoever turns in circles without waiting."""
        self.asked = 0
        raise StuckTask

    def _moment(self) -> float:
        """How long it takes until somebody who may go on does: mostly no time, now and then a scheduler's slice."""
        draw = self.dice.random()
        return draw * 2e-4 if draw < 0.95 else draw * 5e-3

    def _push(self, at: float, task: GreenTask, turn: int, *, woken: bool) -> None:
        self._order += 1
        heappush(self._heap, (at, self._order, task, turn, woken))
