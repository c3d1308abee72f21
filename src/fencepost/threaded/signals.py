"""Signals: handles those of this process while a context is open, and sends them to other processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager


@contextmanager
def on_signals(names: Collection[str], call: Callable[[int], None]) -> Iterator[None]:
    """Call `call(number)` for each of these signals. Only for the main thread.

    A signal that is already ignored stays ignored, because the process was started with ``nohup``.
    """
    numbers = [signal.Signals[f"SIG{name}"] for name in names]
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda received, _: call(received)) for number in heeded}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def send(pid: int, number: int) -> bool:
    """Send a signal to one process. Returns False if it does not exist, or may not be signalled."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
