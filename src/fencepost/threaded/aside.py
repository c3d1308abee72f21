"""A log handler that writes on a separate thread, so that code that logs does not wait for the reader.

A write to a full pipe that is not read, or to a terminal that was stopped with Ctrl-S, waits for ever. A node whose
loops waited there would look alive, because its lease is renewed elsewhere, but do no work.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from typing import TextIO

_MOST = 10_000  # records: a few megabytes at most
_FLUSH_S = 1.0  # enough for any reader that still reads; the process must be able to end


class AsideHandler(logging.Handler):
    """Writes records to a stream, in order.

    **Promises.** Code that logs does not wait for the stream. At most 10,000 records are queued; further ones are
    dropped, and their number is logged as soon as the stream accepts more. `flush`, and so the end of the process,
    waits for at most a second.

    **Not promised**: that a record is written before its process is killed.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream = stream
        self._waiting: deque[str] = deque()
        self._left_out = 0
        self._is_writing = False
        self._changed = threading.Condition()
        self._process = 0  # the process that the thread belongs to

    def emit(self, record: logging.LogRecord) -> None:
        """Format a record and queue it for the thread."""
        line = self._formatted(record)
        if self._process not in (0, os.getpid()):
            self._write(line)  # a forked child does not have the thread, and may end without a flush
            return
        with self._changed:
            if len(self._waiting) >= _MOST:
                self._left_out += 1
                return
            self._waiting.append(line)
            self._changed.notify_all()
            if not self._process:
                self._process = os.getpid()
                threading.Thread(target=self._go_on, name="fencepost log", daemon=True).start()

    def flush(self) -> None:
        """Wait until everything is written, for at most a second."""
        if self._process != os.getpid():
            return
        give_up_at = time.monotonic() + _FLUSH_S
        with self._changed:
            while (self._waiting or self._is_writing) and (left_s := give_up_at - time.monotonic()) > 0:
                self._changed.wait(left_s)

    def _formatted(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record)
        except Exception as error:  # noqa: BLE001 - any error of the application's arguments
            return f"a record of {record.name} could not be formatted: {record.msg!r}: {type(error).__name__}: {error}"

    def _go_on(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                lines = [*self._waiting]
                if self._left_out:
                    lines.append(self._formatted(self._left_out_record()))
                self._left_out = 0
                self._waiting.clear()
                self._is_writing = True
            for line in lines:
                self._write(line)
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()

    def _left_out_record(self) -> logging.LogRecord:
        what = "%d log records were dropped here, because the output of this process was not read"
        return logging.LogRecord("fencepost.process", logging.WARNING, __file__, 0, what, (self._left_out,), None)

    def _write(self, line: str) -> None:
        """Write without the stream's own buffer, because the interpreter waits for the buffer's lock at its end."""
        try:
            number = self.stream.fileno()
        except (OSError, AttributeError, ValueError):
            number = None
        try:
            if number is None:
                self.stream.write(f"{line}\n")
                return
            left = f"{line}\n".encode(errors="backslashreplace")
            while left:
                left = left[os.write(number, left) :]
        except (OSError, ValueError):
            pass  # the reader is gone
