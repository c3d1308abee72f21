"""The loop that writes logs: few statements, bounded memory, and what the ledger did not take in time is counted."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest

from fencepost.core.events import Event
from fencepost.core.log_chunks import Position, with_missing
from fencepost.engine.jobs import Jobs
from fencepost.engine.logs import run_logs
from fencepost.engine.logs import writer as writing
from fencepost.engine.logs.run_logs import RunLogs
from fencepost.engine.logs.writer import LogWriter
from fencepost.errors import LedgerUnavailable
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.log_chunks import chunks_of
from fencepost.threaded import ThreadedRuntime
from tests.engine.exchange_stand import node_state

RUNTIME = ThreadedRuntime()
NOWHERE = "postgresql://nobody@127.0.0.1:1/nowhere"  # no server has this port


@pytest.fixture
def kind() -> str:
    return "sqlite"


class Writing:
    """A writer, the logs that it writes, and the statements that it needs."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.logs = RunLogs(RUNTIME)
        self.events: list[Event] = []
        state = node_state(ledger, RUNTIME, Jobs(), emit=self.events.append, logs=self.logs)
        made = LogWriter.where_kept(state)
        assert made is not None
        self.writer = made
        self.now = RUNTIME.monotonic()

    def write(self, run_id: int, text: bytes, *, ends: bool = True) -> None:
        self.logs.begin(run_id, 1)
        self.logs.add(run_id, 1, 1, text)
        if ends:
            self.logs.over(run_id, 1)

    def step(self, after_s: float = 1.0) -> float:
        self.now += after_s
        return self.writer.step(self.now) - self.now

    def text(self, run_id: int) -> str:
        rows = chunks_of(self.ledger, run_id, attempt=None, after=Position(), limit=100)
        return b"".join(zlib.decompress(each.text) for each in rows).decode()

    def missing(self, run_id: int) -> int:
        rows = chunks_of(self.ledger, run_id, attempt=None, after=Position(), limit=100)
        return sum(each[1] for each in with_missing(rows, Position()))


@pytest.fixture
def made(ledger: Ledger) -> Iterator[Writing]:
    stand = Writing(ledger)
    yield stand
    stand.writer.close()


def test_what_is_written_within_a_second_is_one_transaction(made: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    store = writing.store

    def counted(connection: object, chunks: list, removed: list) -> None:
        calls.append((len(chunks), len(removed)))
        store(connection, chunks, removed)

    monkeypatch.setattr(writing, "store", counted)
    seconds = 10
    for second in range(seconds):
        for run_id in range(1, 11):
            made.write(
                run_id, b"".join(b"%d line %d of the log of a run\n" % (second, n) for n in range(1000)), ends=False
            )
        for _ in range(4):  # it is woken more often than it writes
            made.step(0.25)
    assert seconds - 1 <= len(calls) <= seconds + 1
    assert max(removed for _, removed in calls) <= 10
    assert made.text(3).startswith("0 line 0 of")


def test_a_first_line_waits_a_second_for_more_and_much_does_not_wait(made: Writing) -> None:
    made.write(1, b"one line\n", ends=False)
    assert 0.0 < made.step(0.0) <= 1.1
    assert made.text(1) == ""
    made.write(1, b"x" * 40_000 + b"\n", ends=False)
    made.step(0.0)
    assert made.text(1).startswith("one line\nxxx")
    made.write(1, b"the next\n", ends=False)
    assert made.step(0.1) > 0.0
    assert "the next" not in made.text(1)
    made.step(2.0)
    assert made.text(1).endswith("the next\n")


def test_no_more_is_written_per_second_than_the_budget_allows(made: Writing) -> None:
    for run_id in range(1, 31):
        made.write(run_id, b"y" * 99 + b"\n" + b"z" * 99_900 + b"\n")
    written: list[int] = []
    while made.logs.waiting:
        made.step()
        written.append(sum(len(made.text(run_id)) for run_id in range(1, 31)))
    sizes = [later - earlier for earlier, later in zip([0, *written], written, strict=False)]
    assert max(sizes) <= 1_000_000 + 300_000
    assert written[-1] == 30 * 100_001


def test_while_the_ledger_is_away_memory_is_bounded_and_losses_are_counted(made: Writing) -> None:
    away = open_ledger(NOWHERE, RUNTIME)
    there, made.writer._connection = made.writer._connection, away.connect("logs")
    lines = 2000
    text = b"".join(b"line %d of a log that the ledger does not take\n" % n for n in range(lines))
    made.write(1, b"before\n", ends=False)
    for run_id in range(2, 102):
        made.write(run_id, text)
        if run_id % 20 == 0:
            with pytest.raises(LedgerUnavailable):
                made.step()
        assert made.logs.waiting <= (4 << 20) + len(text)
    for _ in range(100):
        made.write(1, text, ends=False)
    made.write(1, b"after\n")
    assert made.writer.is_empty  # a node that leaves does not wait for it
    made.writer._connection = there
    while made.logs.waiting or made.writer._removed:
        made.step()
    assert made.text(1).startswith("before\n")
    assert made.text(1).endswith("after\n")
    assert made.text(1).count("\n") + made.missing(1) == 2 + 100 * lines
    kept = [made.text(run_id).count("\n") for run_id in range(2, 102)]
    assert [count + made.missing(run_id) for run_id, count in enumerate(kept, 2)] == [lines] * 100
    assert 0 < kept.count(lines) < 100
    [event] = [each for each in made.events if "were dropped" in str(each.reason)]
    assert str(event.reason).startswith(f"{lines * kept.count(0)} lines of logs")
    away.close()


def test_what_comes_after_the_end_of_an_attempt_is_not_kept(made: Writing) -> None:
    made.write(1, b"in time\n")
    made.logs.add(1, 1, 1, b"too late\n")
    made.step()
    made.step()
    assert made.text(1) == "in time\n"
    assert made.logs.waiting == 0


def test_an_attempt_that_ends_while_it_is_being_written_is_not_lost(made: Writing) -> None:
    made.write(1, b"first\n", ends=False)
    chunks = made.logs.take(1 << 20)
    made.logs.over(1, 1)  # between `take` and `taken`, and the ledger may yet refuse
    assert made.logs.take(1 << 20) == chunks
    made.logs.taken(chunks)
    assert made.logs.take(1 << 20) == []
    assert made.logs.waiting == 0


def test_a_node_that_leaves_waits_for_what_is_being_written_and_for_the_rest(
    made: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    store = writing.store

    def watched(connection: object, chunks: list, removed: list) -> None:
        seen.append(made.writer.is_empty)  # as the node asks, on another thread
        store(connection, chunks, removed)

    monkeypatch.setattr(writing, "store", watched)
    monkeypatch.setattr(run_logs, "_MOST_CHUNKS", 400)
    for run_id in range(1, 501):
        made.write(run_id, b"a line\n")
    made.writer.drain()
    while not made.writer.is_empty:
        made.step(0.0)
    assert not any(seen)
    assert made.text(500) == "a line\n"
    assert len(seen) == 2


def test_a_flood_while_the_node_drains_is_limited_as_before(made: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    store = writing.store

    def counted(connection: object, chunks: list, removed: list) -> None:
        calls.append(sum(chunk.size for chunk in chunks))
        store(connection, chunks, removed)

    monkeypatch.setattr(writing, "store", counted)
    made.writer.drain()
    for _ in range(100):  # ten seconds
        made.write(1, b"a flood of lines, while the run has some time to end\n" * 1000, ends=False)
        made.step(0.1)
    assert len(calls) <= 11
    made.logs.over(1, 1)
    while not made.writer.is_empty:
        made.step(0.0)
    assert made.text(1).count("\n") + made.missing(1) == 100_000


def test_nothing_is_written_to_a_ledger_that_may_be_a_copy(made: Writing) -> None:
    made.write(1, b"a line\n")
    made.writer._node.same.held_why = "it may be an older dump"
    made.step()
    assert made.text(1) == ""
    assert made.writer.is_empty  # a node that leaves does not wait for the decision
    made.writer._node.same.held_why = None
    assert not made.writer.is_empty
    made.step()
    assert made.text(1) == "a line\n"
