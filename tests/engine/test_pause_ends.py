"""When the ends of pauses are read: going through all schedules must be rare, and yet no end may be missed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.core.noted import Noted
from fencepost.core.schedule import cron, schedule_to_json
from fencepost.engine import pause_ends
from fencepost.engine.pause_ends import PauseEnds
from fencepost.ledger import journal, schedules
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.schedule_rows import NewSchedule
from tests.engine.test_planner import Stand

SECOND_US = 1_000_000


class Reading:
    """The ends of pauses, as the planner uses them; counts how often all schedules are read."""

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stand = Stand(ledger)
        self.times = 0
        self.ends = PauseEnds(ledger, self.stand.clock, self.stand.runtime)
        self.connection: LedgerConnection = self.stand.scene.connection
        real = schedules.end_pauses

        def counted(*args: object, **words: object) -> schedules.EndedPauses:
            self.times += 1
            return real(*args, **words)  # type: ignore[arg-type]

        monkeypatch.setattr(pause_ends, "end_pauses", counted)

    def look(self, at: float) -> bool:
        """Look as a node does; return whether something was resumed."""
        newest = journal.entries(self.stand.ledger, limit=1)
        self.ends.noted(newest[0].id if newest else 0)
        return at >= self.ends.due_at and self.ends.end(self.connection, at)


@pytest.fixture
def reading(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reading]:
    found = Reading(ledger, monkeypatch)
    yield found
    found.stand.scene.close()


def test_entries_of_other_kinds_do_not_have_all_schedules_read(reading: Reading) -> None:
    ledger = reading.stand.ledger
    reading.look(0.0)
    for second in range(1, 30):
        journal.journal(ledger, what=Noted.REFUSED_WRITE)
        reading.look(2.0 * second)
    assert reading.times == 1
    reading.look(61.0)
    assert reading.times == 2


def test_pause_that_another_process_notes_is_known_within_two_seconds_and_ends_in_time(reading: Reading) -> None:
    ledger = reading.stand.ledger
    schedules.put(ledger, NewSchedule("nightly", "job", schedule_to_json(cron("* * * * *")), "{}"))
    now = reading.stand.runtime.monotonic()
    reading.stand.clock.observe(ledger.now_us(), since=now)
    reading.look(now)
    schedules.pause(ledger, "nightly", by="ann", until_us=ledger.now_us() + 20 * SECOND_US)
    assert not reading.look(now + 1.5)
    assert reading.times == 2
    assert now + 15 < reading.ends.due_at < now + 25
    table = ledger.tables.schedule
    ledger.write(lambda cursor: ledger.change(cursor, table.update().values(paused_until=ledger.now_us() - 1)))
    assert reading.look(now + 25)
    assert schedules.schedule(ledger, "nightly").paused_at is None
