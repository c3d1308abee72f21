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


class Event(Protocol):
    """A flag that can be waited for."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Lock(Protocol):
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
class Ended:
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

    def wait(self, timeout: float) -> Ended | None:
        """Return how the program ended, or None if it has not within `timeout` seconds."""
        ...


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

    def event(self) -> Event: ...
    def lock(self) -> Lock: ...
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
    ) -> GuardedProcess:
        """Start a program under a guardian; `OSError` says why it could not be started.

        With `foreground`, and if this process has its terminal's foreground, the program gets it while it runs.
        """
        ...

    def on_signals(self, names: Collection[str], call: Callable[[int], None]) -> AbstractContextManager[None]:
        """Call `call(number)` on the main thread for these signals (``"TERM"``, …), as long as the context lasts.

        One that this process was started to ignore (``nohup``) stays ignored.
        """
        ...
