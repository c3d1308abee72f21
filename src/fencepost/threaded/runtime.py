"""Implements the `Runtime` protocol with clocks, threads and random numbers of the operating system."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import random
import signal
import socket
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Unpack

from fencepost.core import runtime
from fencepost.core.runtime import Guarding
from fencepost.core.weak_method import BoundWeakly
from fencepost.sql.forked_sqlite import FORKED_SQLITE

_HOOKS_LAST_S = 0.02  # longer than the fork hooks run
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class _Forgetting:
    """Calls the registered methods of living objects in a forked child.

    Python keeps everything that was registered for a fork for ever. So only this object is registered, once, and a
    method that is added here is removed with its object. If one method raises, the others are still called.
    """

    def __init__(self) -> None:
        self._all: dict[int, BoundWeakly[None]] = {}
        self._numbers = itertools.count()
        self._was_interrupted = False
        os.register_at_fork(before=self._before, after_in_parent=self._after, after_in_child=self._forget)

    def add(self, method: Callable[[], None]) -> None:
        """Call the bound `method` in every child that is forked while its object exists."""
        parts, number = (
            self._all,
            next(self._numbers),
        )  # not self: what comes at the object's end must need nothing else
        parts[number] = BoundWeakly(method, lambda: parts.pop(number, None))

    def _before(self) -> None:
        try:
            FORKED_SQLITE.before_fork(time.monotonic, time.sleep)
        except KeyboardInterrupt:  # Python prints and discards exceptions of hooks
            self._was_interrupted = True

    def _after(self) -> None:
        FORKED_SQLITE.after_fork()
        if self._was_interrupted:
            self._was_interrupted = False
            threading.Thread(target=_interrupt_again, name="fencepost-interrupt", daemon=True).start()

    def _forget(self) -> None:
        self._was_interrupted = False  # the interrupt was for the parent
        FORKED_SQLITE.forking.clear()
        failed: Exception | None = None
        for reference in list(self._all.values()):
            try:
                if (forget := reference()) is not None:
                    forget()
            except Exception as error:  # noqa: BLE001 - the others must still be called
                failed = error
        if failed is not None:
            raise failed


def _interrupt_again() -> None:
    """Interrupt the main thread after it has left the fork hooks."""
    time.sleep(_HOOKS_LAST_S)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # a real signal, which also ends a sleep


_FORGETTING = _Forgetting()


class ThreadedRuntime:
    """Threads of this process. Instances have no state."""

    # Called a dozen times for every lock, so it is not wrapped in a Python function.
    monotonic: Callable[[], float] = staticmethod(functools.partial(time.clock_gettime, _CLOCK))

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def boot_id(self) -> str:
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:  # not Linux: the time of the boot identifies it well enough
            return f"boot-{round(time.time() - time.clock_gettime(_CLOCK), -1):.0f}"

    def host(self) -> str:
        return socket.gethostname()

    def process_id(self) -> int:
        return os.getpid()

    def new_id(self) -> str:
        return os.urandom(16).hex()

    def random(self) -> float:
        return random.random()

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)

    def spawn(self, name: str, work: Callable[[], None]) -> runtime.Task:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def event(self) -> runtime.Flag:
        return threading.Event()

    def lock(self) -> runtime.Mutex:
        return threading.Lock()

    def after_fork(self, owner: object, forget: Callable[[], None]) -> None:
        _FORGETTING.add(forget)

    def at_exit(self, owner: object, close: Callable[[], None]) -> None:
        callback = _weakly(close)
        atexit.register(callback)
        weakref.finalize(owner, atexit.unregister, callback).atexit = False

    def guarded(
        self, argv: Sequence[str], *, env: Mapping[str, str], term_at: float, kill_at: float, **how: Unpack[Guarding]
    ) -> runtime.GuardedProcess:
        from fencepost.threaded.guarded import start  # noqa: PLC0415 - most users of locks start no program

        return start(argv, env=env, term_at=term_at, kill_at=kill_at, **how)

    def workers(self, output: runtime.OutputSink | None = None) -> runtime.Workers:
        from fencepost.threaded.workers import ThreadedWorkers  # noqa: PLC0415 - as above

        return ThreadedWorkers(output)

    def on_signals(self, names: Collection[str], call: Callable[[int], None]) -> AbstractContextManager[None]:
        from fencepost.threaded.signals import on_signals  # noqa: PLC0415 - as above

        return on_signals(names, call)


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls the bound `method` while its object exists, without keeping the object alive."""
    reference = BoundWeakly(method)

    def call() -> None:
        if (alive := reference()) is not None:
            alive()

    return call
