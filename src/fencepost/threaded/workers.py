"""Worker processes, for their supervisor; `fencepost.threaded.worker_line` is the other end.

Three descriptors connect the two::

    supervisor ══ socket pair of packets ══▶ worker      one message each; the supervisor keeps the worker's end, too,
                                                         and recalls messages by reading there: the kernel gives each
                                                         message to one of the two readers
    supervisor ◀═══════ a pipe of lines ════ worker      each line is written at once, so replies survive a kill
    supervisor ◀═══ a file in memory only ══▶ worker     one page of words, then a message too long for a packet

Where output is captured, two pipes more carry the worker's standard output and error, and are read by a thread of their
own (`fencepost.threaded.output_reader`). The worker is told their numbers in its first message.

Only the guardian reports that a worker has ended; an end of file only means that there is nothing more to read.
"""

from __future__ import annotations

import itertools
import mmap
import os
import select
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress

from fencepost.core.runtime import OutputSink, ProgramExit, WorkerProcess
from fencepost.threaded.guarded import GuardedProgram
from fencepost.threaded.guarded import start as start_guarded
from fencepost.threaded.inherited import keep_from_children
from fencepost.threaded.output_reader import OutputPipes, OutputReader
from fencepost.threaded.worker_line import ASIDE, END, LARGEST_MESSAGE, LOOK, PAGE

_ROOM_FOR_PACKETS = 1 << 20  # claims that wait in the kernel; if there is no room, a claim is not given to this worker
_ROOM_FOR_LINES = 1 << 18  # replies that a busy supervisor has not read; if there is no room, the worker waits
_CHUNK = 1 << 16  # bytes of a read; a shorter one has emptied the pipe
_BEGINNING = 32  # bytes that are read of a recalled message: enough to identify it
_F_SETPIPE_SZ = 1031  # as Linux numbers it, where Python has no name for it


class ThreadedWorkers:
    """A set of worker processes, and the poll that waits for all of them."""

    def __init__(self, output: OutputSink | None = None) -> None:
        self._sink = output
        self._reader = None if output is None else OutputReader(output)
        self._sources = itertools.count(1)
        self._poll = select.epoll()
        self._by_descriptor: dict[int, WorkerChild] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        self._woken, self._waker = os.pipe()
        for descriptor in (self._woken, self._waker):
            os.set_blocking(descriptor, False)
        self._poll.register(self._woken, select.EPOLLIN)

    def start(self, argv: Sequence[str], *, env: Mapping[str, str], term_at: float, kill_at: float) -> WorkerChild:
        with ExitStack() as undone, ExitStack() as theirs_alone:  # what is opened is closed if the next step fails
            ours, theirs = map(undone.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            answers, answering = os.pipe()
            undone.callback(os.close, answers)
            theirs_alone.callback(os.close, answering)
            memory = os.memfd_create("fencepost-worker")
            undone.callback(os.close, memory)
            os.ftruncate(memory, PAGE)
            numbers = (theirs.fileno(), answering, memory)
            output = None if self._reader is None else OutputPipes()
            for descriptor in () if output is None else output.exits:
                undone.callback(os.close, descriptor)
            for descriptor in () if output is None else output.entrances:
                theirs_alone.callback(os.close, descriptor)
            process = start_guarded(
                [*argv, *map(str, numbers)],
                env=env,
                term_at=term_at,
                kill_at=kill_at,
                unattended=True,  # a background process that reads from a terminal is stopped
                descriptors=numbers if output is None else (*numbers, *output.entrances),
                notice=END,
            )
            undone.pop_all()
        worker = WorkerChild(process, ours=ours, theirs=theirs, answers=answers, memory=memory, workers=self)
        if output is not None:
            self._listen(worker, output)
        return self._add(worker)

    def _listen(self, worker: WorkerChild, output: OutputPipes) -> None:
        """Read the worker's output from now on."""
        if self._reader is None or self._sink is None:
            return
        worker.source = next(self._sources)
        worker.output = (*output.entrances, output.secret)
        self._sink.began(worker.source, output.secret)
        self._reader.add(worker.source, *output.exits)

    def stop_listening(self, worker: WorkerChild) -> None:
        """Note that a worker has ended; the rest of its output is read."""
        if self._reader is not None and worker.source:
            self._reader.ended(worker.source)

    def wait(self, timeout: float) -> list[WorkerProcess]:
        found: dict[int, WorkerProcess] = {}
        for descriptor, _ in self._poll.poll(timeout):
            if descriptor == self._woken:
                with suppress(BlockingIOError):
                    os.read(self._woken, 4096)
            elif (worker := self._by_descriptor.get(descriptor)) is not None:
                found[id(worker)] = worker
        return list(found.values())

    def wake(self) -> None:
        with self._lock, suppress(BlockingIOError):  # the pipe is full, so the thread will wake up
            if not self._is_closed:
                os.write(self._waker, b"!")

    def close(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._poll.close()
            os.close(self._woken)
            os.close(self._waker)
        if self._reader is not None:
            self._reader.close()

    def _add(self, worker: WorkerChild) -> WorkerChild:
        with self._lock:
            for descriptor in worker.descriptors:
                self._by_descriptor[descriptor] = worker
                self._poll.register(descriptor, select.EPOLLIN)
        return worker

    def forget(self, worker: WorkerChild, *descriptors: int) -> None:
        """Stop polling these descriptors, unless a closed number belongs to another worker by now."""
        with self._lock:
            for descriptor in descriptors:
                if self._by_descriptor.get(descriptor) is worker:
                    del self._by_descriptor[descriptor]
                    with suppress(OSError, ValueError):  # already closed
                        self._poll.unregister(descriptor)


class WorkerChild:
    """One worker process."""

    largest_message = LARGEST_MESSAGE

    def __init__(
        self,
        process: GuardedProgram,
        *,
        ours: socket.socket,
        theirs: socket.socket,
        answers: int,
        memory: int,
        workers: ThreadedWorkers,
    ) -> None:
        self._process = process
        self._ours = ours
        self._theirs = theirs
        self._answers = answers
        self._memory = memory
        self._workers = workers
        self._map = mmap.mmap(memory, PAGE)
        self.shared = memoryview(self._map)
        self._unread = b""
        self.descriptors = (answers, process.reports)
        self.output: tuple[int, int, str] | None = None
        self.source = 0  # its number among those whose output is read
        self._ended: ProgramExit | None = None
        ours.setblocking(False)  # not `theirs`: the worker's reads must block
        os.set_blocking(answers, False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM_FOR_PACKETS)
        _enlarge(answers)
        self._is_closed = False
        keep_from_children(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: bytes) -> bool:
        try:
            self._ours.send(message)
        except (BlockingIOError, ConnectionError):
            return False
        return True

    def send_aside(self, message: bytes) -> bool:
        os.pwrite(self._memory, message, PAGE)
        return self.send(ASIDE + str(len(message)).encode())

    def recall(self) -> list[bytes]:
        packets = []
        with suppress(BlockingIOError, ConnectionError):
            while packet := self._theirs.recv(_BEGINNING, socket.MSG_DONTWAIT):  # the rest is discarded
                packets.append(packet)
        return [os.pread(self._memory, _BEGINNING, PAGE) if each[:1] == ASIDE else each for each in packets]

    def receive(self) -> list[bytes]:
        received = [self._unread]
        with suppress(BlockingIOError):
            while chunk := os.read(self._answers, _CHUNK):
                received.append(chunk)
                if len(chunk) < _CHUNK:
                    break
            else:
                self._workers.forget(self, self._answers)
        *lines, self._unread = b"".join(received).split(b"\n")
        return lines

    def extend(self, *, term_at: float, kill_at: float) -> None:
        self._process.extend(term_at=term_at, kill_at=kill_at)

    def kill(self) -> None:
        self._process.kill()

    def poke(self) -> None:
        self._process.tell(LOOK)

    def ended(self) -> ProgramExit | None:
        if self._ended is None and (ended := self._process.wait(0)) is not None:
            self._workers.forget(self, self.descriptors[1])
            self._ended = ended
        return self._ended

    def leave_to_parent(self) -> None:
        """In a forked child: close the descriptors, which the parent's poll would otherwise keep watching."""
        if not self._is_closed:
            self._is_closed = True
            self._ours.close()
            self._theirs.close()
            os.close(self._answers)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._workers.stop_listening(self)
        self._workers.forget(self, *self.descriptors)
        self._ours.close()
        self._theirs.close()
        os.close(self._answers)
        os.close(self._memory)
        self.shared.release()
        with suppress(BufferError):  # still in use: it is freed with its last user
            self._map.close()


def _enlarge(pipe: int) -> None:
    """Enlarge the pipe of replies, if the system allows it, so that a busy supervisor does not block workers."""
    import fcntl  # noqa: PLC0415 - not available on every system

    with suppress(OSError):
        fcntl.fcntl(pipe, getattr(fcntl, "F_SETPIPE_SZ", _F_SETPIPE_SZ), _ROOM_FOR_LINES)
