"""Rows of logs: stored once, read from any position, and gone with their run."""

from __future__ import annotations

import os
import zlib

from fencepost.core.log_chunks import FIRST_OF_TAIL, LogChunk, Position
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.log_chunks import chunks_of, remove_orphans, store
from fencepost.ledger.pruning import Retention, prune
from tests.ledger.test_history import TestPruning as Pruning

BIGGEST = 32 << 10


def chunk(run_id: int, seq: int, *, attempt: int = 1, text: bytes = b"line\n") -> LogChunk:
    return LogChunk(run_id, attempt, seq, 1_700_000_000_000_000, 1, len(text), 0, zlib.compress(text, 1))


def found(ledger: Ledger, run_id: int, **wishes: object) -> list[tuple[int, int]]:
    wanted = {"attempt": None, "after": Position(), "limit": 100} | wishes
    return [(each.attempt, each.seq) for each in chunks_of(ledger, run_id, **wanted)]


def test_what_is_stored_twice_is_there_once_and_comes_back_as_it_was(ledger: Ledger) -> None:
    connection = ledger.connect("logs")
    noise = chunk(2**62, 0, text=os.urandom(BIGGEST))  # which no compression makes smaller
    rows = [chunk(7, seq, attempt=attempt) for attempt in (1, 2) for seq in (0, 1, FIRST_OF_TAIL)]
    store(connection, [*rows, noise])
    store(connection, [*rows, chunk(7, 2)])  # the reply to the first was lost
    assert chunks_of(ledger, 2**62, attempt=None, after=Position(), limit=1) == [noise]
    assert found(ledger, 7) == [(1, 0), (1, 1), (1, 2), (1, FIRST_OF_TAIL), (2, 0), (2, 1), (2, FIRST_OF_TAIL)]
    assert found(ledger, 7, attempt=2) == [(2, 0), (2, 1), (2, FIRST_OF_TAIL)]
    assert found(ledger, 7, after=Position(1, 1), limit=2) == [(1, 2), (1, FIRST_OF_TAIL)]
    assert found(ledger, 7, after=Position(1, FIRST_OF_TAIL)) == [(2, 0), (2, 1), (2, FIRST_OF_TAIL)]
    store(connection, [chunk(7, 3)], [(7, 1, 1, 2), (7, 2, 0, FIRST_OF_TAIL)])
    assert found(ledger, 7) == [(1, 0), (1, 3), (1, FIRST_OF_TAIL)]
    connection.rest()


def test_as_many_rows_are_stored_at_once_as_a_node_has_in_a_second(ledger: Ledger) -> None:
    connection, text = ledger.connect("logs"), os.urandom(50)  # 1 MB in all
    store(connection, [chunk(run_id, 0, text=text) for run_id in range(1, 20_001)])
    assert found(ledger, 20_000) == [(1, 0)]
    connection.rest()


def test_logs_go_with_their_run_and_no_others(ledger: Ledger) -> None:
    gone, stays = Pruning().aged(ledger, 40, "succeeded"), Pruning().aged(ledger, 1, "succeeded")
    more = [Pruning().aged(ledger, 40, "succeeded") for _ in range(25)]
    connection = ledger.connect("logs")
    store(connection, [chunk(run_id, seq) for run_id in (gone, stays, *more) for seq in (0, 1, FIRST_OF_TAIL)])
    assert prune(ledger, None, Retention()) == 26
    assert [found(ledger, run_id) for run_id in (gone, *more)] == [[]] * 26
    assert len(found(ledger, stays)) == 3
    connection.rest()


def test_lines_that_arrive_after_their_run_was_pruned_are_removed_later(ledger: Ledger) -> None:
    runs = [Pruning().aged(ledger, days, "succeeded") for days in (40, 1, 40, 1, 40)]
    assert prune(ledger, None, Retention()) == 3
    connection = ledger.connect("logs")
    store(connection, [chunk(run_id, seq) for run_id in runs for seq in (0, 1, FIRST_OF_TAIL)])
    places = [0]
    while place := remove_orphans(ledger, connection, after=places[-1], limit=2):
        places.append(place)
    assert places == [0, runs[1], runs[3]]
    assert [len(found(ledger, run_id)) for run_id in runs] == [0, 3, 0, 3, 0]
    connection.rest()
