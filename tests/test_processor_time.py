"""The processor time that a run of tests prints is that of all its processes."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.processor_time import used_s

BURN = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\nsys.stdin.read()"
BY_A_CHILD = f"import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', {BURN!r}])"


def test_counts_descendants_that_live_and_those_that_have_ended() -> None:
    before = used_s()
    with subprocess.Popen(
        [sys.executable, "-S", "-c", BY_A_CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        living = used_s()
        process.communicate()
    assert living - before > 0.25
    assert used_s() >= living - 0.02  # the kernel counts those that live in hundredths of a second


def test_prints_the_files_that_took_most_whichever_process_ran_them(tmp_path: Path) -> None:
    (tmp_path / "test_long.py").write_text(
        textwrap.dedent("""
        import time
        def test_long():
            until = time.process_time() + 0.5
            while time.process_time() < until: pass
        """)
    )
    (tmp_path / "test_short.py").write_text("def test_short(): pass")
    words = ["-q", "-p", "tests.processor_time", "-p", "no:cacheprovider", "-n", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--rootdir", tmp_path, tmp_path],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    shown = [line.split(maxsplit=1) for line in done.stdout.partition("= processor time: ")[2].splitlines()[1:]]
    used = {words[1]: float(words[0].rstrip("s")) for words in shown if words[-1].startswith(("test_", "("))}
    assert 0.4 < used["test_long.py"] < 5
    assert list(used.values()) == sorted(used.values(), reverse=True)  # the most first
    assert "(imports and collection)" in used
    assert "(the process that collects the results)" in used  # which may be the first line on a busy machine


def test_prints_as_many_lines_as_asked_for(tmp_path: Path) -> None:
    (tmp_path / "test_short.py").write_text("def test_short(): pass")
    words = ["-q", "-p", "tests.processor_time", "-p", "no:cacheprovider", "-n", "1", "--processor-time", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--rootdir", tmp_path, tmp_path],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    shown = done.stdout.partition("= processor time: ")[2].splitlines()[1:]
    assert len([line for line in shown if re.match(r" +[0-9.]+s ", line)]) == 1
