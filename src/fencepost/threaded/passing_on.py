"""Passes the output of jobs on to this process's own standard output and error, on threads of their own.

A write to a pipe that is not read waits for ever. Whoever reads the output of jobs must not wait, because then the jobs
would: so what this process's reader does not take is kept for it, up to a limit, and then dropped and counted.
"""

from __future__ import annotations

import atexit
import os
import select
import sys
import threading
import time
from collections import deque

_MOST_BYTES = 8 << 20  # kept for each stream while it is not read; what is more is dropped and counted
_AT_ONCE = 1 << 16  # what a pipe of Linux holds by default
_FLUSH_S = 1.0  # enough for any reader that still reads; the process must be able to end
_DROPPED = (
    "fencepost: %d bytes of the output of jobs were dropped here, because the output of this process was not read\n"
)


class PassingOn:
    """Writes to standard output or standard error of this process, in order."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0
        self._is_writing = False
        self._is_started = False
        self._changed = threading.Condition()

    def write(self, chunk: bytes) -> None:
        """Write this when its turn comes. Does not wait."""
        if not chunk:
            return
        with self._changed:
            if self._size + len(chunk) > _MOST_BYTES:
                self._dropped += len(chunk)
                return
            self._append(self._notice() + chunk)
            self._changed.notify_all()
            if not self._is_started:
                self._is_started = True
                threading.Thread(target=self._go_on, name="fencepost-output", daemon=True).start()
                atexit.register(self.flush)

    def _append(self, chunk: bytes) -> None:
        self._waiting.append(chunk)
        self._size += len(chunk)

    def _notice(self) -> bytes:
        """Return what is to be said of bytes that were dropped, if anything. It stands where they would have stood."""
        notice = (_DROPPED % self._dropped).encode() if self._dropped else b""
        self._dropped = 0
        return notice

    def flush(self, within_s: float = _FLUSH_S) -> None:
        """Wait until everything is written, but not for longer than this."""
        give_up_at = time.monotonic() + within_s
        with self._changed:
            while (self._waiting or self._is_writing) and (left_s := give_up_at - time.monotonic()) > 0:
                self._changed.wait(left_s)

    def _go_on(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                text = self._next()
                self._is_writing = True
            self._write(text)
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()

    def _next(self) -> bytes:
        """Take what is written at once."""
        taken: list[bytes] = []
        size = 0
        while self._waiting and size < _AT_ONCE:
            taken.append(self._waiting.popleft())
            size += len(taken[-1])
        self._size -= size
        if not self._waiting:
            taken.append(self._notice())
        return b"".join(taken)

    def _write(self, text: bytes) -> None:
        if not self._is_ours():
            return
        left = memoryview(text)
        try:
            while left:
                left = left[self._written(left) :]
        except OSError:
            return  # the reader is gone

    def _written(self, text: memoryview) -> int:
        """Write a part. A process that shares the descriptor, such as a shell, may have made it non-blocking."""
        try:
            return os.write(self._descriptor, text)
        except BlockingIOError:
            waiting = select.poll()
            waiting.register(self._descriptor, select.POLLOUT)
            waiting.poll()
            return 0

    def _is_ours(self) -> bool:
        """Whether this process began with the stream: else any file or connection may have got its number since."""
        return (sys.__stdout__ if self._descriptor == 1 else sys.__stderr__) is not None


_STREAMS = {number: PassingOn(number) for number in (1, 2)}


def pass_on(stream: int, chunk: bytes) -> None:
    """Write to standard output (1) or standard error (2) of this process, without waiting."""
    _STREAMS[stream].write(chunk)


def flush() -> None:
    """Wait for what was passed on, for a moment."""
    for stream in _STREAMS.values():
        stream.flush()
