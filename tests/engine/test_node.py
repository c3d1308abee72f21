"""Whole nodes on real databases: what is due runs once, and what is cut in half is found."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import pairwise

import pytest

from fencepost.core.names import NODE_LEASE
from fencepost.core.schedule import every
from fencepost.core.verdicts import Retry, Skip
from fencepost.engine.membership import Membership
from fencepost.engine.planner import Planner
from fencepost.ledger import journal
from fencepost.ledger.history import attempts
from fencepost.ledger.requests import cancel
from fencepost.testing import until
from fencepost.threaded import ThreadedRuntime
from tests.engine.crew import crew, job, seldom


def test_every_run_that_is_asked_for_succeeds_once(ledger_url: str) -> None:
    calls: Counter[int] = Counter()
    lock = threading.Lock()

    def work(run) -> None:
        with lock:
            calls[run.id] += 1

    with crew(ledger_url, [job(work)]) as made:
        made.enqueue("work", count=300)
        for _ in range(3):
            made.node()
        rows = made.until_state("succeeded", 300)
    assert len(rows) == 300
    assert set(calls.values()) == {1}
    assert {row.attempts for row in rows} == {1}


def test_each_due_time_is_run_once_by_three_nodes(ledger_url: str) -> None:
    seen: list[int] = []

    def tick(run) -> None:
        seen.append(run.window.end.timestamp())

    with crew(ledger_url, [job(tick, every("500ms"), overlap="queue")]) as made:
        for _ in range(3):
            made.node()
        made.until_state("succeeded", 6)
        for node in made.nodes:
            node.stop(5)
        rows = made.runs()
    done = sorted(row.due_at for row in rows if row.state == "succeeded")
    assert len(seen) == len(set(seen)) == len(done)
    steps = {later - earlier for earlier, later in pairwise(done)}
    assert steps == {500_000}


def test_a_run_whose_time_has_not_come_waits_for_it(ledger_url: str) -> None:
    def work() -> None: ...

    with crew(ledger_url, [job(work)]) as made:
        later_us = made.ledger.now_us() + 4_000_000
        [run_id] = made.enqueue("work", available_at_us=later_us)
        assert made.runs()[0].state == "waiting"
        made.node()
        [row] = made.until_state("succeeded", 1)
    assert row.id == run_id
    assert later_us <= row.started_at < later_us + 10_000_000


def test_a_failing_job_is_tried_again_and_then_given_up(ledger_url: str) -> None:
    def work() -> None:
        raise ValueError("no such account")

    with crew(ledger_url, [job(work, retries=2, backoff="10ms..20ms")]) as made:
        [run_id] = made.enqueue("work")
        made.node()
        [row] = made.until_state("dead", 1)
        tries = attempts(made.ledger, run_id)
    assert (row.attempts, row.failures, row.error_code) == (3, 3, "ValueError")
    assert [each.outcome for each in tries] == ["failed"] * 3
    assert "no such account" in (tries[0].error or "")


def test_a_job_may_ask_for_another_try_or_to_be_skipped(ledger_url: str) -> None:
    calls: list[int] = []

    def patient() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise Retry(after="10ms")

    def idle() -> None:
        raise Skip("nothing to do")

    with crew(ledger_url, [job(patient, retries=1), job(idle)]) as made:
        made.enqueue("patient")
        made.enqueue("idle")
        made.node()
        made.until_state("succeeded", 1)
        [skipped] = made.until_state("skipped", 1)
    assert len(calls) == 2
    assert skipped.why == "nothing to do"


def test_a_tick_that_finds_the_last_one_running_is_skipped_and_says_so(ledger_url: str) -> None:
    go_on = threading.Event()

    def long() -> None:
        go_on.wait(20)

    with crew(ledger_url, [job(long, every("500ms"))]) as made:
        made.node()
        made.node()
        skipped = made.until_state("skipped", 2)
        go_on.set()
        made.until_state("succeeded", 1)
    assert "has not ended" in (skipped[0].why or "")  # the newest; older ones may have come due before the node claimed


def test_runs_with_one_key_follow_each_other(ledger_url: str) -> None:
    inside, most, lock = [0], [0], threading.Lock()

    def work() -> None:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        threading.Event().wait(0.005)
        with lock:
            inside[0] -= 1

    with crew(ledger_url, [job(work, overlap="queue")]) as made:
        made.enqueue("work", count=20, exclusive_key="job:work")
        made.node()
        made.node()
        rows = made.until_state("succeeded", 20)
    assert most == [1]
    assert len({row.token for row in rows}) == 20


def test_a_run_can_be_cancelled_while_it_runs(ledger_url: str) -> None:
    inside, outside = threading.Event(), threading.Event()

    def work(run) -> None:
        inside.set()
        try:
            until(run.check, 20, "the run is told to stop")
        finally:
            outside.set()

    with crew(ledger_url, [job(work)]) as made:
        [run_id] = made.enqueue("work")
        made.node()
        assert inside.wait(20)
        cancel(made.ledger, run_id, by="anna", reason="wrong month")
        [row] = made.until_state("cancelled", 1)
        assert outside.wait(20)
    assert row.id == run_id


def test_a_node_whose_session_is_taken_away_stops_and_comes_back_as_somebody_else(ledger_url: str) -> None:
    began: list[tuple[str | None, int]] = []
    go_on = threading.Event()

    def work(run) -> None:
        began.append((made.nodes[0].node_id, run.attempt))
        if run.attempt == 1:
            go_on.wait(20)

    with crew(ledger_url, [job(work)]) as made:
        [run_id] = made.enqueue("work")
        node = made.node()
        until(lambda: began, 20, "the run began")
        [(first, _)] = began
        made._locks[0].revoke(f"{NODE_LEASE}{first}")
        [row] = made.until_state("succeeded", 1)
        go_on.set()
        tries = attempts(made.ledger, run_id)
        second = node.node_id
    assert second != first
    assert [(each.number, each.outcome) for each in tries] == [(1, "lost"), (2, "succeeded")]
    assert (row.crashes, row.failures) == (1, 0)
    assert tries[1].token > tries[0].token
    assert "node lost" in made.whats()


def test_a_node_that_is_gone_is_found_and_what_it_ran_is_run_by_another(ledger_url: str) -> None:
    began: list[int] = []
    go_on = threading.Event()

    def work(run) -> None:
        began.append(run.attempt)
        if run.attempt == 1:
            go_on.wait(30)

    with crew(ledger_url, [job(work)]) as made:
        [run_id] = made.enqueue("work")
        first = made.node(ttl="3s")
        until(lambda: began, 20, "the run began")
        first_id = first.node_id
        _vanish(first)
        made.node(ttl="3s")
        made.until_state("succeeded", 1, 30)
        go_on.set()
        tries = attempts(made.ledger, run_id)
    assert [(each.number, each.outcome, each.node == first_id) for each in tries] == [
        (1, "lost", True),
        (2, "succeeded", False),
    ]
    assert "node died" in made.whats()


def _vanish(node) -> None:
    """Let a node be as if its process had been killed: no loop goes on, and nothing renews its session."""
    for loop in node._loops:
        loop.stop(0)
    for step in node._steps:
        step.interrupt()
    for loop in node._loops:
        loop.stop(5)
    member = node._state.member
    member.lease._kept._machine.released()  # its renewer ends without telling the store
    node._stopped.set()
    for step in node._steps:
        if not isinstance(step, Membership):  # it does not leave
            step.close()


@pytest.mark.parametrize("misfire", ["skip", "once"])
def test_a_tick_that_was_planned_before_all_nodes_went_down_follows_the_misfire_policy(
    ledger_url: str, misfire: str
) -> None:
    def tick() -> None: ...

    with crew(ledger_url, [job(tick, misfire=misfire, grace="10s", type="scheduled")]) as made:
        yesterday = made.ledger.now_us() - 86_400_000_000
        due = {"first_due_at_us": yesterday, "due_at_us": yesterday, "available_at_us": yesterday}
        made.enqueue("tick", schedule="tick", origin_key=f"tick:{yesterday}:tick", **due)
        made.node()
        [row] = made.until_state("misfired" if misfire == "skip" else "succeeded", 1)
    assert row.due_at == yesterday


def _runs_it(made, node) -> str | None:
    """Return the node's identity if it is the one under which the run runs."""
    return next((row.node for row in made.runs() if row.state == "running" and row.node == node.node_id), None)


def test_a_run_that_keeps_killing_its_node_is_given_up(ledger_url: str) -> None:
    go_on = threading.Event()

    def work(run) -> None:
        go_on.wait(30)

    with crew(ledger_url, [job(work, crash_limit=2)]) as made:
        made.enqueue("work")
        node = made.node(ttl="1s")

        def has_killed_it() -> bool:
            if (now := _runs_it(made, node)) is not None:
                made._locks[0].revoke(f"{NODE_LEASE}{now}")
                until(lambda: node.node_id not in (now, None), 20, "it is somebody else")
            return any(row.state == "dead" for row in made.runs())

        until(seldom(has_killed_it), 30, "it is given up")
        [dead] = made.until_state("dead", 1)
        go_on.set()
    assert dead.error_code == "crash_limit"
    assert dead.crashes == 2


@pytest.mark.parametrize("on_crash", ["hold", "fail"])
def test_what_becomes_of_a_lost_run_is_the_policy_s_to_say(ledger_url: str, on_crash: str) -> None:
    go_on = threading.Event()

    def work(run) -> None:
        go_on.wait(30)

    with crew(ledger_url, [job(work, on_crash=on_crash)]) as made:
        made.enqueue("work")
        node = made.node()
        row = made.until_state("running", 1)[0]
        until(lambda: node.node_id == row.node, 20, "the node runs it")
        made._locks[0].revoke(f"{NODE_LEASE}{row.node}")
        state = "waiting" if on_crash == "hold" else "dead"
        [found] = made.until_state(state, 1)
        go_on.set()
    assert found.attempts == 1
    assert (found.waits_for == "person") == (on_crash == "hold")


def test_stopping_lets_what_runs_end_and_leaves_in_good_order(ledger_url: str) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        go_on.wait(20)

    with crew(ledger_url, [job(work)]) as made:
        made.enqueue("work", count=3)
        node = made.node(slots=1)
        assert inside.wait(20)
        stopping = threading.Thread(target=node.stop, args=(20.0,))
        stopping.start()
        go_on.set()
        stopping.join(30)
        assert not stopping.is_alive()
        rows = made.runs()
    states = Counter(row.state for row in rows)
    assert states["running"] == 0
    assert states["succeeded"] >= 1
    assert states["succeeded"] + states["queued"] == 3
    assert {row.attempts for row in rows if row.state == "queued"} <= {0}


class SteppedRuntime(ThreadedRuntime):
    """A machine whose wall clock can be set."""

    offset_us = 0

    def wall_us(self) -> int:
        return super().wall_us() + self.offset_us


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("hours", [1 / 6, 2.0])
def test_a_wall_clock_that_steps_ahead_repeats_nothing_and_skips_no_year(
    ledger_url: str, hours: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tick() -> None: ...

    runtime = SteppedRuntime()
    steps: list[float] = []
    planned = Planner.step
    monkeypatch.setattr(Planner, "step", lambda planner, now: steps.append(now) or planned(planner, now))
    with crew(ledger_url, [job(tick, every("500ms"), overlap="queue")], runtime) as made:
        made.node()
        before = len(made.until_state("succeeded", 2))
        runtime.offset_us = round(hours * 3_600_000_000)
        if hours > 1:
            until(lambda: journal.entries(made.ledger, what="clock leapt"), 20, "a row tells of it")
            steps.clear()
            until(lambda: len(steps) > 2, 30, "the planner had its chances")
            runtime.offset_us = 0
        made.until_state("succeeded", before + 4)
        rows = made.runs()
    dues = sorted(row.due_at for row in rows)
    assert len(dues) == len(set(dues))
    if hours > 1:
        assert dues[-1] - dues[0] < 60_000_000


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_wall_clock_that_steps_back_repeats_nothing_and_stops_no_work(ledger_url: str) -> None:
    def tick() -> None: ...
    def work() -> None: ...

    runtime = SteppedRuntime()
    with crew(ledger_url, [job(tick, every("500ms"), overlap="queue"), job(work)], runtime) as made:
        made.node()
        made.until_state("succeeded", 2)
        runtime.offset_us = -7_200_000_000
        until(lambda: journal.entries(made.ledger, what="clock leapt"), 20, "a row tells of it")
        made.enqueue("work")
        until(lambda: [r for r in made.runs() if r.job == "work" and r.state == "succeeded"], 20, "work goes on")
        dues = [row.due_at for row in made.runs() if row.job == "tick"]
    assert len(dues) == len(set(dues))
