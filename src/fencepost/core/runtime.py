"""The protocol for everything impure that the loops need.

Loops, keepers and stores use clocks, threads, random numbers, ids and child processes only through a `Runtime`.
`fencepost.threaded` is the real one, and the only package that imports those modules (linted). A simulator can provide
another, and then the unmodified loops run on virtual time.

Monotonic readings are seconds on CLOCK_BOOTTIME, which also counts while the machine is suspended and is the same for
all processes since a boot. They are never compared between machines. Wall readings are microseconds since 1970 in UTC;
no decision about a lease uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, TypedDict, TypeVar, Unpack

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
    """Work that runs concurrently with the caller."""

    def join(self, timeout: float | None = None) -> None: ...
    def is_alive(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ProgramExit:
    """How a guarded program ended: its exit code, or the negative number of the signal that killed it.

    `forced` is the reason if the guardian ended it; None if it ended by itself, or by a signal from elsewhere.
    """

    status: int
    forced: str | None = None


class GuardedProcess(Protocol):
    """A program in its own process group, which a guardian process ends unless its deadlines are extended.

    The guardian sends SIGTERM to the whole group at `term_at` and SIGKILL at `kill_at` (monotonic readings), even if
    this process is paused, and at once if this process has ended. Only one thread calls `wait`; `extend` and `signal`
    may be called from any thread.
    """

    @property
    def pid(self) -> int:
        """The process id of the program, which is also that of its process group."""
        ...

    def extend(self, *, term_at: float, kill_at: float) -> None:
        """Set the deadlines of the program. A `term_at` in the past ends it now, and cannot be taken back."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal to the program's process group."""
        ...

    def kill(self) -> None:
        """Kill the program's process group now."""
        ...

    def wait(self, timeout: float) -> ProgramExit | None:
        """Return how the program ended, or None if it did not end within `timeout` seconds."""
        ...


class WorkerProcess(Protocol):
    """A worker process, which takes messages one by one and replies in lines. It has a guardian, like guarded programs.

    Messages that the worker has not taken yet can be recalled. The queue is in the kernel, so every message is either
    taken by the worker or recalled, never both, whatever the worker is doing. Replies of the worker can be read even
    after it was killed. Processes that it leaves behind in its process group end with it.
    """

    shared: memoryview  # the page of memory that both processes share
    largest_message: int
    output: tuple[int, int, str] | None  # numbers of its pipes for output and errors, and what marks frames in them

    @property
    def pid(self) -> int: ...

    def send(self, message: bytes) -> bool:
        """Queue one message of at most `largest_message` bytes. Returns False if the queue is full."""
        ...

    def send_aside(self, message: bytes) -> bool:
        """Queue one message of any size, through shared memory. Only allowed while no other message is in the queue."""
        ...

    def recall(self) -> list[bytes]:
        """Recall all messages that the worker has not taken, and return the beginning of each: at least 30 bytes.

        An idle worker takes messages at the same time, so it may keep any of those that were sent.
        """
        ...

    def receive(self) -> list[bytes]:
        """Return the lines received since the last call. Does not wait."""
        ...

    def extend(self, *, term_at: float, kill_at: float) -> None:
        """Set the deadlines of the worker's process group, as in `GuardedProcess`."""
        ...

    def kill(self) -> None:
        """Kill the worker's group now."""
        ...

    def poke(self) -> None:
        """Interrupt the worker, so that it reads the shared memory whatever it is executing."""
        ...

    def ended(self) -> ProgramExit | None:
        """Return how it ended, or None if it has not. Does not wait (only for a moment, if its guardian has died)."""
        ...

    def close(self) -> None:
        """Close all connections to the worker."""
        ...


class OutputSink(Protocol):
    """Takes in what worker processes write, on a thread that only does that. Must not wait for anything."""

    def began(self, source: int, secret: str) -> None:
        """Expect output of a worker. `secret` marks the frames in it (`fencepost.core.output_frames`)."""
        ...

    def written(self, source: int, stream: int, chunk: bytes) -> bytes:
        """Take in what it wrote to standard output (1) or error (2); return what to pass on to our own."""
        ...

    def ended(self, source: int) -> Mapping[int, bytes]:
        """The worker has ended, and its output has been read; return what to pass on, by stream.

        What processes that it left behind may still write belongs to no run.
        """
        ...

    def closed(self, source: int) -> Mapping[int, bytes]:
        """No process can write to its pipes any more; return what to pass on, by stream. `ended` comes before."""
        ...


class Workers(Protocol):
    """A set of worker processes. Only one thread calls `wait`; the other methods may be called from any thread."""

    def start(self, argv: Sequence[str], *, env: Mapping[str, str], term_at: float, kill_at: float) -> WorkerProcess:
        """Start a worker; this takes a moment. Appends three file descriptors (socket, replies, memory) to `argv`."""
        ...

    def wait(self, timeout: float) -> list[WorkerProcess]:
        """Return the workers that have replied or ended; an empty list after `timeout` seconds or `wake`."""
        ...

    def wake(self) -> None:
        """Make `wait` return now."""
        ...

    def close(self) -> None: ...


class Guarding(TypedDict, total=False):
    """How a program is run under a guardian; each is off unless given.

    With `foreground`, and if this process has its terminal's foreground, the program gets it while it runs. With
    `unattended` it has nothing to read, and what it leaves behind in its group is killed when it ends.
    `on_stdout` and `on_stderr` get what it writes, from other threads; it is also passed on to our own streams.
    """

    foreground: bool
    unattended: bool
    on_stdout: Callable[[bytes], None] | None
    on_stderr: Callable[[bytes], None] | None


class Runtime(Protocol):
    """Clocks, threads, random numbers, ids and processes."""

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
        """Run `work` concurrently with the caller. It does not keep the process alive."""
        ...

    def event(self) -> Flag: ...
    def lock(self) -> Mutex: ...
    def after_fork(self, owner: object, forget: Callable[[], None]) -> None:
        """Call the bound method `forget` in every forked child, as long as `owner` exists."""
        ...

    def at_exit(self, owner: object, close: Callable[[], None]) -> None:
        """Call the bound method `close` when the process exits normally, as long as `owner` exists."""
        ...

    def guarded(
        self, argv: Sequence[str], *, env: Mapping[str, str], term_at: float, kill_at: float, **how: Unpack[Guarding]
    ) -> GuardedProcess:
        """Start a program under a guardian. Raises `OSError` if it cannot be started."""
        ...

    def workers(self, output: OutputSink | None = None) -> Workers:
        """Return an empty set of worker processes. What they write goes to `output`, or else nowhere but to our own."""
        ...

    def on_signals(self, names: Collection[str], call: Callable[[int], None]) -> AbstractContextManager[None]:
        """Call `call(number)` on the main thread for these signals (``"TERM"``, …), while the context is open.

        A signal that this process was started to ignore (``nohup``) stays ignored.
        """
        ...
