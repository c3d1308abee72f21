"""The thread that reads the output of workers goes on, whatever its sink does."""

from __future__ import annotations

import os

import pytest

from fencepost.core.output_frames import begin_frame, end_frame, log_frames, mark_of
from fencepost.testing import until
from fencepost.threaded import output_reader
from fencepost.threaded.output_reader import OutputPipes, OutputReader


class Failing:
    """A sink that fails at everything."""

    def __init__(self) -> None:
        self.read = 0
        self.ends = 0

    def began(self, source: int, secret: str) -> None: ...

    def written(self, source: int, stream: int, chunk: bytes) -> bytes:
        self.read += len(chunk)
        raise ValueError(source)

    def ended(self, source: int) -> dict[int, bytes]:
        self.ends += 1
        raise ValueError(source)

    def closed(self, source: int) -> dict[int, bytes]:
        raise ValueError(source)


def test_a_sink_that_fails_does_not_end_the_reading(capfd: pytest.CaptureFixture[str]) -> None:
    sink = Failing()
    reader = OutputReader(sink)
    for source in (1, 2):
        pipes = OutputPipes()
        reader.add(source, *pipes.exits)
        os.write(pipes.entrances[0], b"a line\n")
        until(lambda size=7 * source: sink.read == size, 30, "it is read")
        for entrance in pipes.entrances:
            os.close(entrance)
        until(lambda ends=source: sink.ends == ends, 30, "its end is noted")
    reader.close()
    assert capfd.readouterr().out == "a line\n" * 2


class Ending(Failing):
    """A sink that keeps something back until the worker has ended, and until its pipes are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def written(self, source: int, stream: int, chunk: bytes) -> bytes:
        self.read += len(chunk)
        return chunk

    def ended(self, source: int) -> dict[int, bytes]:
        self.told.append("ended")
        return {1: b"of the worker\n"} if self.told == ["ended"] else {}

    def closed(self, source: int) -> dict[int, bytes]:
        self.told.append("closed")
        return {1: b"of all\n", 2: b""}


def test_what_a_sink_kept_back_is_passed_on_when_the_worker_has_ended_and_when_its_pipes_are_closed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    sink = Ending()
    reader, pipes = OutputReader(sink), OutputPipes()
    reader.add(1, *pipes.exits)
    os.write(pipes.entrances[0], b"a line\n")
    reader.ended(1)  # and leaves a process behind
    until(lambda: sink.told == ["ended"], 30, "its end is noted")
    os.write(pipes.entrances[0], b"left behind\n")
    for entrance in pipes.entrances:
        os.close(entrance)
    until(lambda: sink.told[-1] == "closed", 30, "its end is noted")
    reader.close()
    assert capfd.readouterr().out == "a line\nof the worker\nleft behind\nof all\n"


MARK = mark_of("0a" * 12)
RUN = begin_frame(MARK, 7, 1) + b"a line\n" + end_frame(MARK)


class Quiet(Failing):
    """A sink that passes on nothing."""

    def written(self, source: int, stream: int, chunk: bytes) -> bytes:
        self.read += len(chunk)
        return b""


@pytest.mark.parametrize(
    ("written", "naps"),
    [
        (RUN, True),
        (RUN * 9, True),
        (RUN + begin_frame(MARK, 8, 1), True),  # as a worker with another run at hand writes
        (begin_frame(MARK, 8, 1), False),  # which goes on
        (begin_frame(MARK, 7, 1) + b"a line\n", False),
        (b"".join(log_frames(MARK, b"e;")), False),
        (b"e;", False),
        (MARK[:2] + b"no digits e;", False),
        (b"x" * 4096, False),  # more than a small pipe holds: the job waits for us
    ],
)
def test_it_pauses_between_short_runs_only(monkeypatch: pytest.MonkeyPatch, written: bytes, naps: bool) -> None:
    sink, napped = Quiet(), []
    monkeypatch.setattr(output_reader, "_nap", lambda: napped.append(sink.read))
    reader, pipes = OutputReader(sink), OutputPipes()
    reader.add(1, *pipes.exits)
    os.write(pipes.entrances[0], written)
    until(lambda: sink.read == len(written), 30, "it is read")
    os.write(pipes.entrances[0], b"the next\n")
    until(lambda: sink.read > len(written), 30, "the next is read")
    for entrance in pipes.entrances:
        os.close(entrance)
    reader.close()
    assert (len(written) in napped) == naps
