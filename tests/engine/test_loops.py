"""A loop is one step and one entry in the list: the node does the rest, from its begin to its end."""

from __future__ import annotations

import pytest

from fencepost.core.events import What
from fencepost.engine.loop_step import LoopStep
from fencepost.engine.loops import LOOPS
from fencepost.engine.node_state import NodeState
from fencepost.ledger.nodes import nodes
from fencepost.testing import until
from tests.engine.crew import crew, loop_of, step_of

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
FAR_S = 3600.0


class Counter(LoopStep):
    """Notes what the node asks of it, and whether the node was a member at that time."""

    name = "counter"

    def __init__(self, node: NodeState) -> None:
        self.node = node
        self.calls: list[tuple[str, bool]] = []
        self.steps = 0
        self.is_owing = False
        self.raises: BaseException | None = None

    def _note(self, call: str) -> None:
        self.calls.append((call, self.node.member is not None))

    def begin(self) -> None:
        self._note("begin")

    def step(self, now: float) -> float:
        if self.raises is not None:
            raise self.raises
        if not self.steps:
            self._note("step")
        self.steps += 1
        return now + FAR_S

    def drain(self) -> None:
        self._note("drain")

    @property
    def is_empty(self) -> bool:
        return not self.is_owing

    def interrupt(self) -> None:
        self._note("interrupt")

    def settle(self, now: float) -> None:
        self._note("settle")

    def close(self) -> None:
        self._note("close")


def test_an_entry_in_the_list_is_all_that_a_loop_needs(ledger_url: str) -> None:
    with crew(ledger_url, []) as made:
        node = made.node(loops=(*LOOPS, Counter))
        counter = step_of(node, Counter)
        until(lambda: counter.steps == 1, 20, "it made a step")
        counter.node.wake("counter")
        until(lambda: counter.steps == 2, 20, "it was woken by its name")
        node.stop(1.0)
    order = ["begin", "step", "drain", "interrupt", "settle", "close"]
    assert counter.calls == [(call, call != "close") for call in order], "as a member, until the node has left"


def test_a_node_that_does_not_need_a_loop_has_none(ledger_url: str) -> None:
    with crew(ledger_url, []) as made:
        node = made.node(loops=(*LOOPS, lambda _: None))
        assert len(node._steps) == len(made.node()._steps)


def test_a_node_that_stops_waits_for_what_a_loop_still_owes(ledger_url: str) -> None:
    class Owing(Counter):
        """Owes something until it was woken three times after it was asked to drain."""

        def drain(self) -> None:
            self.is_owing, self.owed_until = True, self.steps + 3

        def step(self, now: float) -> float:
            super().step(now)
            self.is_owing = self.is_owing and self.steps < self.owed_until
            return now + FAR_S

    with crew(ledger_url, []) as made:
        node = made.node(loops=(*LOOPS, Owing))
        owing = step_of(node, Owing)
        until(lambda: owing.steps, 20, "it made a step")
        node.stop(5.0)
        assert not owing.is_owing
        assert owing.steps >= owing.owed_until


def test_trouble_of_a_loop_is_reported_once_and_so_is_its_end(ledger_url: str) -> None:
    with crew(ledger_url, []) as made:
        counter = step_of(made.node(loops=(*LOOPS, Counter)), Counter)
        until(lambda: counter.steps, 20, "it made a step")
        counter.raises = ValueError("broken")
        counter.node.wake("counter")
        until(lambda: What.LEDGER_TROUBLE in made.whats(), 20, "it is reported")
        counter.raises, steps = None, counter.steps
        until(lambda: counter.steps > steps, 20, "it is tried again")
        until(lambda: What.LEDGER_BACK in made.whats(), 20, "its end is reported")
        [trouble] = [event for event in made.events if event.what is What.LEDGER_TROUBLE]
        assert trouble.reason == "counter: ValueError: broken"


def test_a_node_leaves_when_a_loop_of_that_kind_dies(ledger_url: str) -> None:
    with crew(ledger_url, []) as made:
        node = made.node(loops=(*LOOPS, Counter))
        counter = step_of(node, Counter)
        until(lambda: counter.steps, 20, "it made a step")
        counter.raises = KeyboardInterrupt()
        counter.node.wake("counter")
        until(lambda: What.NODE_LEFT in made.whats(), 30, "the node has left")
        assert loop_of(node, "counter").died_of is counter.raises
        [failed] = [event for event in made.events if event.what is What.NODE_FAILED]
        assert "its counter loop died" in (failed.reason or "")


def test_a_loop_that_cannot_begin_keeps_the_node_from_starting(ledger_url: str) -> None:
    class Unable(Counter):
        def begin(self) -> None:
            raise OSError("the port is taken")

    with crew(ledger_url, []) as made:
        with pytest.raises(OSError, match="the port is taken"):
            made.node(loops=(*LOOPS, Unable))
        assert [node.is_living for node in nodes(made.ledger)] == [False]
