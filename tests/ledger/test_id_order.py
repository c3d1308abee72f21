"""From times to ids: the search finds the same place as reading everything, whatever ids are missing.

Nor do rows mislead it that were made while a clock was wrong.
"""

import random

import pytest

from fencepost.ledger import history, id_order, journal
from fencepost.ledger.history import RunFilter
from fencepost.ledger.id_order import end_id_at, first_id_at
from fencepost.ledger.migrations import migrate
from fencepost.ledger.pruning import Retention, prune

DAY_US = 86_400_000_000
YEARS_US = 3650 * DAY_US
RUN = {
    "job": "'pay'",
    "type": "'manual'",
    "params": "'{}'",
    "params_hash": "''",
    "state": "'succeeded'",
} | dict.fromkeys(
    ("ticks", "priority", "queue", "attempts", "failures", "crashes", "token", "available_at", "generation"), "0"
)


@pytest.fixture
def kind():
    return "sqlite"


@pytest.fixture
def ledger(bare_url, opened):
    ledger = opened(bare_url)
    migrate(ledger)
    return ledger


def fill(ledger, rows):
    name = ledger.tables.name("journal")
    add = f"INSERT INTO {name} (id, at, what) VALUES (?, ?, 'sla missed')"
    ledger.write(lambda cursor: cursor.executemany(add, rows))


def places(ledger, at_us):
    """Where the search finds that what is made since then begins, and that what is older ends."""
    finds = (first_id_at, end_id_at)
    return ledger.read(lambda cursor: [each(ledger, cursor, at_us, table="journal", column="at") for each in finds])


def drawn(chosen, step):
    at, rows = 1_000_000, []
    for id_ in sorted(chosen.sample(range(1, 30_000), 6_000)):
        at += chosen.choice([0, 1, 5, step])
        rows.append((id_, at))
    return rows


def times(chosen, rows, count):
    first, last = rows[0][1], rows[-1][1]
    return [0, first, last, last + 1, *(chosen.randint(first, last) for _ in range(count))]


@pytest.mark.parametrize("seed", range(3))
def test_place_of_a_time_is_the_one_that_reading_everything_finds(ledger, seed):
    chosen = random.Random(seed)
    rows = drawn(chosen, 100_000 if seed else 3)
    fill(ledger, rows)
    for each in times(chosen, rows, 100):
        wanted = next((id_ for id_, at in rows if at >= each), None)
        for found in places(ledger, each):
            assert next((id_ for id_, _ in rows if id_ >= found), None) == wanted, each


@pytest.mark.parametrize("seed", range(6))
def test_rows_with_wrong_times_here_and_there_do_not_mislead_it(ledger, seed):
    chosen = random.Random(seed)
    rows = drawn(chosen, 100_000)
    wrong = {0, len(rows) - 1, *range(chosen.randrange(40), len(rows), 40)}
    fill(ledger, [(id_, chosen.choice([at + YEARS_US, 0]) if n in wrong else at) for n, (id_, at) in enumerate(rows)])
    right = [row for n, row in enumerate(rows) if n not in wrong]
    for each in times(chosen, rows, 100):
        since, end = places(ledger, each)
        assert [row for row in right if row[1] >= each and row[0] < since] == [], each
        assert [row for row in right if row[1] < each and row[0] >= end] == [], each
        assert sum(at < each and id_ >= since for id_, at in right) <= 1_000, each  # so little is read in vain
        assert sum(at >= each and id_ < end for id_, at in right) <= 1_000, each


def test_a_few_statements_find_it(ledger, monkeypatch):
    rows = [(n, 1_000 * n) for n in range(1, 60_001)]
    fill(ledger, rows)
    asked, ask = [], id_order._Search._rows
    monkeypatch.setattr(id_order._Search, "_rows", lambda *each: asked.append(1) or ask(*each))
    for at_us in (0, 1_000, 5_000, 30_000_000, 59_999_000, 60_000_000, 10**9):
        asked.clear()
        places(ledger, at_us)
        is_within = rows[0][1] < at_us <= rows[-1][1]
        assert len(asked) <= 2 * (7 if is_within else 11), at_us  # of two searches


def runs_of(ledger, ages):
    """Add succeeded runs that were made, and ended, so many days ago; return the time now."""
    now_us = ledger.now_us()
    names, values = ", ".join(RUN), ", ".join(RUN.values())
    add = f"INSERT INTO {ledger.tables.name('run')} ({names}, created_at, ended_at) VALUES ({values}, ?, ?)"
    made = [now_us - round(age * DAY_US) for age in ages]
    ledger.write(lambda cursor: cursor.executemany(add, [(at, at) for at in made]))
    return now_us


@pytest.mark.parametrize(("wrong", "old"), [(1, 3_000), (1, 2), (1, 1), (400, 3_000), (400, 1_000)])
def test_runs_are_pruned_although_the_oldest_were_made_while_the_clock_was_ahead(ledger, wrong, old):
    runs_of(ledger, [*[-3650] * wrong, *(200 - 100 * n / old for n in range(old)), *[1] * 3_000])
    removed = 0
    while gone := prune(ledger, None, Retention(), limit=2_000):
        removed += gone
    assert removed == old


def test_runs_are_found_although_the_newest_was_made_by_a_clock_that_was_behind(ledger):
    now_us = runs_of(ledger, [*(200 - n / 40 for n in range(4_000)), *[1] * 100, 3])
    two_days = RunFilter(since_us=now_us - 2 * DAY_US)
    assert len(history.runs(ledger, two_days, limit=10_000)) == 100


def test_runs_are_found_although_the_oldest_was_made_by_a_clock_that_was_ahead(ledger):
    now_us = runs_of(ledger, [-3650, *(200 - n / 40 for n in range(4_000)), *[1] * 100])
    old = RunFilter(until_us=now_us - 90 * DAY_US)
    assert len(history.runs(ledger, old, limit=10_000)) == 4_000


def test_journal_is_read_since_then_although_its_newest_entry_has_a_time_that_is_behind(ledger):
    now_us = ledger.now_us()
    ages = [*(200 - n / 40 for n in range(4_000)), *[1] * 100, 3]
    fill(ledger, [(n, now_us - round(age * DAY_US)) for n, age in enumerate(ages, 1)])
    since_us = now_us - 2 * DAY_US
    found = journal.entries(ledger, since_us=since_us, limit=1_000)
    assert len(found) == 100
