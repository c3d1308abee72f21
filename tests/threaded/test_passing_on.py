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


_FULL = """
import os, sys
from fencepost.threaded import passing_on
passing_on._MOST_BYTES = 200_000
passing_on.pass_on(1, b"a" * 150_000 + b"\\n")  # waits: nobody reads
while passing_on._STREAMS[1]._waiting:
    pass
passing_on.pass_on(1, b"b" * 150_000 + b"\\n")
passing_on.pass_on(1, b"c" * 150_000 + b"\\n")  # there is no room for these
passing_on.pass_on(1, b"d" * 30_000 + b"\\n")
passing_on.pass_on(1, b"e" * 150_000 + b"\\n")
os.write(2, b"full")
passing_on.flush(60)
"""


def test_how_much_was_dropped_is_said_where_it_would_have_stood() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _FULL], stdout=pipe, stderr=pipe) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stderr.read(4) == b"full"
        lines = program.stdout.read().decode().splitlines()
    assert [line[:20] for line in lines] == [each * 20 for each in ("a", "b")] + [
        "fencepost: 150001 by",
        "d" * 20,
        "fencepost: 150001 by",
    ]


def test_a_file_that_got_the_number_of_a_closed_stream_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "a database"
    closing = ["sh", "-c", 'exec "$@" >&-', "sh"]
    subprocess.run([*closing, sys.executable, "-c", _CLOSED, str(file)], check=True)
    assert file.read_bytes() == b""
