"""Pauses of queues and of everything, and draining, with real nodes on each database."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from fencepost.core.schedule import every
from fencepost.engine.exchange import Exchange
from fencepost.engine.membership import Membership
from fencepost.ledger.draining import ask_to_drain
from fencepost.ledger.journal import entries
from fencepost.ledger.nodes import NodeRow, living_nodes, nodes
from fencepost.ledger.queue_pauses import EVERYTHING, pause_queue, resume_queue
from fencepost.testing import until
from tests.engine.crew import Crew, crew, job, seldom, step_of

VERSION = "1.0/0005/0001"  # a node that knows pauses, and requests to drain
BOTH = ("default", "mail")


def work() -> None: ...


@pytest.fixture
def made(ledger_url: str) -> Iterator[Crew]:
    with crew(ledger_url, [job(work)]) as one:
        yield one


def pause(made: Crew, queue: str = EVERYTHING, until_us: int | None = None) -> None:
    pause_queue(made.ledger, queue, by="ann", reason="why", until_us=until_us)


def states(made: Crew, ids: list[int]) -> list[str]:
    return [row.state for row in sorted(made.runs(), key=lambda row: row.id) if row.id in ids]


class TestPauses:
    def test_queue_waits_while_others_go_on_also_for_nodes_that_join_meanwhile(self, made: Crew) -> None:
        made.node(queues=BOTH)
        pause(made, "mail")
        waits = made.enqueue("work", count=3, queue="mail")
        made.enqueue("work")
        made.until_state("succeeded", 1)
        made.node(queues=BOTH)
        made.nodes[0].stop(5.0)
        made.enqueue("work")
        made.until_state("succeeded", 2)
        assert states(made, waits) == ["queued"] * 3
        resume_queue(made.ledger, "mail", by="ann")
        made.until_state("succeeded", 5)

    @pytest.mark.parametrize("kind", ["sqlite", "postgresql"])  # without hints, and with them
    def test_node_that_knows_of_the_pause_makes_no_claim_and_notices_its_end(self, made: Crew) -> None:
        exchange = step_of(made.node(queues=BOTH), Exchange)
        pause(made, until_us=made.ledger.now_us() + 60_000_000)
        until(seldom(lambda: exchange._paused.open == ()), 30, "the node has seen the pause")
        [run_id] = made.enqueue("work")
        end_us = made.ledger.now_us() + 500_000
        pause(made, until_us=end_us)
        made.until_state("succeeded", 1)
        assert [row.started_at >= end_us for row in made.runs() if row.id == run_id] == [True]
        words = until(
            seldom(lambda: [e for e in entries(made.ledger) if e.what == "everything resumed"]), 30, "the end is noted"
        )
        assert [each.by for each in words] == [None]


@pytest.mark.parametrize("kind", ["sqlite"])
def test_due_times_of_a_pause_run_after_it_and_none_is_missed(made: Crew, ledger_url: str) -> None:
    pause(made)
    with crew(ledger_url, [job(work, every("1s"), overlap="allow", misfire="skip")]) as ticking:
        ticking.node()
        waiting = {row.id for row in ticking.until_state("queued", 2)}
        assert {row.state for row in ticking.runs()} == {"queued"}
        resume_queue(made.ledger, EVERYTHING, by="ann")
        until(seldom(lambda: waiting <= {row.id for row in ticking.runs() if row.state == "succeeded"}), 30, "they ran")
        assert "misfired" not in {row.state for row in ticking.runs()}


def node_row(made: Crew, name: str) -> NodeRow:
    [found] = [each for each in nodes(made.ledger) if each.name == name]
    return found


class TestDraining:
    def test_node_finishes_what_it_has_takes_nothing_more_and_leaves(self, ledger_url: str) -> None:
        began, go_on = threading.Event(), threading.Event()

        def slow() -> None:
            began.set()
            go_on.wait(60)

        with crew(ledger_url, [job(slow), job(work)]) as made:
            draining = made.node(version=VERSION)
            [first] = made.enqueue("slow")
            assert began.wait(30)
            ask_to_drain(made.ledger, "node-0", by="ann")
            [other] = made.enqueue("work")
            until(seldom(lambda: "node drains" in made.whats()), 30, "it has noticed")
            assert draining.is_running
            assert states(made, [first, other]) == ["running", "queued"]
            made.node(version=VERSION)
            made.until_state("succeeded", 1)
            assert (draining.is_running, draining.was_drained) == (True, False)  # it does not even begin to leave
            go_on.set()
            made.until_state("succeeded", 2)
            until(lambda: not draining.is_running, 30, "it has left")
            assert draining.was_drained
            row = node_row(made, "node-0")
            until(seldom(lambda: node_row(made, "node-0").left_at), 30, "its departure is noted")
            assert (row.drain_by, row.dead_at) == ("ann", None)
            assert "node lost" not in made.whats()

    @pytest.mark.parametrize("kind", ["sqlite"])
    def test_next_identity_of_its_process_drains_too(self, made: Crew) -> None:
        node = made.node(version=VERSION, loops=(Membership,))  # without the loop that looks
        ask_to_drain(made.ledger, "node-0", by="ann")
        state, before = node._state, node.node_id
        assert state.joined is not None
        state.disown(state.joined, "a test says so")
        until(seldom(lambda: node.node_id not in (None, before)), 30, "it has joined again")
        [asked] = [each for each in living_nodes(made.ledger) if each.id == node.node_id]
        assert (asked.drain_by, asked.draining_at is not None) == ("ann", True)
