"""What a job does to its output does not reach the runs after it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from fencepost.core.output_frames import mark_of, secret_frames
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


def test_value_that_is_used_again_is_told_again_in_time_and_not_each_time() -> None:
    with ExitStack() as opened:
        reads, writes = zip(*(os.pipe() for _ in range(2)), strict=True)
        for each in (*reads, *writes):
            opened.callback(os.close, each)
        output = WorkerOutput(*writes, "5ec2e7")
        for number in range(150):
            output.keep("static")
            output.keep(f"leased by run {number}")
        static = next(secret_frames(mark_of("5ec2e7"), b"static"))
        for each in reads:
            told = os.read(each, 1 << 16)
            assert (told.count(static), told.count(b"leased by run ")) == (2, 150)
