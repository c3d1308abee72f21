"""Stopping a node: whatever it is doing at the moment, it ends in time, and nothing is left running in its name."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.core.events import What
from fencepost.core.names import NODE_LEASE
from fencepost.engine import exchange as exchange_module
from fencepost.engine import membership as membership_module
from fencepost.errors import LedgerUnavailable
from fencepost.ledger.claiming import claim
from fencepost.ledger.history import attempts
from fencepost.ledger.nodes import leave, nodes
from fencepost.testing import until
from testbed.proxy import Proxy
from tests.engine.crew import RUNTIME, Crew, crew, job, loop_of, step_of


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
    until(lambda: step_of(node, exchange_module.Exchange)._is_draining, 20, "it is stopping")
    go_on.set()
    stopping.join(20)
    assert _states(made) == {"queued": 5}


def test_node_has_left_before_others_can_take_it_for_dead(made: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    node = made.node()
    node_id = node.node_id
    seen: list[bool] = []

    def note_and_leave(*args: Any, **kwargs: Any) -> Any:
        record = made._locks[0].read(f"{NODE_LEASE}{node_id}")
        seen.append(record is not None and record.is_held)
        return leave(made.ledger, node_id)

    monkeypatch.setattr(membership_module, "leave", note_and_leave)
    node.stop(1.0)
    assert seen == [True]
    assert made._locks[0].read(f"{NODE_LEASE}{node_id}").is_held is False


def test_start_that_fails_half_way_leaves_nobody_behind(made: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: Any, on_outcome: Any) -> None:
        raise RuntimeError("no more threads")

    monkeypatch.setattr("fencepost.engine.runners.thread.ThreadRunner.start", start)
    with pytest.raises(RuntimeError, match="no more threads"):
        made.node()
    assert [node.is_living for node in nodes(made.ledger)] == [False]
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
    assert [each.is_living for each in nodes(made.ledger)] == [False]
    assert made.whats().count("node left") == 1


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_shutdowns_in_a_row_interrupt_a_run_and_end_it_never(ledger_url: str) -> None:
    begun, go = RUNTIME.event(), RUNTIME.event()

    def work() -> None:
        begun.set()
        go.wait(30)

    with crew(ledger_url, [job(work, crash_limit=2)]) as made:
        [run_id] = made.enqueue("work")
        for times in range(1, 6):
            begun.clear()
            node = made.node()
            assert begun.wait(30)
            node.stop(0.05)
            [row] = made.runs()
            assert (row.state, row.attempts, row.crashes, row.failures) == ("queued", times, 0, 0)
            assert (What.JOB_OUTLASTS_GRACE in made.whats()) == (times == 5)
        assert made.whats().count(What.RUN_INTERRUPTED) == 5
        [warning] = [event for event in made.events if event.what is What.JOB_OUTLASTS_GRACE]
        assert (warning.job, warning.run_id) == ("work", run_id)
        assert "5 times in a row" in (warning.reason or "")
        go.set()
        made.node()
        made.until_state("succeeded", 1)
        assert [each.outcome for each in attempts(made.ledger, run_id)] == ["interrupted"] * 5 + ["succeeded"]


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("loop", ["exchange", "membership"])
def test_node_one_of_whose_loops_died_leaves(ledger_url: str, loop: str) -> None:
    begun, go = RUNTIME.event(), RUNTIME.event()

    def work() -> None:
        begun.set()
        go.wait(30)

    def die(now: float) -> float:
        raise KeyboardInterrupt

    with crew(ledger_url, [job(work)]) as made:
        crippled = made.node()
        [run_id] = made.enqueue("work")
        assert begun.wait(30)
        dying = loop_of(crippled, loop)
        dying._step = die
        dying.wake()
        until(lambda: dying.died_of is not None, 30, "the loop is dead")
        go.set()
        until(lambda: What.NODE_LEFT in made.whats(), 30, "the node has left")
        assert not crippled.is_running
        [failed] = [event for event in made.events if event.what is What.NODE_FAILED]
        assert f"its {loop} loop died of KeyboardInterrupt()" in (failed.reason or "")
        assert [node.left_at is not None for node in nodes(made.ledger)] == [True]
        assert [each.outcome for each in attempts(made.ledger, run_id)] == ["succeeded"]
