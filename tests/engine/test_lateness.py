"""What is late is noticed by a node: while it runs, when it has ended, and when nobody runs it."""

from __future__ import annotations

import threading

from fencepost.core.events import What
from fencepost.ledger.journal import entries
from fencepost.testing import until
from tests.engine.crew import Crew, crew, job

LATE = {"sla_us": 1}


def missed(made: Crew) -> list[int | None]:
    return [entry.run_id for entry in entries(made.ledger, what=What.SLA_MISSED)]


def test_a_run_that_is_late_is_told_of_once_while_it_goes_on(ledger_url: str) -> None:
    go_on = threading.Event()

    def slow() -> None:
        go_on.wait(30)

    with crew(ledger_url, [job(slow, sla="1s")]) as made:
        made.node()
        [run_id] = made.enqueue("slow", **LATE)
        until(lambda: missed(made) == [run_id], 30, "it is noted")
        go_on.set()
        made.until_state("succeeded", 1)
        made.nodes[0].stop(5)
        assert missed(made) == [run_id]
    told = [event for event in made.events if event.what is What.SLA_MISSED]
    assert [(event.job, event.run_id) for event in told] == [("slow", run_id)]


def test_what_nobody_runs_is_noticed_too(ledger_url: str) -> None:
    def waits() -> None: ...

    with crew(ledger_url, [job(waits, sla="1s")]) as made:
        [run_id] = made.enqueue("waits", queue="nobody-takes-from-it", **LATE)
        made.node()
        until(lambda: missed(made) == [run_id], 30, "it is noted")


def test_what_ends_late_between_two_looks_is_noticed(ledger_url: str) -> None:
    def slow() -> None: ...

    with crew(ledger_url, [job(slow, sla="2s")]) as made:
        made.node()
        [run_id] = made.enqueue("slow", due_at_us=5, **LATE)
        made.until_state("succeeded", 1)
        until(lambda: missed(made) == [run_id], 30, "it is noted")


def test_jobs_that_promise_nothing_are_not_watched(ledger_url: str) -> None:
    def plain() -> None: ...

    def prompt() -> None: ...

    with crew(ledger_url, [job(plain), job(prompt, sla="1h")]) as made:
        assert "lateness" in {loop.name for loop in made.node()._loops}
    with crew(ledger_url, [job(plain)]) as made:
        assert "lateness" not in {loop.name for loop in made.node()._loops}
