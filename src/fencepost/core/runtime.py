"""Everything impure that the loops need, as one protocol.

Loops, keepers and stores reach clocks, threads, randomness, ids and child processes only through a
`Runtime`. `fencepost.threaded` is the real one and the only place that imports those modules (linted);
a simulator can be another, and then the unmodified loops run on virtual time.

Monotonic readings are seconds on a clock that goes on while the machine sleeps and that all processes of
one boot share (CLOCK_BOOTTIME). They are never compared between machines. Wall readings are microseconds
since 1970 in UTC; nothing that decides about a lease reads them.
"""

from __future__ import annotations

from collections.abc import Callable
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
