"""The thread that reads the output of workers goes on, whatever its sink does."""

from __future__ import annotations

import os

import pytest

from fencepost.testing import until
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

    def ended(self, source: int) -> None:
        self.ends += 1
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
