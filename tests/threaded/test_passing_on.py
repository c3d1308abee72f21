"""What jobs write reaches the output of this process, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_MUCH = 300_000  # bytes: more than a pipe holds

_NON_BLOCKING = f"""
import os, sys
from fencepost.threaded import passing_on
os.set_blocking(1, False)
for _ in range({_MUCH // 1000}):
    passing_on.pass_on(1, b"x" * 999 + b"\\n")
passing_on.flush()
"""

_CLOSED = """
import os, sys
from fencepost.threaded import passing_on
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
assert file == 1
passing_on.pass_on(1, b"what a job prints")
passing_on.flush()
"""


def test_output_that_another_process_made_non_blocking_loses_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", _NON_BLOCKING], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        first = program.stdout.read(1)  # by then it writes
        assert len(first + program.stdout.read()) == _MUCH


def test_a_file_that_got_the_number_of_a_closed_stream_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "a database"
    closing = ["sh", "-c", 'exec "$@" >&-', "sh"]
    subprocess.run([*closing, sys.executable, "-c", _CLOSED, str(file)], check=True)
    assert file.read_bytes() == b""
