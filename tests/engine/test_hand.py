"""A worker in the hands of its runner: what is taken back from it, and what it is told to stop."""

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
def hand() -> Iterator[WorkerHandle]:
    """One that has a process which takes nothing by itself: the test does that in its place."""
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


def given(hand: WorkerHandle, count: int, **params: Any) -> list[Assignment]:
    made = [Assignment(claim(number, "nothing", **params), 0.0) for number in range(count)]
    assert all(hand.give(each, 0.0) for each in made)
    return made


def take_one(hand: WorkerHandle) -> int:
    """Do what the worker does: take the next message, and show it on the board."""
    serial, _ = wire.read_claim(hand.process._theirs.recv(1 << 16))  # type: ignore[union-attr]
    hand.board.begin(serial, 0.0)
    return serial


class Interleaved:
    """A socket from which the worker takes one message as soon as one was recalled from it."""

    def __init__(self, hand: WorkerHandle, real: socket.socket) -> None:
        self._hand = hand
        self._real = real
        self.taken: list[int] = []

    def recv(self, size: int, flags: int) -> bytes:
        packet = self._real.recv(size, flags)
        if not self.taken:
            self._hand.process._theirs = self._real  # type: ignore[union-attr]
            self.taken.append(take_one(self._hand))
            self._hand.process._theirs = self  # type: ignore[union-attr]
        return packet

    def close(self) -> None:
        self._real.close()


def test_what_a_worker_takes_in_the_middle_of_a_recall_stays_with_it_and_nothing_else_does(hand: WorkerHandle) -> None:
    first, second, third = given(hand, 3)
    process = hand.process
    process._theirs = between = Interleaved(hand, process._theirs)  # type: ignore[union-attr]
    assert hand.take_back() == [first, third]
    assert between.taken == [2]
    assert hand.in_hand == {2: second}
    assert hand.executing() == (second, 0.0)


def test_a_message_by_way_of_shared_memory_is_recalled_as_well(hand: WorkerHandle) -> None:
    [large] = given(hand, 1, text="x" * 200_000)
    [small] = given(hand, 1)
    assert hand.take_back() == [large, small]
    assert hand.in_hand == {}


def test_the_end_of_one_that_was_to_stop_does_not_spare_another_that_is(hand: WorkerHandle) -> None:
    first, second = given(hand, 2)
    take_one(hand)
    hand.interrupt(first, StopReason.CANCELLED, kill_at=5.0)
    take_one(hand)  # the first has ended before it heard, and its answer was not heard yet
    hand.interrupt(second, StopReason.CANCELLED, kill_at=7.0)
    hand.done(1)
    assert hand.kill_at == 7.0
    assert hand.board.stopped(2) is StopReason.CANCELLED


def test_whoever_stops_what_has_ended_does_not_stop_what_came_after_it(hand: WorkerHandle) -> None:
    first, second = given(hand, 2)
    take_one(hand)
    take_one(hand)
    hand.interrupt(second, StopReason.CANCELLED, kill_at=7.0)
    hand.interrupt(first, StopReason.LOST, kill_at=0.0)
    assert hand.board.stopped(2) is StopReason.CANCELLED
    assert hand.kill_at == 7.0
    hand.done(1)
    assert hand.kill_at == 7.0
