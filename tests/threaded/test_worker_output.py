"""What a job does to its output does not reach the runs after it."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from fencepost.core.output_frames import Begin, End, Logged, OutputSplitter, Piece, mark_of, secret_frames
from fencepost.threaded.worker_output import WorkerOutput

_CLOSES = """
import os
from fencepost.threaded.worker_output import WorkerOutput
reads, writes = zip(os.pipe(), os.pipe())
output = WorkerOutput(*writes, "secret")
output.take_over()
output.begin(1, 1)
os.close(1)
os.close(2)
output.NEXT
opened = os.open(os.devnull, os.O_RDWR)  # by the next run: a database, perhaps
assert opened > 2
os.write(1, b"out of run 2")
os.write(2, b"err of run 2")
assert all(os.read(each, 1000).endswith(b" of run 2") for each in reads)
"""


@pytest.mark.parametrize("what", ["end()", "begin(2, 1)"], ids=["none-is-at-hand", "one-is-at-hand"])
def test_streams_that_a_job_closed_are_open_for_the_next_run(what: str) -> None:
    subprocess.run([sys.executable, "-c", _CLOSES.replace("NEXT", what)], check=True, capture_output=True)


_REDIRECTS = """
import os, sys
from fencepost.threaded.worker_output import WorkerOutput
reads, writes = zip(os.pipe(), os.pipe())
output = WorkerOutput(*writes, "secret")
output.take_over()
output.begin(1, 1)
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.dup2(file, 1)
os.dup2(1, 2)
os.write(1, b"out of run 1")
output.NEXT
os.write(1, b"out of run 2")
os.write(2, b"err of run 2")
assert os.pread(file, 1000, 0) == b"out of run 1"
assert all(os.read(each, 1000).endswith(b" of run 2") for each in reads)
"""


@pytest.mark.parametrize("what", ["end()", "begin(2, 1)"], ids=["none-is-at-hand", "one-is-at-hand"])
def test_streams_that_a_job_redirected_are_those_of_the_next_run_again(what: str, tmp_path: Path) -> None:
    code = _REDIRECTS.replace("NEXT", what)
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], check=True, capture_output=True)


_FOLLOWS = """
import os, sys
from fencepost.core.output_frames import begin_frame, end_frame, mark_of
from fencepost.threaded.worker_output import WorkerOutput
reads, writes = zip(os.pipe(), os.pipe())
output, mark = WorkerOutput(*writes, "5ec2e7"), mark_of("5ec2e7")
output.take_over()
output.begin(1, 1)
sys.stdout.write("one")  # stays in Python's buffer
output.begin(2, 1)
sys.stdout.write("two")
output.end()
output.end()
one, two, end = begin_frame(mark, 1, 1), begin_frame(mark, 2, 1), end_frame(mark)
assert os.read(reads[0], 1000) == one + b"one" + end + two + b"two" + end
assert os.read(reads[1], 1000) == one + end + two + end
"""


def test_a_run_that_follows_at_once_ends_the_one_before_it_with_all_that_this_wrote() -> None:
    subprocess.run([sys.executable, "-c", _FOLLOWS], check=True, capture_output=True)


_DOES_NOT_BLOCK = """
import os, threading
from fencepost.core.output_frames import OutputSplitter, Begin, End, Kept, mark_of
from fencepost.threaded.worker_output import WorkerOutput
reads, writes = zip(os.pipe(), os.pipe())
output, splitter = WorkerOutput(*writes, "5ec2e7"), OutputSplitter(mark_of("5ec2e7"))
output.take_over()
output.begin(1, 1)
os.set_blocking(2, False)  # as some programs do that a job starts
size = 1 << 16
while size:
    try:
        os.write(2, b"x" * size)
    except BlockingIOError:
        size //= 2
pieces = []
def read():
    while chunk := os.read(reads[1], 1 << 16):
        pieces.extend(splitter.split(chunk))
reader = threading.Timer(0.3, read)
reader.start()
output.keep("a value")
output.begin(2, 1)
output.end()
for each in (2, writes[1], output._records):
    os.close(each)
reader.join()
assert [each for each in pieces if not isinstance(each, bytes)] == [
    Begin(1, 1), Kept(b"a value", is_last=True), End(), End(silent=1)
]
"""


def test_no_mark_is_lost_in_a_full_pipe_that_does_not_block_any_more() -> None:
    subprocess.run([sys.executable, "-c", _DOES_NOT_BLOCK], check=True, capture_output=True)


class Piped(WorkerOutput):
    """The output of a worker, whose descriptors 1 and 2 stay those of the test."""

    def __init__(self, opened: ExitStack) -> None:
        pipes = [os.pipe() for _ in range(2)]
        for each in (*pipes[0], *pipes[1]):
            opened.callback(os.close, each)
        self.reads = [reads for reads, _ in pipes]
        super().__init__(*(writes for _, writes in pipes), "5ec2e7")
        self._records = os.open(f"/proc/self/fd/{pipes[1][1]}", os.O_WRONLY | os.O_NONBLOCK)
        opened.callback(os.close, self._records)
        self.splitters = [OutputSplitter(mark_of("5ec2e7")) for _ in pipes]
        for each in self.reads:
            os.set_blocking(each, False)

    def _flush(self) -> None: ...
    def _reopen(self) -> None: ...

    def read(self, stream: int) -> bytes:
        read = b""
        with suppress(BlockingIOError):
            while chunk := os.read(self.reads[stream - 1], 1 << 20):
                read += chunk
        return read

    def pieces(self) -> list[Piece]:
        """Return what the supervisor reads from standard error."""
        return self.splitters[1].split(self.read(2))

    def fill(self, text: str) -> None:
        """Log a record until there is no room for it."""
        while not self._dropped:
            self.log(text)


@pytest.fixture
def piped() -> Iterator[Piped]:
    with ExitStack() as opened:
        yield Piped(opened)


def said(pieces: list[Piece]) -> str:
    return b"".join(piece.text for piece in pieces if isinstance(piece, Logged)).decode()


def test_value_that_is_used_again_is_told_again_in_time_and_not_each_time(piped: Piped) -> None:
    for number in range(150):
        piped.keep("static")
        piped.keep(f"leased by run {number}")
    static = next(secret_frames(mark_of("5ec2e7"), b"static"))
    for told in map(piped.read, (1, 2)):
        assert (told.count(static), told.count(b"leased by run ")) == (2, 150)


@pytest.mark.parametrize("is_at_hand", [False, True])
def test_records_that_were_dropped_are_told_of_in_the_log_of_their_own_run(piped: Piped, *, is_at_hand: bool) -> None:
    piped.begin(1, 1)
    piped.fill("x" * 3000)
    piped.log("x" * 3000)
    pieces = piped.pieces()  # the supervisor reads: there is room for the end
    if not is_at_hand:
        piped.end()
    piped.begin(2, 1)
    piped.log("of the second run")
    piped.end()
    pieces += piped.pieces()
    ends = [at for at, piece in enumerate(pieces) if isinstance(piece, End | Begin)]
    assert [pieces[at] for at in ends] == [Begin(1, 1), End(), Begin(2, 1), End()]
    first, second = said(pieces[: ends[1]]), said(pieces[ends[1] :])
    assert first.splitlines()[-2:] == [
        "x" * 3000,
        "... 2 log records were dropped or cut off here, because there were too many to keep",
    ]
    assert second == "of the second run\n"


def test_what_a_thread_logs_in_vain_between_two_runs_is_told_in_none(piped: Piped) -> None:
    piped.begin(1, 1)
    piped.end()
    piped.fill("x" * 3000)
    piped.pieces()
    piped.begin(2, 1)
    piped.log("of the second run")
    piped.end()
    assert said(piped.pieces()) == "of the second run\n"


def test_long_records_of_two_threads_do_not_run_into_each_other(piped: Piped, monkeypatch: pytest.MonkeyPatch) -> None:
    piped.begin(1, 1)
    other, write, frames = threading.Thread(target=lambda: piped.log("b" * 20_000)), os.write, itertools.count(1)

    def write_slowly(descriptor: int, frame: bytes) -> int:
        if next(frames) == 3:
            other.start()
            other.join(0.2)  # it has to wait
        return write(descriptor, frame)

    monkeypatch.setattr(os, "write", write_slowly)
    piped.log("a" * 20_000)
    other.join()
    piped.end()
    assert said(piped.pieces()).splitlines() == ["a" * 20_000, "b" * 20_000]


def test_record_that_is_cut_off_ends_with_its_line_and_is_counted(piped: Piped) -> None:
    piped.begin(1, 1)
    while not piped._was_cut:
        piped.log("x" * 20_000)
    for text in ("dropped whole " * 300, "this, too " * 500):
        piped.log(text)
    pieces = piped.pieces()
    piped.log("the next")
    piped.end()
    *whole, cut, notice, after = said(pieces + piped.pieces()).splitlines()
    assert set(whole) == {"x" * 20_000}
    assert (set(cut), len(cut) < 20_000, after) == ({"x"}, True, "the next")
    assert notice == "... 3 log records were dropped or cut off here, because there were too many to keep"


def test_child_that_is_forked_in_the_middle_of_a_record_can_log(piped: Piped) -> None:
    """As a thread of the job is at it; the record of the child is its own, and the parent goes on."""
    is_locked, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        with piped._lock:
            is_locked.set()
            goes_on.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_locked.wait()
    with warnings.catch_warnings(action="ignore"):  # of a fork beside threads, which is the point
        child = os.fork()
    if not child:
        signal.alarm(20)
        piped.log("by the child")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    goes_on.set()
    thread.join()
    piped.log("by the parent")
    assert said(piped.pieces()) == "by the child\nby the parent\n"
