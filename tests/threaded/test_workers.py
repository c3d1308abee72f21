"""Worker processes that cannot be started leave nothing open."""

from __future__ import annotations

import subprocess
import sys

_SCARCE = """
import os, resource
from fencepost.threaded.workers import ThreadedWorkers

class Sink:
    def began(self, source, secret): ...
    def written(self, source, stream, chunk): return chunk
    def ended(self, source): ...

workers = ThreadedWorkers(Sink())
before = len(os.listdir("/proc/self/fd"))
for room in range(10):  # fewer than a worker needs
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + room, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        workers.start(["true"], env={}, term_at=0.0, kill_at=0.0)
    except OSError:
        pass
    else:
        raise SystemExit(f"started with {room}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    print(room, len(os.listdir("/proc/self/fd")) - before)
"""


def test_nothing_is_left_open_if_there_are_too_few_descriptors_for_a_worker() -> None:
    done = subprocess.run([sys.executable, "-c", _SCARCE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"{room} 0" for room in range(10)]
