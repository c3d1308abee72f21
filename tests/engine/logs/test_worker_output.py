"""The output of worker processes: each run's its own, whatever jobs do to their descriptors, and no job is blocked."""

import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from fencepost.core.log_chunks import LogChunk, Position, with_missing
from fencepost.core.timings import Timings
from fencepost.engine.logs.run_logs import RunLogs
from fencepost.engine.runners.outcome import How
from fencepost.engine.runners.process import ProcessRunner
from testbed.wait import until
from tests.engine.runner_stand import LONG_S, RUNTIME, Stand, said

TIMINGS = Timings.of("30s", term_grace="300ms")


class Logged(Stand):
    """Worker processes, and what a ledger would have of their logs."""

    def __init__(self, slots: int) -> None:
        self.logs = RunLogs(RUNTIME)
        self.rows: dict[tuple[int, int, int], LogChunk] = {}
        events: list = []
        runner = ProcessRunner(
            "tests.engine.logs.loud_shop:app",
            slots=slots,
            timings=TIMINGS,
            runtime=RUNTIME,
            output=self.logs,
            emit=events.append,
        )
        super().__init__(runner)
        self.events = events

    def flush(self) -> None:
        """Be the ledger."""
        while chunks := self.logs.take(1 << 30):
            self.rows |= {chunk[:3]: chunk for chunk in chunks}
            for run_id, attempt, first, last in self.logs.taken(chunks):
                for seq in range(first, last + 1):
                    self.rows.pop((run_id, attempt, seq), None)

    def chunks(self, run_id: int) -> list[LogChunk]:
        self.flush()
        return [self.rows[key] for key in sorted(self.rows) if key[0] == run_id]

    def text(self, run_id: int) -> str:
        return b"".join(zlib.decompress(chunk.text) for chunk in self.chunks(run_id)).decode()

    def missing(self, run_id: int) -> int:
        return sum(each[1] for each in with_missing(self.chunks(run_id), Position()))

    def says(self, run_id: int, words: str) -> str:
        """Wait until the log of a run has these words."""
        until(lambda: words in self.text(run_id), LONG_S, what=f"run {run_id} says {words!r}")
        return self.text(run_id)

    def runs(self, job: str, **params: object) -> int:
        """Execute a job successfully; return the number of its run."""
        outcome = self.run(job, **params)
        assert outcome.how == How.SUCCEEDED, outcome
        return outcome.run_id


@contextmanager
def workers(slots: int = 1) -> Iterator[Logged]:
    made = Logged(slots)
    made.start(slots=slots)
    try:
        yield made
    finally:
        made.runner.close(0.0)


@pytest.fixture(scope="module")
def loud() -> Iterator[Logged]:
    with workers() as made:
        yield made


class PassedOn:
    """What reached the standard output and error of this process, so far."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self.out, self.err = "", ""

    def read(self) -> bool:
        out, err = self._capfd.readouterr()
        self.out += out
        self.err += err
        return True

    def has(self, words: str) -> None:
        until(lambda: self.read() and words in self.out + self.err, LONG_S, what=f"{words!r} is passed on")


@pytest.fixture
def passed_on(capfd: pytest.CaptureFixture[str]) -> PassedOn:
    return PassedOn(capfd)


def test_whatever_writes_in_a_run_is_in_its_log_and_is_passed_on(loud: Logged, passed_on: PassedOn) -> None:
    run = loud.runs("all_ways")
    text = loud.says(run, "without an end")
    for words in ("printed", "printed to stderr", "written by os.write", "written by C", "written by a child",
                  "written by a fork", "printed by a thread", "\\xff\\xfe no text", "without an end"):  # fmt: skip
        assert f"{words}\n" in text
    assert "error: shop.quiet: logged where nobody prints it\n" in text
    passed_on.has("without an end")
    passed_on.has("no text")
    assert "printed to stderr" in passed_on.err
    assert "written by C" in passed_on.out
    assert "logged where" not in passed_on.out + passed_on.err
    assert "\x00" not in passed_on.out + passed_on.err


def test_each_of_many_short_runs_has_its_own_lines(loud: Logged, passed_on: PassedOn) -> None:
    first = loud.runs("silent")
    loud.pump([("speak", {"text": f"only {number}"}) if number % 3 else ("silent", {}) for number in range(300)])
    until(lambda: loud.text(first + 300), LONG_S, what="the last of them is there")
    for number in range(300):
        assert loud.text(first + 1 + number) == (f"only {number}\n" if number % 3 else "")
    passed_on.has("only 299")


def test_a_flood_of_lines_ends_and_both_of_its_ends_are_kept(loud: Logged, passed_on: PassedOn) -> None:
    run = loud.runs("flood", lines=100_000)
    text = loud.says(run, "line 99999\n")
    assert text.startswith("line 0\nline 1\n")
    assert len(text.splitlines()) + loud.missing(run) == 100_000
    assert len(text) < 400_000


@pytest.mark.parametrize(("job", "params"), [("flood_by_child", {"size": "50M"}), ("flood_by_c", {"mebibytes": 20})])
def test_a_flood_by_others_than_python_does_not_block_its_run(
    loud: Logged, passed_on: PassedOn, job: str, params: dict[str, object]
) -> None:
    run = loud.runs(job, **params)
    after = loud.runs("speak", text="the next one")
    assert loud.says(after, "the next one") == "the next one\n"
    assert loud.missing(run) > 100_000
    assert 200_000 < len(loud.text(run)) < 400_000


def test_a_line_of_ten_megabytes(loud: Logged, passed_on: PassedOn) -> None:
    run = loud.runs("one_line", mebibytes=10)
    assert loud.says(run, " end\n").endswith("x end\n")
    assert len(loud.text(run)) < 400_000


def test_a_thread_that_goes_on_does_not_block_other_runs(passed_on: PassedOn) -> None:
    with workers() as made:
        made.runs("leave_a_thread", mark="left behind")
        for _ in range(3):
            made.runs("silent")
        made.runs("stop_threads")
        last = made.runs("speak", text="all is quiet")
        assert made.says(last, "all is quiet").endswith("all is quiet\n")


def test_output_between_two_runs_belongs_to_none(loud: Logged, passed_on: PassedOn) -> None:
    before = loud.runs("speak_later", after_s=0.05, text="between two runs")
    passed_on.has("between two runs")
    after = loud.runs("speak", text="the next")
    assert loud.says(after, "the next") == "the next\n"
    assert loud.text(before) == ""


def test_a_job_that_closes_its_output_harms_only_itself(tmp_path: Path, passed_on: PassedOn) -> None:
    with workers() as made:
        run = made.runs("replace_output", path=str(tmp_path / "elsewhere"))
        assert made.says(run, "before") == "before\n"
        assert (tmp_path / "elsewhere").read_text() == "after\n"
        assert made.run("close_output").how == How.SUCCEEDED
        for _ in range(3):
            assert made.run("silent").how == How.SUCCEEDED


def test_a_daemon_that_keeps_the_pipes_keeps_neither_the_worker_nor_us(tmp_path: Path, passed_on: PassedOn) -> None:
    daemon: int | None = None
    try:
        with workers() as made:
            run = made.runs("leave_a_daemon", path=str(tmp_path / "pid"))
            daemon = int(said(tmp_path / "pid"))
            made.says(run, "left a daemon")
            died = made.run("die_in_a_line")
            assert died.how == How.LOST or died.error_code is not None
            assert made.says(died.run_id, "half") == "whole\nhalf a li\n"
            again = made.runs("speak", text="by another worker")
            made.says(again, "by another worker")
        os.kill(daemon, 0)  # it lives on
    finally:
        if daemon is not None:
            os.kill(daemon, signal.SIGKILL)


def test_two_workers_at_once_and_lines_of_a_run_that_goes_on(tmp_path: Path, passed_on: PassedOn) -> None:
    with workers(2) as made:
        paths = [tmp_path / name for name in ("a", "b")]
        claims = [made.submit("speak_and_wait", path=str(path), text=path.name * 3) for path in paths]
        for path, claim in zip(paths, claims, strict=True):
            assert made.says(claim.run_id, path.name * 3) == f"{path.name * 3}\n"
        for path in reversed(paths):
            path.touch()
        for path, claim in zip(paths, claims, strict=True):
            assert made.outcome(claim).how == How.SUCCEEDED
            word = path.name * 3
            assert made.says(claim.run_id, "no longer") == f"{word}\nno longer {word}\n"


def test_nothing_is_left_open_when_workers_have_ended(passed_on: PassedOn) -> None:
    def pipes() -> int:
        names = [os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd") if _exists(each)]
        return sum(name.startswith("pipe:") for name in names)

    before = pipes()
    with workers() as made:
        made.says(made.runs("speak"), "spoken")
    until(lambda: pipes() <= before, LONG_S, what="all pipes are closed")


def _exists(descriptor: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{descriptor}")


BLOCKED = """
import os, sys
from tests.engine.logs.test_worker_output import workers
with workers() as made:
    run = made.runs("flood_by_child", size="30M")
    again = made.runs("flood", lines=20000)
    text = made.says(again, "line 19999")
    os.write(int(sys.argv[1]), b"done")
"""


def test_jobs_go_on_though_nobody_reads_our_own_output() -> None:
    reading, writing = os.pipe()
    done, telling = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", BLOCKED, str(telling)],
        stdout=writing,
        stderr=subprocess.DEVNULL,
        pass_fds=[telling],
        env=os.environ,
        cwd=Path(__file__).parents[3],
    )
    os.close(telling)
    try:
        assert until(partial(os.read, done, 4), LONG_S, what="the jobs have ended") == b"done"
        assert process.wait(LONG_S) == 0
    finally:
        process.kill()
        process.wait()
        for descriptor in (reading, writing, done):
            os.close(descriptor)
