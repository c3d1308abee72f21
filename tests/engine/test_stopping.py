"""Stopping a node: whatever it is doing at the moment, it ends in time, and nothing is left running in its name."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.engine import exchange as exchange_module
from fencepost.engine import node as node_module
from fencepost.engine.membership import NODE_LEASE
from fencepost.errors import LedgerUnavailable
from fencepost.ledger.claiming import claim
from fencepost.testing import until
from testbed.proxy import Proxy
from tests.engine.crew import RUNTIME, Crew, crew, job


def work() -> None: ...


@pytest.fixture
def made(ledger_url: str) -> Iterator[Crew]:
    with crew(ledger_url, [job(work)]) as one:
        yield one


def _stopping(node: Any, grace_s: float = 5.0) -> threading.Thread:
    stopping = threading.Thread(target=node.stop, args=(grace_s,))
    stopping.start()
    return stopping


def _states(made: Crew) -> Counter[str]:
    return Counter(row.state for row in made.runs())


def test_claim_that_is_answered_after_all_runs_have_ended_is_handed_back(
    made: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_claimed, go_on = threading.Event(), threading.Event()

    def slow_to_answer(*args: Any, **kwargs: Any) -> Any:
        claimed = claim(*args, **kwargs)
        if claimed.claims:
            is_claimed.set()
            go_on.wait(20)
        return claimed

    monkeypatch.setattr(exchange_module, "claim", slow_to_answer)
    made.enqueue("work", count=5)
    node = made.node()
    assert is_claimed.wait(20)
    stopping = _stopping(node)
    until(node._stopped.is_set, 20, "nothing is in hand any more")
    go_on.set()
    stopping.join(20)
    assert _states(made) == {"queued": 5}
    assert {row.attempts for row in made.runs()} == {0}


def test_claim_that_was_not_answered_is_handed_back(made: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    is_claimed, go_on = threading.Event(), threading.Event()

    def unanswered(*args: Any, **kwargs: Any) -> Any:
        claimed = claim(*args, **kwargs)
        if claimed.claims:
            is_claimed.set()
            go_on.wait(20)
            raise LedgerUnavailable("the answer was lost")
        return claimed

    monkeypatch.setattr(exchange_module, "claim", unanswered)
    made.enqueue("work", count=5)
    node = made.node()
    assert is_claimed.wait(20)
    stopping = _stopping(node)
    until(lambda: node._exchange._is_draining, 20, "it is stopping")
    go_on.set()
    stopping.join(20)
    assert _states(made) == {"queued": 5}


def test_node_has_left_before_others_can_take_it_for_dead(made: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    node = made.node()
    node_id = node.node_id
    seen: list[bool] = []

    def leave(*args: Any, **kwargs: Any) -> Any:
        record = made._locks[0].read(f"{NODE_LEASE}{node_id}")
        seen.append(record is not None and record.is_held)
        return made.ledger.leave(node_id)

    monkeypatch.setattr(node_module, "leave", leave)
    node.stop(1.0)
    assert seen == [True]
    assert made._locks[0].read(f"{NODE_LEASE}{node_id}").is_held is False


def test_start_that_fails_half_way_leaves_nobody_behind(made: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: Any, on_outcome: Any) -> None:
        raise RuntimeError("no more threads")

    monkeypatch.setattr("fencepost.engine.runners.thread.ThreadRunner.start", start)
    with pytest.raises(RuntimeError, match="no more threads"):
        made.node()
    assert [node.is_living for node in made.ledger.nodes()] == [False]
    assert not made.nodes[0].is_running
    assert "node died" not in made.whats()


@pytest.mark.parametrize("kind", ["postgresql", "mysql"], indirect=True)
def test_stop_ends_in_time_though_the_ledger_does_not_answer(
    kind: str, ledger_url: str, made: Crew, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb")
    with Proxy(server.host, server.port) as proxy:
        node = made.node(url=proxy.through(f"{ledger_url}&call_timeout=3s"), ttl="30s")
        until(lambda: made.enqueue("work") and _states(made)["succeeded"], 20, "it works")
        proxy.swallow()
        for _ in range(3):
            node.wake()
        began_at = RUNTIME.monotonic()
        node.stop(1.0)
        took_s = RUNTIME.monotonic() - began_at
    assert took_s < 25.0


def test_stop_may_be_asked_for_by_several_at_once(made: Crew) -> None:
    made.enqueue("work", count=20)
    node = made.node()
    stoppings = [_stopping(node) for _ in range(5)]
    for stopping in stoppings:
        stopping.join(20)
    assert not any(stopping.is_alive() for stopping in stoppings)
    assert _states(made)["running"] == 0
    assert [each.is_living for each in made.ledger.nodes()] == [False]
    assert made.whats().count("node left") == 1
