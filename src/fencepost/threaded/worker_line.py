"""A worker process's end of what connects it to its supervisor; see `fencepost.threaded.workers`.

Two signals are for a worker. `LOOK` means *look at the shared memory*: SIGURG is ignored by every process that does
not ask for it, so it can be sent at any time and harms nobody if it comes late. `END` means *end*, and comes from the
guardian alone. SIGTERM, SIGINT and SIGHUP mean nothing to a worker: terminals and service managers send them to
everybody, and the supervisor lets what runs come to its end first. All are noticed on the main thread, between two
steps of Python; code that holds the interpreter for long notices none, and is killed in the end.
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

PAGE = 4096
LARGEST_MESSAGE = 1 << 16
ASIDE = b"@"
LOOK = signal.SIGURG
END = signal.SIGRTMIN + 5


class WorkerLine:
    """Messages in, lines out, a page of shared memory, and the two signals."""

    def __init__(self, packets: int, answers: int, memory: int) -> None:
        """Take over the three descriptors; nothing that the worker starts shall inherit them."""
        for descriptor in (packets, answers, memory):
            os.set_inheritable(descriptor, False)
        self._packets = socket.socket(fileno=packets)
        self._answers = answers
        self._memory = memory
        self._map = mmap.mmap(memory, PAGE)
        self.shared = memoryview(self._map)
        self._pid = os.getpid()

    def receive(self) -> bytes | None:
        """Wait for the next message; None when the supervisor is gone."""
        try:
            message = self._packets.recv(LARGEST_MESSAGE)
        except ConnectionError:
            return None
        if message[:1] == ASIDE:
            return os.pread(self._memory, int(message[1:]), PAGE)
        return message or None

    def answer(self, line: bytes) -> None:
        """Write one line, whole, even if a signal comes in between; if the supervisor is gone, nobody is told.

        A child that a job forked and let return would be a second worker: it ends here.
        """
        if os.getpid() != self._pid:
            os._exit(0)
        rest = memoryview(line)
        with suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(self._answers, rest) :]

    def heed(self, *, look: Callable[[], None], end: Callable[[], None]) -> None:
        """Call these on the two signals, on the main thread, and let the others pass.

        They are caught rather than ignored, so that programs which a job starts do not inherit deafness.
        """
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._in_this_process(lambda: None))
        signal.signal(LOOK, self._in_this_process(look))
        signal.signal(END, self._in_this_process(end))

    def pass_on_term(self) -> None:
        """Send SIGTERM to our process group: what the job started shall end with it. We take no notice of it."""
        with suppress(OSError):
            os.killpg(0, signal.SIGTERM)

    def _in_this_process(self, call: Callable[[], None]) -> Callable[[int, FrameType | None], None]:
        """In a child that a job forked, the signal does what it does by default."""

        def receive(number: int, _: FrameType | None) -> None:
            if os.getpid() == self._pid:
                call()
            elif number != LOOK:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

        return receive


def prepare_streams() -> None:
    """Show what a job prints line by line, as soon as it is printed, whatever the output is connected to."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)
