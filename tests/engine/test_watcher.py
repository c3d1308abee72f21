"""The watcher of a runner: it looks when asked, in time, without being asked twice, and survives a look that fails."""

import threading
from collections.abc import Callable, Iterator

import pytest

from fencepost.engine.runners.watcher import NEVER, Watcher
from fencepost.testing import until
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()
SOON_S = 10.0


class Looks:
    """What a watcher did."""

    def __init__(self, answer: Callable[[float], float]) -> None:
        self.at: list[float] = []
        self.troubles: list[Exception] = []
        self.answer = answer
        self.watcher = Watcher("test-watcher", self.look, runtime=RUNTIME, on_error=self.troubles.append)

    def look(self, now: float) -> float:
        self.at.append(now)
        return self.answer(now)

    def wait_for(self, number: int) -> None:
        until(lambda: len(self.at) >= number, SOON_S, f"{number} looks")


@pytest.fixture
def looks() -> Iterator[Looks]:
    made = Looks(lambda now: NEVER)
    yield made
    made.watcher.close()


def test_there_is_no_thread_before_it_is_asked(looks: Looks) -> None:
    assert "test-watcher" not in {thread.name for thread in threading.enumerate()}
    looks.watcher.look_by(RUNTIME.monotonic())
    looks.wait_for(1)


def test_it_looks_again_when_it_said_so_and_not_before(looks: Looks) -> None:
    looks.answer = lambda now: now + 0.05
    looks.watcher.look_by(RUNTIME.monotonic())
    looks.wait_for(4)
    assert looks.at[3] - looks.at[0] >= 3 * 0.05


def test_an_earlier_wish_wakes_it(looks: Looks) -> None:
    looks.answer = lambda now: now + 3600.0
    looks.watcher.look_by(RUNTIME.monotonic())
    looks.wait_for(1)
    looks.watcher.look_by(RUNTIME.monotonic() + 0.01)
    looks.wait_for(2)


def test_it_wakes_from_a_rest_without_end(looks: Looks) -> None:
    for number in range(1, 5):
        looks.watcher.look_by(RUNTIME.monotonic())
        looks.wait_for(number)


def test_a_wish_made_during_its_own_look_is_kept_but_does_not_hurry_it(looks: Looks) -> None:
    def ask_oneself(now: float) -> float:
        looks.watcher.look_by(now + 0.05)
        return NEVER

    looks.answer = ask_oneself
    looks.watcher.look_by(RUNTIME.monotonic())
    looks.wait_for(4)
    assert looks.at[3] - looks.at[0] >= 3 * 0.05


def test_a_wish_made_by_another_during_a_look_is_kept(looks: Looks) -> None:
    is_looking, may_end = threading.Event(), threading.Event()

    def hang(now: float) -> float:
        is_looking.set()
        may_end.wait(SOON_S)
        return NEVER

    looks.answer = hang
    looks.watcher.look_by(RUNTIME.monotonic())
    assert is_looking.wait(SOON_S)
    looks.watcher.look_by(RUNTIME.monotonic())
    may_end.set()
    looks.wait_for(2)


def test_a_look_that_fails_is_told_and_followed_by_another(looks: Looks) -> None:
    def fail_once(now: float) -> float:
        if len(looks.at) == 1:
            raise ValueError("planted")
        return NEVER

    looks.answer = fail_once
    looks.watcher.look_by(RUNTIME.monotonic())
    looks.wait_for(2)
    assert [str(trouble) for trouble in looks.troubles] == ["planted"]


def test_a_closed_one_looks_no_more(looks: Looks) -> None:
    looks.watcher.look_by(RUNTIME.monotonic())
    looks.wait_for(1)
    looks.watcher.close()
    until(lambda: "test-watcher" not in {thread.name for thread in threading.enumerate()}, SOON_S, "its thread ends")
    looks.watcher.look_by(RUNTIME.monotonic())
    assert "test-watcher" not in {thread.name for thread in threading.enumerate()}
