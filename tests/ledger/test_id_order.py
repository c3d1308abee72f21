"""From times to ids: the search finds the same place as reading everything, whatever ids are missing."""

import random

import pytest

from fencepost.ledger.id_order import first_id_at
from fencepost.ledger.migrations import migrate


@pytest.fixture
def kind():
    return "sqlite"


@pytest.mark.parametrize("seed", range(3))
def test_first_id_at_a_time_is_the_one_that_reading_everything_finds(bare_url, opened, seed):
    chosen = random.Random(seed)
    ledger = opened(bare_url)
    migrate(ledger)
    at, rows = 1_000_000, []
    for id_ in sorted(chosen.sample(range(1, 30_000), 6_000)):
        at += chosen.choice([0, 1, 5, 100_000 if seed else 3])
        rows.append((id_, at))
    journal = ledger.tables.name("journal")

    def fill(cursor):
        cursor.executemany(f"INSERT INTO {journal} (id, at, what) VALUES (?, ?, 'sla missed')", rows)

    ledger.write(fill)
    times = [
        0,
        rows[0][1],
        rows[-1][1],
        rows[-1][1] + 1,
        *(chosen.randint(rows[0][1], rows[-1][1]) for _ in range(200)),
    ]

    def compare(cursor):
        for each in times:
            found = first_id_at(ledger, cursor, each, table="journal", column="at")
            wanted = next((id_ for id_, at in rows if at >= each), None)
            after = [id_ for id_, _ in rows if id_ >= found]
            assert (after[0] if after else None) == wanted, each

    ledger.read(compare)
