"""Who is declared dead, and by whom: only by a node that has watched for a whole ttl itself."""

from __future__ import annotations

import pytest

from fencepost.core.events import What
from fencepost.engine.reaper import Reaper
from fencepost.ledger.history import attempts
from fencepost.ledger.nodes import NewNode, died, join, nodes
from fencepost.testing import until
from tests.engine.crew import RUNTIME, crew, job, loop_of, seldom, step_of

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
TTL_S = 2.0


def work() -> None:
    pass


def test_node_that_has_just_come_declares_nobody_dead_before_it_has_watched_for_a_ttl(ledger_url: str) -> None:
    with crew(ledger_url, [job(work)]) as made:
        join(made.ledger, NewNode("gone", "gone", "no such grant", 1, 0, "test", 1, ("default",), ("work",)))
        came_at = RUNTIME.monotonic()
        made.node(ttl=f"{TTL_S}s")

        def is_dead() -> bool:
            return any(node.id == "gone" and node.dead_at is not None for node in nodes(made.ledger))

        until(seldom(is_dead), 30, "the one without a lease is found dead")
        assert RUNTIME.monotonic() - came_at >= TTL_S


def test_node_whose_end_is_noted_gives_up_nothing_of_its_own_and_is_somebody_else_at_once(ledger_url: str) -> None:
    begun, go = RUNTIME.event(), RUNTIME.event()

    def wait() -> None:
        begun.set()
        go.wait(30)

    with crew(ledger_url, [job(work), job(wait, crash_limit=2)]) as made:
        node = made.node(poll_s=0.2)
        [long] = made.enqueue("wait")
        assert begun.wait(30)
        was = node.node_id
        assert was is not None
        made.ledger.write(lambda cursor: died(made.ledger, cursor, was, "somebody is mistaken"))
        until(seldom(lambda: node.node_id not in (None, was)), 30, "it has joined again")
        [short] = made.enqueue("work")
        go.set()
        made.until_state("succeeded", 2)
        lost, done = attempts(made.ledger, long)
        assert (lost.node, lost.outcome, done.outcome) == (was, "lost", "succeeded")
        assert done.node == attempts(made.ledger, short)[0].node == node.node_id
        assert [e.reason for e in made.events if e.what is What.NODE_LOST] == ["the ledger has noted its end"]


def test_node_whose_end_is_noted_does_not_reap_itself(ledger_url: str) -> None:
    begun, go = RUNTIME.event(), RUNTIME.event()

    def wait() -> None:
        begun.set()
        go.wait(30)

    with crew(ledger_url, [job(wait)]) as made:
        node = made.node(poll_s=3600.0)
        made.enqueue("wait")
        node.wake()
        assert begun.wait(30)
        was = node.node_id
        assert was is not None
        assert loop_of(node, "exchange").stop(30)  # it may be about to look, and would learn of it
        made.ledger.write(lambda cursor: died(made.ledger, cursor, was, "somebody is mistaken"))
        step_of(node, Reaper)._list_and_clean_up(was)
        [row] = made.runs()
        assert (row.state, row.node, row.crashes) == ("running", was, 0)
        go.set()
