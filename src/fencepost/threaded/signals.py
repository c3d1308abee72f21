"""Signals: those of this process, handed to a function while a context lasts, and those sent to another."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager


@contextmanager
def on_signals(names: Collection[str], call: Callable[[int], None]) -> Iterator[None]:
    """Call `call(number)` for each of these signals; only from the main thread.

    A signal that was ignored when we came stays so: whoever started us with ``nohup`` meant it.
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
    """Send a signal to one process; False if there is none of that number, or it is not ours to signal."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
