"""Clocks, threads and randomness of the operating system behind the `Runtime` protocol."""

from __future__ import annotations

import atexit
import functools
import os
import random
import socket
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from fencepost.core import runtime

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class ThreadedRuntime:
    """Threads of this process. All instances are alike and hold no state of their own."""

    # On the path of every lock, a dozen times: no frame of Python around it.
    monotonic: Callable[[], float] = staticmethod(functools.partial(time.clock_gettime, _CLOCK))

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def boot_id(self) -> str:
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:  # no Linux: the boot's own time names it well enough
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

    def event(self) -> runtime.Event:
        return threading.Event()

    def lock(self) -> runtime.Lock:
        return threading.Lock()

    def after_fork(self, owner: object, forget: Callable[[], None]) -> None:
        os.register_at_fork(after_in_child=_weakly(forget))

    def at_exit(self, owner: object, close: Callable[[], None]) -> None:
        callback = _weakly(close)
        atexit.register(callback)
        weakref.finalize(owner, atexit.unregister, callback).atexit = False

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
    ) -> runtime.GuardedProcess:
        from fencepost.threaded.guarded import start  # noqa: PLC0415 - most who use locks start no program

        return start(
            argv,
            env=env,
            term_at=term_at,
            kill_at=kill_at,
            foreground=foreground,
            unattended=unattended,
            on_stderr=on_stderr,
        )

    def workers(self) -> runtime.Workers:
        from fencepost.threaded.workers import Workers  # noqa: PLC0415 - as above

        return Workers()

    def on_signals(self, names: Collection[str], call: Callable[[int], None]) -> AbstractContextManager[None]:
        from fencepost.threaded.signals import on_signals  # noqa: PLC0415 - as above

        return on_signals(names, call)


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    """Call the bound `method` only while its object lives, and do not keep the object alive."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        if (alive := reference()) is not None:
            alive()

    return call
