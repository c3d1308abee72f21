"""Reads the output of worker processes: one thread for all of them, which nothing else waits for.

Each worker has two pipes, for its standard output and standard error. The thread reads whatever is there, hands it to
an `OutputSink`, and passes on to our own output what the sink returns. It never waits for anything but the pipes, so a
job that floods its output is slowed down to the speed at which this thread can discard it, and never blocked.

When a worker has ended, the rest of its output is read, and the sink gets `ended`. Processes that it left behind may
keep the pipes open: these are read on, so that such a process is not blocked or killed, until it ends or we do. Then
the sink gets `closed`.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from fencepost.core.output_frames import has_an_end
from fencepost.core.runtime import OutputSink
from fencepost.threaded import passing_on
from fencepost.threaded.inherited import keep_from_children

_log = logging.getLogger("fencepost.process")
_CHUNK = 1 << 16  # bytes of a read; a shorter one has emptied the pipe
_TURNS = 16  # chunks of one pipe before the others get their turn: more than a pipe holds would be unfair
_ROOM = 1 << 20  # the most that Linux gives without privileges, by default; a job that fills it waits
_F_SETPIPE_SZ = 1031  # as Linux numbers it, where Python has no name for it
_NAP_S = 0.005  # while short runs follow each other: each would wake this thread several times
_END_S = 1.0  # how long `close` waits for the thread: the process must be able to end


@dataclass(slots=True)
class _Pipe:
    source: int
    stream: int
    is_open: bool = True


class OutputReader:
    """The thread, and the pipes that it reads. Starts with the first worker."""

    def __init__(self, sink: OutputSink) -> None:
        self._sink = sink
        self._poll = select.epoll()
        self._lock = threading.Lock()
        self._pipes: dict[int, _Pipe] = {}  # by descriptor
        self._ended: list[int] = []  # sources whose worker has ended
        self._woken, self._waker = os.pipe()
        for descriptor in (self._woken, self._waker):
            os.set_blocking(descriptor, False)
        self._poll.register(self._woken, select.EPOLLIN)
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._is_closed = False
        self._has_failed = False
        keep_from_children(self)

    def add(self, source: int, output: int, errors: int) -> None:
        """Read these two descriptors for a worker, until its end."""
        with self._lock:
            for stream, descriptor in ((1, output), (2, errors)):
                os.set_blocking(descriptor, False)
                self._pipes[descriptor] = _Pipe(source, stream)
                self._poll.register(descriptor, select.EPOLLIN)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="fencepost-output-reader", daemon=True)
                self._thread.start()

    def ended(self, source: int) -> None:
        """Note that a worker has ended. The sink gets `ended` when the rest of the output has been read."""
        with self._lock:
            self._ended.append(source)
        self._wake()

    def close(self) -> None:
        """Read what is there, pass it on, and end. Waits for a moment."""
        self._is_closing = True
        self._wake()
        if self._thread is not None:
            self._thread.join(_END_S)
            passing_on.flush()
        else:
            self._release()

    def leave_to_parent(self) -> None:
        """In a forked child: the parent reads."""
        for descriptor in (*self._pipes, self._woken, self._waker):
            with suppress(OSError):
                os.close(descriptor)
        self._poll.close()
        self._is_closed = True

    def _wake(self) -> None:
        with suppress(OSError):
            if not self._is_closed:
                os.write(self._waker, b"!")

    def _run(self) -> None:
        while not self._is_closing:
            ready = [descriptor for descriptor, _ in self._poll.poll()]
            is_between_runs = self._read_all(ready)
            self._report_ended()
            if is_between_runs:
                _nap()
        for descriptor, pipe in list(self._pipes.items()):
            self._read(descriptor, pipe)
        for source in {pipe.source for pipe in self._pipes.values()}:
            self._close(source)
        self._release()

    def _read_all(self, ready: list[int]) -> bool:
        """Read these; return whether there was something, and a run ended in each of them.

        While a run goes on, it is read at once: what it writes to both pipes stays nearly in order, and a small pipe
        that is full does not stop it.
        """
        had_ends = []
        for descriptor in ready:
            pipe = self._pipes.get(descriptor)
            if pipe is not None:
                had_ends.append(self._read(descriptor, pipe))
            elif descriptor == self._woken:
                with suppress(BlockingIOError):
                    os.read(self._woken, 4096)
        return bool(had_ends) and all(had_ends)

    def _read(self, descriptor: int, pipe: _Pipe) -> bool:
        """Read what is there, within limits; return whether a run ended in the last of it."""
        chunk = b""
        for _ in range(_TURNS):
            before = chunk
            try:
                chunk = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                return has_an_end(before)
            except OSError:
                chunk = b""
            if not chunk:
                self._forget(descriptor, pipe)
                return False
            passing_on.pass_on(pipe.stream, self._passed(pipe, chunk))
            if len(chunk) < _CHUNK:
                break
        return has_an_end(chunk)

    def _passed(self, pipe: _Pipe, chunk: bytes) -> bytes:
        """Hand a chunk to the sink. Whatever fails there, reading goes on: without it, jobs that print would wait."""
        try:
            return self._sink.written(pipe.source, pipe.stream, chunk)
        except Exception as error:  # noqa: BLE001 - no error may end the thread
            if not self._has_failed:
                self._has_failed = True
                _log.exception("an output of a worker was not kept: %s", type(error).__name__)
            return chunk

    def _end(self, source: int) -> None:
        """Report the end of a worker to the sink."""
        self._report(self._sink.ended, source)

    def _close(self, source: int) -> None:
        """Report that nothing more can come from a worker, or from what it left behind."""
        self._end(source)
        self._report(self._sink.closed, source)

    def _report(self, tell: Callable[[int], Mapping[int, bytes]], source: int) -> None:
        try:
            passed = tell(source)
        except Exception:  # noqa: BLE001 - as above
            _log.exception("the end of the output of a worker was not noted")
            return
        for stream, chunk in passed.items():
            passing_on.pass_on(stream, chunk)

    def _forget(self, descriptor: int, pipe: _Pipe) -> None:
        """Close a pipe that no process writes to any more."""
        with self._lock:
            self._poll.unregister(descriptor)
            del self._pipes[descriptor]
            is_last = all(other.source != pipe.source for other in self._pipes.values())
        os.close(descriptor)
        if is_last:
            self._close(pipe.source)

    def _report_ended(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        for source in ended:
            for descriptor, pipe in [each for each in self._pipes.items() if each[1].source == source]:
                self._read(descriptor, pipe)
            self._end(source)

    def _release(self) -> None:
        self._is_closed = True
        for descriptor in (*self._pipes, self._woken, self._waker):
            with suppress(OSError):
                os.close(descriptor)
        self._pipes.clear()
        self._poll.close()


def _nap() -> None:
    time.sleep(_NAP_S)


class OutputPipes:
    """Two pipes for the output of a worker, as large as the system allows, and the digits that mark its frames."""

    def __init__(self) -> None:
        first = _large_pipe()
        try:
            second = _large_pipe()
        except OSError:  # too many open files
            for descriptor in first:
                os.close(descriptor)
            raise
        self.exits = first[0], second[0]
        self.entrances = first[1], second[1]
        self.secret = os.urandom(12).hex()


def _large_pipe() -> tuple[int, int]:
    import fcntl  # noqa: PLC0415 - not available on every system

    reader, writer = os.pipe()
    with suppress(OSError):
        fcntl.fcntl(writer, getattr(fcntl, "F_SETPIPE_SZ", _F_SETPIPE_SZ), _ROOM)
    return reader, writer
