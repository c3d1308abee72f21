"""The worker's end of the pipes that its output goes through; see `fencepost.threaded.output_reader`.

**Promises.** From `take_over` on, whatever this process or its children write to descriptors 1 and 2 goes to the
supervisor, which passes it on to its own output. Frames between it say which run is at work
(`fencepost.core.output_frames`). A job may close, replace or duplicate the descriptors 1 and 2: frames are written to
descriptors of our own. A log record that the pipe has no room for is dropped or cut off, and the next one, or the end
of the attempt, says how many were.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from contextlib import suppress

from fencepost.core.output_frames import begin_frame, end_frame, log_frames, mark_of, secret_frames
from fencepost.core.told_values import ToldValues

_DROPPED = b"... %d log records were dropped or cut off here, because there were too many to keep\n"


class WorkerOutput:
    """Standard output and standard error of a worker process."""

    def __init__(self, output: int, errors: int, secret: str) -> None:
        """Take two writing ends of pipes, by their numbers, and the digits that mark our frames."""
        self._output = output
        self._errors = errors
        self._mark = mark_of(secret)
        self._end = end_frame(self._mark)
        self._records = -1
        self._told = ToldValues()
        self._has_begun = False
        self._forget_records()
        os.register_at_fork(after_in_child=self._forget_records)
        for descriptor in (output, errors):
            os.set_inheritable(descriptor, False)

    def _forget_records(self) -> None:
        """Begin anew; in a child that a job forks, because another thread may have been in the middle of a record."""
        self._lock = threading.RLock()
        self._dropped = 0
        self._was_cut = False  # the last record that was written has no end

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
        """Mark that an attempt begins, and that the one before it has ended."""
        frame = begin_frame(self._mark, run_id, attempt)
        if self._has_begun:
            self._end_with(self._end + frame)
            return
        if self._dropped:
            self._notice()  # what a thread logged between two runs belongs to none
        self._write_to_both(frame)
        self._has_begun = True

    def end(self) -> None:
        """Mark that it has ended, if one had begun. What it left in Python's buffers still belongs to it."""
        if self._has_begun:
            self._end_with(self._end)
            self._has_begun = False

    def _end_with(self, frame: bytes) -> None:
        """End an attempt, and undo what its job did to the descriptors 1 and 2.

        Closed or redirected, they would take the prints of later runs, or be the number of a file or connection of
        one. To do it costs less than to ask. Every run comes here, so nothing is called that need not be.
        """
        try:  # noqa: SIM105 - to enter `suppress` takes longer than to flush nothing
            sys.stdout.flush()
        except Exception:  # noqa: BLE001, S110 - a job may have closed it, or put anything in its place
            pass
        try:  # noqa: SIM105 - as above
            sys.stderr.flush()
        except Exception:  # noqa: BLE001, S110 - as above
            pass
        if self._dropped:
            self._tell_dropped()
        self._write_to_both(frame)
        try:
            os.dup2(self._output, 1)
            os.dup2(self._errors, 2)
        except OSError:  # a job has closed ours
            pass

    def log(self, text: str) -> None:
        """Write a log record, as one or more lines, unless the pipe is full. Never waits for it."""
        line = text.encode("utf-8", "backslashreplace") + b"\n"
        with self._lock:  # a record of several frames stays together
            before = self._dropped, self._was_cut
            frames = list(log_frames(self._mark, self._notice() + line))
            written = 0
            try:
                for frame in frames:
                    os.write(self._records, frame)
                    written += 1
            except OSError:  # it is full; or the supervisor is gone, and so are we in a moment
                pass
            finally:  # also if the job is stopped here
                if not written:
                    self._dropped, self._was_cut = before[0] + 1, before[1]
                elif written < len(frames):
                    self._dropped, self._was_cut = 1, True

    def _notice(self) -> bytes:
        """Return what is to be said of records that were dropped or cut off, if anything. It is said once."""
        if not self._dropped:
            return b""
        notice = b"\n" * self._was_cut + _DROPPED % self._dropped
        self._dropped, self._was_cut = 0, False
        return notice

    def _tell_dropped(self) -> None:
        """Say in the log of the attempt how many of its last records were dropped. Waits for room, as its end does."""
        with self._lock:
            notice = self._notice()
        for frame in log_frames(self._mark, notice):
            _write(self._errors, frame)

    def keep(self, value: str) -> None:
        """Let the supervisor mask a value in all that is written from now on, to either pipe."""
        if self._told.is_recent(value):
            return
        for frame in secret_frames(self._mark, value.encode("utf-8", "surrogatepass")):
            self._write_to_both(frame)
        self._told.add(value)

    def _write_to_both(self, frame: bytes) -> None:
        try:
            os.write(self._output, frame)
        except OSError:
            _write(self._output, frame)
        try:
            os.write(self._errors, frame)
        except OSError:
            _write(self._errors, frame)


def _write(descriptor: int, frame: bytes) -> None:
    try:
        os.write(descriptor, frame)
    except BlockingIOError:
        _write_when_there_is_room(descriptor, frame)
    except OSError:  # the supervisor is gone
        pass


def _write_when_there_is_room(descriptor: int, frame: bytes) -> None:
    """Write to a full pipe that a job, or a program that it started, no longer lets wait.

    If a mark were left out, one pipe would count fewer runs than the other, and what is written would seem to belong to
    another run.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    with suppress(OSError):  # the supervisor is gone
        while True:
            poll.poll()
            with suppress(BlockingIOError):  # another process was faster
                os.write(descriptor, frame)
                return
