"""What a job does to its output does not reach the runs after it."""

from __future__ import annotations

import subprocess
import sys

_CLOSES = """
import os
from fencepost.threaded.worker_output import WorkerOutput
reads, writes = zip(os.pipe(), os.pipe())
output = WorkerOutput(*writes, "secret")
output.take_over()
output.begin(1, 1)
os.close(1)
os.close(2)
output.end()
opened = os.open(os.devnull, os.O_RDWR)  # by the next run: a database, perhaps
assert opened > 2
os.write(1, b"out of run 2")
os.write(2, b"err of run 2")
assert all(os.read(each, 1000).endswith(b" of run 2") for each in reads)
"""


def test_streams_that_a_job_closed_are_open_for_the_next_run() -> None:
    subprocess.run([sys.executable, "-c", _CLOSES], check=True, capture_output=True)
