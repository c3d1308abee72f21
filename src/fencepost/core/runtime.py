"""Everything impure that the loops need, as one protocol.

Loops, keepers and stores reach clocks, threads, randomness, ids and child processes only through a
`Runtime`. `fencepost.threaded` is the real one and the only place that imports those modules (linted);
a simulator can be another, and then the unmodified loops run on virtual time.

Monotonic readings are seconds on a clock that goes on while the machine sleeps and that all processes of
one boot share (CLOCK_BOOTTIME). They are never compared between machines. Wall readings are microseconds
since 1970 in UTC; nothing that decides about a lease reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, TypeVar

T = TypeVar("T")


class Flag(Protocol):
    """A flag that can be waited for."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Mutex(Protocol):
    """Mutual exclusion between tasks of one process."""

    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Task(Protocol):
    """Something that runs beside the caller."""

    def join(self, timeout: float | None = None) -> None: ...
    def is_alive(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ProgramExit:
    """How a guarded program ended: its exit code, or minus the number of the signal it died of.

    `forced` says why it was ended from outside; None means that it ended by itself, or by a signal somebody sent it.
    """

    status: int
    forced: str | None = None


class GuardedProcess(Protocol):
    """A program in a process group of its own, which a guardian process ends unless its trust is extended.

    The guardian sends SIGTERM to the whole group at `term_at` and SIGKILL at `kill_at` (monotonic readings), also when
    this process is paused, and at once when this process is gone. One thread waits; `extend` and `signal` may be
    called from any.
    """

    @property
    def pid(self) -> int:
        """The program's process id, which is its process group's too."""
        ...

    def extend(self, *, term_at: float, kill_at: float) -> None:
        """Set when the program is to be ended. A `term_at` that has passed ends it now, and for good."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal to the program's process group."""
        ...

    def kill(self) -> None:
        """Kill the program's process group now."""
        ...

    def wait(self, timeout: float) -> ProgramExit | None:
        """Return how the program ended, or None if it has not within `timeout` seconds."""
        ...


class WorkerProcess(Protocol):
    """A process of ours that takes messages one by one and answers in lines, under a guardian like any guarded program.

    What was sent and not taken yet can be recalled: the queue lies in the kernel, so every message is either taken by
    the worker or recalled, never both, whatever the worker is doing. What the worker has answered can be read even
    after it was killed. What it leaves behind in its process group ends with it.
    """

    shared: memoryview  # the page of memory that both processes see
    largest_message: int

    @property
    def pid(self) -> int: ...

    def send(self, message: bytes) -> bool:
        """Queue one message of at most `largest_message` bytes; False if the queue is full."""
        ...

    def send_aside(self, message: bytes) -> bool:
        """Queue one message of any size, by way of shared memory; only while no other message is on its way."""
        ...

    def recall(self) -> list[bytes]:
        """Take back all that the worker has not taken, and return how each message begins, with at least 30 bytes.

        A worker that is free takes the next one meanwhile: so what is left to it may be any of those that were sent.
        """
        ...

    def receive(self) -> list[bytes]:
        """Return the lines that came since the last call. Does not wait."""
        ...

    def extend(self, *, term_at: float, kill_at: float) -> None:
        """Set when the worker's group is to be ended, as in `GuardedProcess`."""
        ...

    def kill(self) -> None:
        """Kill the worker's group now."""
        ...

    def poke(self) -> None:
        """Make the worker look at the shared memory, whatever it is executing."""
        ...

    def ended(self) -> ProgramExit | None:
        """Return how it ended, or None if it has not. Does not wait (unless its guardian is gone: then a moment)."""
        ...

    def close(self) -> None:
        """Let go of everything that connects us."""
        ...


class Workers(Protocol):
    """Worker processes that are waited for together. One thread calls `wait`; the rest may be called from any."""

    def start(self, argv: Sequence[str], *, env: Mapping[str, str], term_at: float, kill_at: float) -> WorkerProcess:
        """Start a worker; takes a moment. The three numbers it needs (socket, answers, memory) are added to `argv`."""
        ...

    def wait(self, timeout: float) -> list[WorkerProcess]:
        """Return the workers that have answered or ended, or none after `timeout` seconds or when woken."""
        ...

    def wake(self) -> None:
        """Make `wait` return now."""
        ...

    def close(self) -> None: ...


class Runtime(Protocol):
    """The impure world."""

    def monotonic(self) -> float: ...
    def wall_us(self) -> int: ...
    def boot_id(self) -> str: ...
    def host(self) -> str: ...
    def process_id(self) -> int: ...
    def new_id(self) -> str:
        """Return 128 random bits as 32 hexadecimal digits."""
        ...

    def random(self) -> float: ...
    def sleep(self, duration_s: float) -> None: ...
    def spawn(self, name: str, work: Callable[[], None]) -> Task:
        """Run `work` beside the caller; it does not keep the process alive."""
        ...

    def event(self) -> Flag: ...
    def lock(self) -> Mutex: ...
    def after_fork(self, owner: object, forget: Callable[[], None]) -> None:
        """Call the bound method `forget` in every forked child, as long as `owner` lives."""
        ...

    def at_exit(self, owner: object, close: Callable[[], None]) -> None:
        """Call the bound method `close` when the process ends in good order, as long as `owner` lives."""
        ...

    def guarded(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        term_at: float,
        kill_at: float,
        foreground: bool = False,
        unattended: bool = False,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> GuardedProcess:
        """Start a program under a guardian; `OSError` says why it could not be started.

        With `foreground`, and if this process has its terminal's foreground, the program gets it while it runs. With
        `unattended` it has nothing to read, and what it leaves behind in its group is killed when it ends.
        `on_stderr` gets what it writes to standard error, from another thread; it is passed on all the same.
        """
        ...

    def workers(self) -> Workers:
        """Return a set of worker processes, empty at first."""
        ...

    def on_signals(self, names: Collection[str], call: Callable[[int], None]) -> AbstractContextManager[None]:
        """Call `call(number)` on the main thread for these signals (``"TERM"``, …), as long as the context lasts.

        One that this process was started to ignore (``nohup``) stays ignored.
        """
        ...
