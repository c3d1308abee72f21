"""Figures of a node: they equal its history, cost one statement in ten seconds, and wait for the ledger."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from fencepost import Skip, every
from fencepost.core.events import What
from fencepost.core.figures import HOUR_US, Figures, bucket_of, hour_of, total
from fencepost.engine import figure_writer
from fencepost.engine.figure_writer import EVERY_S, TOO_LATE_US, FigureWriter
from fencepost.errors import LedgerUnavailable
from fencepost.ledger.figures import FigureRow, figures_since
from fencepost.ledger.history import attempts, runs
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.nodes import NewNode, died, join
from tests.engine.crew import RUNTIME, crew, job
from tests.engine.exchange_stand import Stand

ROOT = Path(__file__).parent.parent.parent


def counted(ledger: Ledger, *jobs: str) -> Figures:
    return total(row.figures() for row in figures_since(ledger, jobs, 0)[0])


def in_history(ledger: Ledger, *jobs: str) -> tuple[Counter[str], int]:
    """The outcomes that history has, and how many attempts have a run time."""
    words, timed = Counter[str](), 0
    for run in runs(ledger, limit=5000):
        if run.job not in jobs:
            continue
        found = attempts(ledger, run.id)
        for each in found:
            is_skipped = run.state == "skipped" and each.number == len(found)
            words["skipped" if is_skipped else str(each.outcome)] += 1
            timed += not is_skipped and each.outcome in ("succeeded", "failed", "timed_out")
        if not found and run.state in ("skipped", "misfired"):
            words[run.state] += 1
        words["dead"] += run.state == "dead"
    return +words, timed


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"], indirect=True)
def test_figures_of_a_node_that_has_left_equal_its_history(ledger_url: str) -> None:
    def works() -> None: ...

    def fails() -> None:
        raise ValueError("it fails")

    def skips() -> None:
        raise Skip("nothing to do")

    def hangs() -> None:
        started.set()
        go.wait(30)

    started, go = RUNTIME.event(), RUNTIME.event()
    again = {"retries": 2, "backoff": "1ms..2ms"}
    names = ("works", "fails", "skips", "hangs")
    made_jobs = [job(works), job(fails, **again), job(skips), job(hangs, every("1s"), overlap="forbid", misfire="skip")]
    with crew(ledger_url, made_jobs) as made:
        join(made.ledger, NewNode("gone", "gone", "no such grant", 1, 0, "test", 1, ("default",), ("works",)))
        [lost] = made.enqueue("works")
        _taken_by_the_dead(made.ledger, lost)
        for name, count in (("works", 30), ("fails", 3), ("skips", 2)):
            made.enqueue(name, count=count)
        made.ledger.write(lambda cursor: died(made.ledger, cursor, "gone", "it was killed"))
        made.node()
        made.until_state("succeeded", 31)
        made.until_state("dead", 3)
        made.until_state("skipped", 3)  # two by themselves, one because the other hangs
        go.set()
        made.nodes[0].stop(10.0)
        figures = counted(made.ledger, *names)
        words, timed = in_history(made.ledger, *names)
        assert figures.outcomes == words
        assert figures.run_times.total() == timed
        assert (words["lost"], words["failed"], words["dead"]) == (1, 9, 3)


def _taken_by_the_dead(ledger: Ledger, run_id: int) -> None:
    run = ledger.tables.run
    values = {"state": "running", "node": "gone", "attempts": 1, "token": 5, "started_at": 1}
    ledger.write(lambda cursor: ledger.change(cursor, update(run).where(run.c.id == run_id).values(**values)))


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_kill_9_loses_what_was_not_written_and_nothing_else(ledger_url: str) -> None:
    command = [sys.executable, "-m", "tests.engine.figure_child", ledger_url]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.kill()
    ledger = open_ledger(ledger_url, RUNTIME)
    assert in_history(ledger, "work") == (Counter(succeeded=27), 27)
    assert counted(ledger, "work").outcomes == Counter(succeeded=20)
    ledger.close()


class Writing:
    """An exchange and a writer, whose steps are made one by one; the writer's statements are noted."""

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stand = Stand(ledger, (("work",), ("other",)))
        self.node = self.stand.node
        self.writer = FigureWriter(self.node)
        self.now = 0.0
        self.written: list[list[FigureRow]] = []
        self.fails = False
        put = figure_writer.put

        def noted(connection: Any, rows: list[FigureRow]) -> None:
            if self.fails:
                raise LedgerUnavailable("it is away")
            self.written.append(rows)
            put(connection, rows)

        monkeypatch.setattr(figure_writer, "put", noted)

    def run(self, count: int, how: str = "succeeded", took_us: int = 1000) -> None:
        self.stand.add(count=count)
        self.node.agenda.hint()
        self.stand.settle()
        self.stand.runner.end_all(how, took_us=took_us)
        self.stand.settle()

    def step(self, after_s: float) -> float:
        self.now += after_s
        return self.writer.step(self.now) - self.now

    def figures(self) -> Figures:
        return counted(self.stand.ledger, "work", "other")


@pytest.fixture
def kind() -> str:
    return "sqlite"


@pytest.fixture
def made(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writing]:
    writing = Writing(ledger, monkeypatch)
    yield writing
    writing.writer.close()
    writing.stand.close()


def test_what_ends_within_ten_seconds_is_one_statement_and_nothing_is_none(made: Writing) -> None:
    woken: list[str] = []
    made.node.wake = woken.append  # type: ignore[method-assign]
    assert made.step(0) == EVERY_S
    for _ in range(9):
        made.run(3)
        assert 0 < made.step(1.0) <= EVERY_S
    assert (woken, made.written) == ([made.writer.name], [])
    assert made.step(EVERY_S) == EVERY_S
    assert [len(rows) for rows in made.written] == [1]
    assert made.figures() == Figures(Counter(succeeded=27), Counter({bucket_of(1000): 27}))
    for _ in range(5):
        assert made.step(EVERY_S) == EVERY_S
    assert len(made.written) == 1


def test_rows_that_were_not_written_are_written_later_with_what_came_since(made: Writing) -> None:
    made.run(2)
    made.step(0)
    made.fails = True
    with pytest.raises(LedgerUnavailable):
        made.step(EVERY_S)
    assert made.writer.is_empty  # a node that leaves now does not wait for it
    made.run(3, "failed")
    made.fails = False
    made.step(1.0)
    assert made.figures().outcomes == Counter(succeeded=2, failed=3, dead=3)
    assert made.writer.is_empty


def test_an_ending_that_the_ledger_refuses_does_not_count(made: Writing) -> None:
    [run_id] = made.stand.add()
    made.stand.settle()
    _taken_by_the_dead(made.stand.ledger, run_id)
    made.stand.runner.end_all()
    made.stand.settle()
    made.writer.settle(0.0)
    assert made.figures() == Figures.none()


def test_a_node_that_drains_writes_at_once(made: Writing) -> None:
    made.run(1)
    made.writer.drain()
    assert not made.writer.is_empty
    made.step(0.0)
    assert made.writer.is_empty
    assert made.figures().outcomes == Counter(succeeded=1)


def test_a_clock_that_goes_back_replaces_no_row_by_one_with_less(
    made: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.run(4)
    made.writer.settle(0.0)
    hour = hour_of(made.stand.ledger.now_us())
    figures = made.node.figures
    for at_us in (hour + HOUR_US, hour - 5 * HOUR_US, hour):
        monkeypatch.setattr(made.node.clock, "there_us", lambda at_us=at_us: at_us)
        figures.unrun([("work", "skipped")])
        made.writer.settle(0.0)
    assert [(row.hour - hour, row.outcomes) for row in figures_since(made.stand.ledger, ["work"], 0)[0]] == [
        (HOUR_US, '{"skipped":3}'),
        (0, '{"succeeded":4}'),
    ]


def test_what_is_counted_before_the_ledger_has_told_the_time_is_counted_when_it_has(made: Writing) -> None:
    made.node.figures.unrun([("work", "lost")])
    made.writer.settle(0.0)
    assert (made.written, made.writer.is_empty) == ([], False)
    made.run(1)
    made.writer.settle(0.0)
    [row] = figures_since(made.stand.ledger, ["work"], 0)[0]
    assert (row.hour, row.outcomes) == (hour_of(made.stand.ledger.now_us()), '{"succeeded":1,"lost":1}')


def test_figures_that_come_when_their_hour_may_have_been_merged_are_dropped_and_reported(
    made: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.run(4)
    hour = hour_of(made.stand.ledger.now_us())
    monkeypatch.setattr(made.node.clock, "there_us", lambda: hour + HOUR_US + TOO_LATE_US + 1)
    made.writer.settle(0.0)
    assert made.figures() == Figures.none()
    [event] = [event for event in made.stand.events if event.what is What.RUNNER_WARNING]
    assert "figures of 1 job" in str(event.reason)
