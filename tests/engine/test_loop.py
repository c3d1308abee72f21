"""A loop goes on whatever its step raises, and loses no wake."""

from __future__ import annotations

import threading

import pytest

from fencepost.engine.loop import Loop
from fencepost.testing import until
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()
NEVER = float("inf")


def loop(step, on_error=lambda name, error: None) -> Loop:
    made = Loop("test", step, runtime=RUNTIME, on_error=on_error)
    made.start()
    return made


def test_a_step_is_called_again_when_it_said() -> None:
    calls: list[float] = []

    def step(now: float) -> float:
        calls.append(now)
        return now + 0.01 if len(calls) < 3 else NEVER

    made = loop(step)
    until(lambda: len(calls) == 3, 30, "steps are made")
    assert made.stop(30)
    assert calls[1] >= calls[0] + 0.01


def test_a_wake_during_a_step_makes_another_step() -> None:
    inside, go_on, calls = threading.Event(), threading.Event(), []

    def step(now: float) -> float:
        calls.append(now)
        inside.set()
        go_on.wait(30)
        return NEVER

    made = loop(step)
    assert inside.wait(30)
    made.wake()
    go_on.set()
    until(lambda: len(calls) == 2, 30, "steps are made")
    assert made.stop(30)


@pytest.mark.parametrize("error", [ValueError("x"), OSError("gone"), KeyError("k"), SystemExit(1)])
def test_a_step_that_raises_is_told_of_and_tried_again(error: BaseException) -> None:
    calls: list[float] = []
    told: list[tuple[str, BaseException]] = []

    def step(now: float) -> float:
        calls.append(now)
        if len(calls) < 3:
            raise error
        return NEVER

    made = loop(step, lambda name, error: told.append((name, error)))
    until(lambda: len(calls) == 3, 30, "steps are made")
    assert told == [("test", error)] * 2
    assert made.stop(30)


def test_whoever_wakes_often_does_not_hurry_a_loop_in_trouble() -> None:
    calls: list[float] = []

    def step(now: float) -> float:
        calls.append(now)
        raise OSError("still gone")

    made = loop(step)
    until(lambda: calls, 30, "steps are made")
    for _ in range(1000):
        made.wake()
    until(lambda: len(calls) >= 3, 30, "steps are made")
    assert made.stop(30)
    assert calls[1] - calls[0] >= 0.05
    assert calls[2] - calls[1] >= 0.1


def test_stop_ends_a_loop_that_sleeps_for_ever() -> None:
    made = loop(lambda now: NEVER)
    assert made.stop(30)


def test_a_loop_goes_on_though_nobody_can_be_told_of_its_trouble() -> None:
    calls: list[float] = []

    def step(now: float) -> float:
        calls.append(now)
        if len(calls) < 3:
            raise ValueError("x")
        return NEVER

    def deaf(name: str, error: BaseException) -> None:
        raise RuntimeError("no ears")

    made = loop(step, deaf)
    until(lambda: len(calls) == 3, 30, "steps are made")
    assert made.stop(30)
