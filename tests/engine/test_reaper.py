"""Who is declared dead, and by whom: only by a node that has watched for a whole ttl itself."""

from __future__ import annotations

import pytest

from fencepost.ledger.nodes import NewNode, join, nodes
from fencepost.testing import until
from tests.engine.crew import RUNTIME, crew, job, seldom

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
