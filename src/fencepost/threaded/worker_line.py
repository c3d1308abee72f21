"""The worker's end of its connection to the supervisor; see `fencepost.threaded.workers`.

A worker handles two signals. `LOOK` means *read the shared memory*: SIGURG is ignored by processes that do not handle
it, so it can be sent at any time and does no harm if it is late. `END` means *end*, and is sent only by the guardian.
A worker ignores SIGTERM, SIGINT and SIGHUP: terminals and service managers send them to all processes, and the
supervisor lets running jobs end first. Signals are handled on the main thread, between two Python instructions; code
that keeps the interpreter busy for long does not react, and is finally killed.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

PAGE = 4096  # bytes that are mapped; a message too long for a packet stands behind them in the file
LARGEST_MESSAGE = 1 << 16  # bytes of a packet; a longer message goes through the file in memory
ASIDE = b"@"
LOOK = signal.SIGURG
END = signal.SIGRTMIN + 5


class WorkerLine:
    """Messages in, lines out, a page of shared memory, and the two signals."""

    def __init__(self, packets: int, answers: int, memory: int) -> None:
        """Take over the three descriptors. Processes that the worker starts must not inherit them."""
        for descriptor in (packets, answers, memory):
            os.set_inheritable(descriptor, False)
        self._packets = socket.socket(fileno=packets)
        self._answers = answers
        self._memory = memory
        self._map = mmap.mmap(memory, PAGE)
        self.shared = memoryview(self._map)
        self._pid = os.getpid()

    def at_hand(self) -> bytes | None:
        """Return the next message if it is there already, else None. Does not wait."""
        return self._received(socket.MSG_DONTWAIT)

    def receive(self) -> bytes | None:
        """Wait for the next message; None when the supervisor has ended."""
        return self._received()

    def _received(self, flags: int = 0) -> bytes | None:
        try:
            message = self._packets.recv(LARGEST_MESSAGE, flags)
        except (ConnectionError, BlockingIOError):
            return None
        if message[:1] == ASIDE:
            return os.pread(self._memory, int(message[1:]), PAGE)
        return message or None

    def answer(self, line: bytes) -> None:
        """Write one complete line, even if a signal arrives; if the supervisor has ended, the line is discarded.

        A child that a job forked, and that returned from the job, would be a second worker: it ends here.
        """
        if os.getpid() != self._pid:
            os._exit(0)
        rest = memoryview(line)
        with suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(self._answers, rest) :]

    def heed(self, *, look: Callable[[], None], end: Callable[[], None]) -> None:
        """Call these functions on the two signals, on the main thread, and ignore the others.

        The others are caught rather than ignored, so that programs that a job starts do not inherit that.
        """
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._in_this_process(lambda: None))
        signal.signal(LOOK, self._in_this_process(look))
        signal.signal(END, self._in_this_process(end))

    def pass_on_term(self) -> None:
        """Send SIGTERM to our process group, to end the processes that the job started. This process ignores it."""
        with suppress(OSError):
            os.killpg(0, signal.SIGTERM)

    def _in_this_process(self, call: Callable[[], None]) -> Callable[[int, FrameType | None], None]:
        """In a child that a job forked, apply the default action of the signal."""

        def receive(number: int, _: FrameType | None) -> None:
            if os.getpid() == self._pid:
                call()
            elif number != LOOK:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

        return receive


def prepare_streams() -> None:
    """Write the output of a job line by line, as soon as it is printed, even to a pipe or a file."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)
