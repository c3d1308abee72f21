"""The worker's end of the pipes that its output goes through; see `fencepost.threaded.output_reader`.

**Promises.** From `take_over` on, whatever this process or its children write to descriptors 1 and 2 goes to the
supervisor, which passes it on to its own output. Frames between it say which run is at work
(`fencepost.core.output_frames`). A job may close, replace or duplicate the descriptors 1 and 2: frames are written to
descriptors of our own. A log record that the pipe has no room for is dropped, and the next one says how many were.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from fencepost.core.output_frames import begin_frame, end_frame, log_frames, mark_of, secret_frames

_DROPPED = b"... %d log records were dropped here, because there were too many to keep\n"


class WorkerOutput:
    """Standard output and standard error of a worker process."""

    def __init__(self, output: int, errors: int, secret: str) -> None:
        """Take two writing ends of pipes, by their numbers, and the digits that mark our frames."""
        self._output = output
        self._errors = errors
        self._mark = mark_of(secret)
        self._end = end_frame(self._mark)
        self._records = -1
        self._dropped = 0
        for descriptor in (output, errors):
            os.set_inheritable(descriptor, False)

    def take_over(self) -> None:
        """Let descriptors 1 and 2 lead into the pipes."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os.dup2(self._output, 1)
        os.dup2(self._errors, 2)
        # The same pipe opened anew: a flag of one description does not change how jobs' own writes behave.
        try:
            self._records = os.open(f"/proc/self/fd/{self._errors}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._records = self._errors

    def begin(self, run_id: int, attempt: int) -> None:
        """Mark that an attempt begins."""
        frame = begin_frame(self._mark, run_id, attempt)
        self._write(self._output, frame)
        self._write(self._errors, frame)

    def end(self) -> None:
        """Mark that it has ended. What it left in Python's buffers still belongs to it."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # a job may have closed it, or put anything in its place
                stream.flush()
        self._write(self._output, self._end)
        self._write(self._errors, self._end)
        self._reopen()

    def _reopen(self) -> None:
        """Open what the job has closed: else a file or connection of a later run gets the number, and its prints."""
        for descriptor, number in ((self._output, 1), (self._errors, 2)):
            try:
                os.fstat(number)
            except OSError:
                with suppress(OSError):
                    os.dup2(descriptor, number)

    def log(self, text: str) -> None:
        """Write a log record, as one or more lines, unless the pipe is full. Never waits."""
        line = text.encode("utf-8", "backslashreplace") + b"\n"
        if self._dropped:
            line = _DROPPED % self._dropped + line
        try:
            for frame in log_frames(self._mark, line):
                os.write(self._records, frame)
        except BlockingIOError:
            self._dropped += 1
        except OSError:
            return  # the supervisor is gone, and so are we in a moment
        else:
            self._dropped = 0

    def keep(self, value: str) -> None:
        """Let the supervisor mask a value in all that is written from now on, to either pipe."""
        for frame in secret_frames(self._mark, value.encode("utf-8", "surrogatepass")):
            self._write(self._output, frame)
            self._write(self._errors, frame)

    def _write(self, descriptor: int, frame: bytes) -> None:
        with suppress(OSError):
            os.write(descriptor, frame)
