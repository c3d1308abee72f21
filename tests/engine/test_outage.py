"""The ledger goes away while nodes run, and comes back: nothing is lost, nothing happens twice, nobody has to help."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from fencepost.core.schedule import every
from fencepost.engine.planner import Planner
from fencepost.ledger.history import attempts
from fencepost.testing import until
from testbed.proxy import Proxy
from tests.engine.crew import SHORT_TTL, crew, job, step_of

pytestmark = pytest.mark.parametrize("kind", ["postgresql", "mysql"], indirect=True)


@pytest.fixture
def proxy(kind: str, request: pytest.FixtureRequest) -> Iterator[Proxy]:
    server = request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb")
    with Proxy(server.host, server.port) as made:
        yield made


@pytest.mark.parametrize("how", ["refuse", "swallow"])
def test_two_nodes_go_on_by_themselves_after_an_outage(ledger_url: str, proxy: Proxy, how: str) -> None:
    seen: Counter[int] = Counter()

    def tick(run) -> None:
        seen[int(run.due_at.timestamp() * 2)] += 1

    with crew(ledger_url, [job(tick, every("500ms"), overlap="queue", misfire="once", grace="1s")]) as made:
        for _ in range(2):
            made.node(url=proxy.through(f"{ledger_url}&call_timeout=1s"), ttl=SHORT_TTL)
        made.until_state("succeeded", 3)
        getattr(proxy, how)()
        if how == "refuse":
            proxy.cut()
        until(lambda: made.whats().count("node lost") == 2, 30, "both nodes lost their sessions")
        told = made.whats().count("ledger back")
        made.nodes[0]._note_success(
            step_of(made.nodes[0], Planner)
        )  # without an identity it asked for nothing, and so knows nothing
        assert made.whats().count("ledger back") == told
        proxy.flow()
        healed_us = made.ledger.now_us()
        until(lambda: _is_past(made, healed_us + 2_000_000), 40, "ticks after the outage succeed")
        for node in made.nodes:
            node.stop(10)
        tries = {row.due_at // 500_000: row.attempts for row in made.runs()}
        rows = sorted((row for row in made.runs() if row.state in ("succeeded", "misfired")), key=lambda r: r.due_at)
    covered = [(row.first_due_at, row.due_at) for row in rows]
    assert all(later[0] == earlier[1] + 500_000 for earlier, later in pairwise(covered)), covered
    assert all(count <= tries[due] for due, count in seen.items()), "none ran more often than it was begun"


def _is_past(made, at_us: int) -> bool:
    return any(row.state == "succeeded" and row.due_at > at_us for row in made.runs())


def test_what_ended_while_the_ledger_was_away_is_told_when_it_is_back(ledger_url: str, proxy: Proxy) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        go_on.wait(30)

    with crew(ledger_url, [job(work)]) as made:
        [run_id] = made.enqueue("work")
        made.node(url=proxy.through(f"{ledger_url}&call_timeout=1s"), ttl="30s")
        assert inside.wait(20)
        proxy.refuse()
        proxy.cut()
        go_on.set()
        until(lambda: "ledger trouble" in made.whats(), 30, "the node notices")
        proxy.flow()
        [row] = made.until_state("succeeded", 1)
        tries = attempts(made.ledger, run_id)
    assert row.attempts == 1
    assert [each.outcome for each in tries] == ["succeeded"]


def test_a_claim_whose_answer_was_lost_is_found_and_handed_back(ledger_url: str, proxy: Proxy) -> None:
    calls: Counter[int] = Counter()

    def work(run) -> None:
        calls[run.id] += 1

    with crew(ledger_url, [job(work)]) as made:
        made.node(url=proxy.through(f"{ledger_url}&call_timeout=1s"), ttl="60s")
        made.enqueue("work")
        made.until_state("succeeded", 1)
        proxy.swallow_replies()
        made.enqueue("work", count=50)
        until(lambda: _are_claimed_in_vain(made), 30, "they were claimed, and nobody was told")
        proxy.flow()
        rows = made.until_state("succeeded", 51)
    assert set(calls.values()) == {1}
    assert {row.crashes for row in rows} == {0}


def _are_claimed_in_vain(made) -> bool:
    return "ledger trouble" in made.whats()
