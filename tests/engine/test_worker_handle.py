"""The handle of a worker process: which claims are recalled from it, and which it is asked to stop."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.core.runs import StopReason
from fencepost.engine import wire
from fencepost.engine.runners.worker_handle import Assignment, WorkerHandle, WorkerStage
from fencepost.testing import until
from fencepost.threaded import ThreadedRuntime
from tests.engine.runner_stand import claim

RUNTIME = ThreadedRuntime()
IDLE = "import signal; signal.pause()"


@pytest.fixture
def handle() -> Iterator[WorkerHandle]:
    """A handle of a process that reads no claims by itself: the test reads them instead."""
    workers = RUNTIME.workers()
    made = WorkerHandle(0.0)
    much_later = RUNTIME.monotonic() + 3600
    made.adopt(workers.start([sys.executable, "-c", IDLE], env={}, term_at=much_later, kill_at=much_later))
    made.stage = WorkerStage.READY
    yield made
    assert made.process is not None
    made.process.kill()
    until(made.ended, 30, what="its process is gone")
    made.close()
    workers.close()


def given(handle: WorkerHandle, count: int, **params: Any) -> list[Assignment]:
    made = [Assignment(claim(number, "nothing", **params), 0.0) for number in range(count)]
    assert all(handle.give(each, 0.0) for each in made)
    return made


def take_one(handle: WorkerHandle) -> int:
    """Do what the worker does: read the next message, and show it on the shared page."""
    serial, _ = wire.read_claim(handle.process._theirs.recv(1 << 16))  # type: ignore[union-attr]
    handle.page.begin(serial, 0.0)
    return serial


class Interleaved:
    """A socket from which the worker takes one message as soon as one was recalled from it."""

    def __init__(self, handle: WorkerHandle, real: socket.socket) -> None:
        self._handle = handle
        self._real = real
        self.taken: list[int] = []

    def recv(self, size: int, flags: int) -> bytes:
        packet = self._real.recv(size, flags)
        if not self.taken:
            self._handle.process._theirs = self._real  # type: ignore[union-attr]
            self.taken.append(take_one(self._handle))
            self._handle.process._theirs = self  # type: ignore[union-attr]
        return packet

    def close(self) -> None:
        self._real.close()


def test_what_a_worker_takes_in_the_middle_of_a_recall_stays_with_it_and_nothing_else_does(
    handle: WorkerHandle,
) -> None:
    first, second, third = given(handle, 3)
    process = handle.process
    process._theirs = between = Interleaved(handle, process._theirs)  # type: ignore[union-attr]
    assert handle.take_back() == [first, third]
    assert between.taken == [2]
    assert handle.assignments == {2: second}
    assert handle.executing() == (second, 0.0)


def test_a_message_by_way_of_shared_memory_is_recalled_as_well(handle: WorkerHandle) -> None:
    [large] = given(handle, 1, text="x" * 200_000)
    [small] = given(handle, 1)
    assert handle.take_back() == [large, small]
    assert handle.assignments == {}


def test_the_end_of_one_that_was_to_stop_does_not_spare_another_that_is(handle: WorkerHandle) -> None:
    first, second = given(handle, 2)
    take_one(handle)
    handle.interrupt(first, StopReason.CANCELLED, kill_at=5.0)
    take_one(handle)  # the first has ended before it heard, and its answer was not heard yet
    handle.interrupt(second, StopReason.CANCELLED, kill_at=7.0)
    handle.done(1)
    assert handle.kill_at == 7.0
    assert handle.page.stopped(2) is StopReason.CANCELLED


def test_whoever_stops_what_has_ended_does_not_stop_what_came_after_it(handle: WorkerHandle) -> None:
    first, second = given(handle, 2)
    take_one(handle)
    take_one(handle)
    handle.interrupt(second, StopReason.CANCELLED, kill_at=7.0)
    handle.interrupt(first, StopReason.LOST, kill_at=0.0)
    assert handle.page.stopped(2) is StopReason.CANCELLED
    assert handle.kill_at == 7.0
    handle.done(1)
    assert handle.kill_at == 7.0
