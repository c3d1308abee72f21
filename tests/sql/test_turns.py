"""Turns: no more than the limit at a time, everybody in order, and who waits in vain disturbs nobody."""

from __future__ import annotations

import threading

import pytest

from fencepost.sql.turns import Turns
from tests.servers import RUNTIME


def busy(waited_s: float) -> TimeoutError:
    return TimeoutError(f"waited {waited_s:g} s")


def test_no_more_than_the_limit_at_a_time_and_everybody_has_a_turn() -> None:
    turns = Turns(RUNTIME, limit=2, busy=busy)
    inside: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        with turns.turn(10):
            inside.append(number)
            most.append(len(inside))
            inside.remove(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 30
    assert max(most) <= 2


def test_who_waits_too_long_leaves_the_queue_and_takes_nobodys_turn() -> None:
    turns = Turns(RUNTIME, limit=1, busy=busy)
    with (
        turns.turn(1),
        pytest.raises(TimeoutError, match="waited"),
        turns.turn(0.01),
    ):
        pass
    with turns.turn(0.01):
        pass
