"""The logs of all runs of this node, between the pipes of its workers and the ledger.

Three kinds of threads meet here: one that reads pipes and calls `written`; those of jobs that log, where jobs run on
threads; and the loop that writes to the ledger (`engine/logs/writer.py`). None of them waits for another for longer
than it takes to append to a list. No outcome of a run waits for any of this.

**Promises.** The memory that all logs take is bounded. What cannot be kept is dropped and counted. What a worker writes
is passed on without the values of the secrets that workers have looked up, wherever its pieces begin and end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fencepost.core.log_chunks import LogChunk
from fencepost.core.masked_values import MASKED, StreamMask
from fencepost.core.output_frames import Begin, Brief, End, Kept, Logged, OutputSplitter, Piece, mark_of
from fencepost.core.runtime import Runtime
from fencepost.core.told_values import ToldValues
from fencepost.engine.logs.attempt_log import CHUNK_BYTES, RECORDS, AttemptLog
from fencepost.engine.logs.brief_logs import BriefLog, BriefLogs, Key
from fencepost.engine.logs.given_up_logs import GivenUpLogs, given_up_brief

_MOST_WAITING = 4 << 20  # bytes of attempts that have ended
_MOST_ENDED = 20_000  # attempts
_MOST_BRIEF = 50_000  # attempts that wrote little: more than a node executes in two seconds
_MOST_CHUNKS = 20_000  # in one statement: as many short runs as a node executes in a second
_MOST_GIVEN_UP = 20_000  # attempts
_OF_ONE_ATTEMPT = 40  # more chunks than one attempt has at once
_NOTHING = float("inf")


class WorkerStreams:
    """The two pipes of a worker: which attempt each of them is at."""

    def __init__(self, mark: bytes) -> None:
        self.splitters = {1: OutputSplitter(mark), 2: OutputSplitter(mark)}
        self.owners: dict[int, Key | None] = {1: None, 2: None}
        self.begun = {1: 0, 2: 0}  # how many attempts have begun, by stream: both see the same ones
        self.done = {1: 0, 2: 0}
        self.opened: dict[Key, int] = {}  # attempts that wrote something: the how-manieth each is
        self.briefs: dict[Key, BriefLog] = {}  # others, which have ended in one pipe
        self.masks = {1: StreamMask(MASKED), 2: StreamMask(MASKED)}
        self.kept = {1: b"", 2: b""}  # parts of the value of a secret
        self.told = {1: ToldValues(), 2: ToldValues()}
        self.is_over = False  # the worker has ended; what processes that it left behind write belongs to no run

    def learn(self, stream: int, value: str) -> None:
        """Mask a value, at least until the worker would tell it again, and as long as it can write to its pipes."""
        self.told[stream].add(value, MASKED.add(value))


def _masked(streams: WorkerStreams, stream: int, pieces: list[Piece]) -> list[Piece]:
    """Return the pieces without values of secrets, and learn those that the worker has just looked up.

    What waits, because it may be the beginning of a value, is passed on when its attempt ends, at the latest.
    """
    mask, passed = streams.masks[stream], list[Piece]()
    for piece in pieces:
        match piece:
            case bytes():
                passed.append(mask.masked(piece))
            case Kept():
                streams.kept[stream] += piece.text
                if piece.is_last:
                    value, streams.kept[stream] = streams.kept[stream], b""
                    streams.learn(stream, value.decode("utf-8", "surrogatepass"))
            case Logged():
                passed.append(piece)
            case Brief() if MASKED:
                passed.append(mask.rest())  # was written between two attempts
                for run_id, attempt, text in piece.attempts:
                    passed += [Begin(int(run_id), int(attempt)), mask.masked(text), mask.rest(), End()]
            case Brief():
                passed.append(piece)
            case _:
                passed += [mask.rest(), piece]
    return [piece for piece in passed if piece != b""]


def _passed_on(piece: Piece) -> bytes:
    match piece:
        case bytes():
            return piece
        case Brief():
            return b"".join([text for _, _, text in piece.attempts])
    return b""


class RunLogs:
    """Collects what runs write, by attempt."""

    def __init__(self, runtime: Runtime) -> None:
        self._monotonic = runtime.monotonic
        self._wall_us = runtime.wall_us
        self._lock = runtime.lock()
        self._sources: dict[int, WorkerStreams] = {}
        self._local: set[Key] = set()  # attempts that execute in this process
        self._local_written: set[Key] = set()  # of these, those that wrote something
        self._attempts: dict[Key, AttemptLog] = {}
        self._ended: dict[Key, AttemptLog] = {}  # in the order in which they ended
        self._ended_size = 0  # bytes of these that wait
        self._briefs = BriefLogs()  # others that have ended
        self._given_up = GivenUpLogs(_MOST_GIVEN_UP)  # what remains of others that have ended
        self._has_news = False
        self.waiting = 0  # bytes that wait to be written
        self.waiting_since = _NOTHING  # on the monotonic clock
        self.dropped = 0  # lines, because the ledger did not take them in time
        self.on_waiting: Callable[[], None] = lambda: None

    # -- from worker processes: `fencepost.core.runtime.OutputSink` --------------------------------------------------

    def began(self, source: int, secret: str) -> None:
        """Expect output of a worker, with frames that are marked like this."""
        with self._lock:
            self._sources[source] = WorkerStreams(mark_of(secret))

    def written(self, source: int, stream: int, chunk: bytes) -> bytes:
        """Take in what a worker wrote; return it without what was only meant for us, and without values of secrets."""
        streams = self._sources.get(source)
        if streams is None:
            return MASKED.masked_bytes(chunk)
        pieces = _masked(streams, stream, streams.splitters[stream].split(chunk))
        if not streams.is_over:
            with self._lock:
                for piece in pieces:
                    self._take_in(streams, stream, piece)
            self._tell()
        return b"".join([_passed_on(piece) for piece in pieces])

    def ended(self, source: int) -> dict[int, bytes]:
        """The worker has ended: what it had begun is over. What may be the beginning of a value still waits."""
        streams = self._sources.get(source)
        if streams is None or streams.is_over:
            return {}
        passed = {stream: streams.masks[stream].masked(each.rest()) for stream, each in streams.splitters.items()}
        with self._lock:
            streams.is_over = True
            for stream, text in passed.items():
                if rest := text + streams.masks[stream].waiting():
                    self._take_in(streams, stream, rest)
            for key in streams.opened:
                self._end(key)
            self._end_briefs(streams.briefs)
            streams.opened, streams.briefs = {}, {}
        self._tell()
        return passed

    def closed(self, source: int) -> dict[int, bytes]:
        """Nothing more comes from the pipes of a worker that has ended."""
        streams = self._sources.pop(source, None)
        if streams is None:
            return {}
        return {
            stream: mask.masked(streams.splitters[stream].rest()) + mask.rest()
            for stream, mask in streams.masks.items()
        }

    def _take_in(self, streams: WorkerStreams, stream: int, piece: Piece) -> None:
        match piece:
            case Begin():
                streams.begun[stream] += 1
                streams.owners[stream] = (piece.run_id, piece.attempt)
            case End():
                streams.begun[stream] += piece.silent
                streams.done[stream] = streams.begun[stream]
                streams.owners[stream] = None
                self._end_finished(streams)
            case Brief():
                self._add_briefs(streams, stream, piece)
            case Logged():
                self._add_of(streams, stream, RECORDS, piece.text)
            case bytes():
                self._add_of(streams, stream, stream, piece)
            case Kept():
                pass  # learned already

    def _add_of(self, streams: WorkerStreams, pipe: int, stream: int, chunk: bytes) -> None:
        """Add to the attempt that this pipe is at. What is written between two attempts belongs to none."""
        key = streams.owners[pipe]
        if key is not None:
            self._open(streams, key, streams.begun[pipe])
            self._add(key, stream, chunk)

    def _open(self, streams: WorkerStreams, key: Key, number: int) -> None:
        """Expect more of an attempt than one brief output."""
        streams.opened.setdefault(key, number)
        if (brief := streams.briefs.pop(key, None)) is not None:
            self._add(key, brief.stream, brief.text)

    def _add_briefs(self, streams: WorkerStreams, stream: int, piece: Brief) -> None:
        """Add attempts that have begun and ended in this pipe."""
        at_us = self._wall_us()
        opened, briefs = streams.opened, streams.briefs
        number = streams.begun[stream]
        for run_id, attempt, text in piece.attempts:
            number += 1
            if text:
                key = int(run_id), int(attempt)
                if key in opened or key in briefs:  # it wrote to the other pipe, too
                    self._open(streams, key, number)
                    self._add(key, stream, text)
                else:
                    briefs[key] = BriefLog(number, stream, at_us, text)
        streams.begun[stream] = streams.done[stream] = number
        streams.owners[stream] = None
        self._end_finished(streams)

    def _end_finished(self, streams: WorkerStreams) -> None:
        """End the attempts that have ended in both pipes."""
        if streams.opened or streams.briefs:
            is_plausible = len(streams.briefs) <= _MOST_ENDED  # else a job writes frames of its own, to one pipe
            done = (min if is_plausible else max)(streams.done.values())
            for key in [key for key, number in streams.opened.items() if number <= done]:
                del streams.opened[key]
                self._end(key)
            finished = {key: log for key, log in streams.briefs.items() if log.number <= done}
            if finished:
                streams.briefs = {key: log for key, log in streams.briefs.items() if log.number > done}
                self._end_briefs(finished)

    def _end_briefs(self, finished: dict[Key, BriefLog]) -> None:
        before = self._briefs.size
        self._briefs.add(finished)
        self._count(self._briefs.size - before)
        self._make_room()

    # -- from this process -------------------------------------------------------------------------------------------

    def begin(self, run_id: int, attempt: int) -> None:
        """Expect log records, or the output of a program, of an attempt."""
        self._local.add((run_id, attempt))

    def add(self, run_id: int, attempt: int, stream: int, chunk: bytes) -> None:
        """Take in what an attempt wrote; nothing if it has ended."""
        key = (run_id, attempt)
        with self._lock:
            if key in self._local:
                self._local_written.add(key)
                self._add(key, stream, chunk)
                if key not in self._local:  # it has ended meanwhile, and perhaps did not see this
                    self._end_local(key)
        self._tell()

    def log(self, run_id: int, attempt: int, text: str) -> None:
        """Take in a log record of an attempt."""
        self.add(run_id, attempt, RECORDS, MASKED.masked(text).encode("utf-8", "backslashreplace") + b"\n")

    def over(self, run_id: int, attempt: int) -> None:
        """An attempt has ended. Cheap if it wrote nothing."""
        key = (run_id, attempt)
        self._local.discard(key)
        # Without the lock, as every run comes here. Another thread of the job may be adding its first line: then either
        # it is seen here, or `add` sees that the attempt is over.
        if key in self._local_written:
            with self._lock:
                self._end_local(key)
            self._tell()

    def _end_local(self, key: Key) -> None:
        self._local_written.discard(key)
        if key in self._attempts:
            self._end(key)

    # -- to the ledger -----------------------------------------------------------------------------------------------

    def take(self, most_bytes: int) -> list[LogChunk]:
        """Return what is to be written, about `most_bytes` in all. It is returned again until `taken` was called.

        Nothing keeps the rest waiting: brief logs come first, but leave half of the room to the others, and of that
        attempts under way leave half to those that have ended. Attempts under way take turns.
        """
        with self._lock:
            under_way, ended = list(self._attempts.values()), list(self._ended.values())
            of_others = min(self.waiting - self._briefs.size, most_bytes // 2)
            of_ended = sum([log.waiting for log in ended])
            most_briefs = max(_MOST_CHUNKS - _OF_ONE_ATTEMPT * (len(under_way) + len(ended)), _MOST_CHUNKS // 2)
            given_up = self._given_up.take(_MOST_CHUNKS // 4 if most_bytes > 0 else 0)  # the rest is for what is kept
            self._briefs.take(most_bytes - of_others, most_briefs - len(given_up))
        chunks = [*given_up, *self._briefs.chunks()]
        left = max(most_bytes - sum([chunk.size for chunk in chunks]), of_others)
        of_ended = min(of_ended, left // 2)  # at least, however much one attempt under way had at once
        used = self._take_from(under_way, left - of_ended, chunks)
        self._take_from(ended, max(left - used, of_ended), chunks)
        return chunks

    def _take_from(self, logs: list[AttemptLog], most_bytes: int, chunks: list[LogChunk]) -> int:
        """Add what these logs have, as long as there is room; return how many bytes that is."""
        used = 0
        for log in logs:
            if used >= most_bytes or len(chunks) + _OF_ONE_ATTEMPT > _MOST_CHUNKS:
                break
            if not log.unsent:
                with self._lock:
                    blocks = log.take()
                log.unsent = log.chunks(blocks)  # without the lock: to mask and compress takes a while
            chunks += log.unsent
            used += sum([chunk.size for chunk in log.unsent])
        return used

    @property
    def has_begun(self) -> bool:
        """Whether an attempt that wrote something goes on."""
        return bool(self._attempts)

    def taken(self, chunks: Sequence[LogChunk]) -> list[tuple[int, int, int, int]]:
        """Note that the ledger has these; return which older ones to remove: run, attempt, first and last number."""
        removals = []
        with self._lock:
            others = chunks[self._given_up.sent() + self._briefs.sent() :]
            for key in dict.fromkeys((chunk.run_id, chunk.attempt) for chunk in others):
                log = self._ended.get(key) or self._attempts.get(key)
                if log is not None and (removed := log.sent()) is not None:
                    removals.append((*key, *removed))
                if log is not None and log.is_over and not log.pending:
                    del self._ended[key]
                elif key in self._attempts:  # it was its turn
                    self._attempts[key] = self._attempts.pop(key)
            self._ended_size = sum([log.waiting for log in self._ended.values()])
            of_attempts = self._ended_size + sum([log.waiting for log in self._attempts.values()])
            self.waiting = of_attempts + self._briefs.size + len(self._given_up)
            self.waiting_since = self._monotonic() if self.waiting else _NOTHING
        return removals

    # -- under the lock ----------------------------------------------------------------------------------------------

    def _add(self, key: Key, stream: int, chunk: bytes) -> None:
        log = self._attempts.get(key)
        if log is None:
            log = self._attempts[key] = AttemptLog(*key)
        before = log.pending
        log.add(stream, chunk, self._wall_us())
        self._count(log.pending - before)

    def _end(self, key: Key) -> None:
        log = self._attempts.pop(key, None)
        if log is None:
            return
        before = log.pending
        log.end(self._wall_us())
        self._count(log.pending - before)
        if log.pending or log.is_taken:
            self._ended[key] = log
            self._ended_size += log.waiting
            self._make_room()

    def _count(self, more: int) -> None:
        was_little = self.waiting < CHUNK_BYTES
        self.waiting += more
        if self.waiting > 0 and self.waiting_since == _NOTHING:
            self.waiting_since = self._monotonic()
            self._has_news = True
        elif was_little and self.waiting >= CHUNK_BYTES:
            self._has_news = True

    def _make_room(self) -> None:
        """Give up what waits of the attempts that ended first, if there is too much."""
        size = self._briefs.size + self._ended_size
        over = _beyond(size, _MOST_WAITING)
        of_briefs = over if self._briefs.size > size // 2 else 0
        if of_briefs or len(self._briefs) > _MOST_BRIEF:
            over -= self._give_up_briefs(of_briefs, _beyond(len(self._briefs), _MOST_BRIEF))
        if over > 0 or len(self._ended) > _MOST_ENDED:
            self._give_up_ended(over, _beyond(len(self._ended), _MOST_ENDED))

    def _give_up_briefs(self, least_bytes: int, least: int) -> int:
        before = self._briefs.size
        for (run_id, attempt), log in self._briefs.give_up(least_bytes, least):
            lines = log.text.count(b"\n") + (not log.text.endswith(b"\n"))
            self._give_up(given_up_brief(run_id, attempt, log.at_us, lines), lines)
        self.waiting -= before - self._briefs.size
        return before - self._briefs.size

    def _give_up_ended(self, least_bytes: int, least: int) -> None:
        gone, size = list[Key](), 0
        for key, log in self._ended.items():
            if size >= least_bytes and len(gone) >= least:
                break
            if not log.is_taken:  # else the ledger is being asked to take it
                gone.append(key)
                size += log.waiting
        for log in map(self._ended.pop, gone):
            lines = log.give_up(self._wall_us())
            self._give_up(log.unsent[0], lines)
        self._ended_size -= size
        self.waiting -= size

    def _give_up(self, chunk: LogChunk, lines: int) -> None:
        self.dropped += lines
        self.waiting -= len(self._given_up)
        self._given_up.add(chunk)
        self.waiting += len(self._given_up)

    def _tell(self) -> None:
        if self._has_news:
            self._has_news = False
            self.on_waiting()


def _beyond(size: int, most: int) -> int:
    """Return how much to give up, if there is too much: a little more than that, so that it is rarely done."""
    return size - most + most // 16 if size > most else 0
