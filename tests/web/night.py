"""A little ledger with a bad night in it, the same each time: for the pictures of the docs, and to look at the pages.

Its clock stands still at ten past three. What people did was done through `Operations`, at its time; what nodes would
have written is written here as rows, so that every number of a run, every token and every instant is known.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert, update

from fencepost import App, cron, every
from fencepost.access import Access
from fencepost.app.composing import publish
from fencepost.core.rights import Scope
from fencepost.ledger import migrations, nodes
from fencepost.ledger.nodes import NewNode
from fencepost.threaded import ThreadedRuntime

NOW = datetime(2026, 11, 18, 3, 12, tzinfo=UTC)
GIVEN_UP, HELD, RUNNING = 41, 43, 44  # the runs that the pictures are about
_KEPT_DUES = {"quotes": 14, "reconcile": 8}
_TRACE = """Traceback (most recent call last):
  File "/srv/shop/jobs/settle.py", line 31, in settle
    with payments.connect() as connection:
  File "/srv/shop/payments.py", line 12, in connect
    return psycopg.connect(DSN, connect_timeout=5)
psycopg.OperationalError: connection to server at "payments-db", port 5432 failed: Connection refused
"""
_ERROR = 'connection to server at "payments-db", port 5432 failed: Connection refused'
_LOG = """02:00:41 INFO  settling 2026-11-17 for Europe/Berlin
02:00:41 INFO  reading open payments
02:00:46 WARN  payments-db:5432 does not answer, trying once more
02:00:51 ERROR payments-db:5432 does not answer
"""


class StandingClock(ThreadedRuntime):
    """A runtime whose clock shows what it was set to, and whose random names are counted."""

    def __init__(self) -> None:
        self.at = NOW
        self._names = 0

    def wall_us(self) -> int:
        return us(self.at)

    def new_id(self) -> str:
        self._names += 1
        return f"{self._names:032x}"

    def host(self) -> str:
        return "web-1"

    def process_id(self) -> int:
        return 4711


@contextmanager
def night(url: str) -> Iterator[App]:
    """Make the ledger at `url`, whose tables may exist, and close it afterwards."""
    clock = StandingClock()
    clock.at = NOW - timedelta(days=9)
    app = App(url, runtime=clock)
    _declare(app)
    migrations.migrate(app.ledger)
    publish(app)
    _accounts(app)
    app.schedules.put(
        "invoices:eu", "invoices", cron("30 2 * * *", tz="Europe/Berlin"), params={"region": "eu"}, by="ann"
    )
    app.schedules.put(
        "invoices:us", "invoices", cron("30 2 * * *", tz="America/New_York"), params={"region": "us"}, by="ann"
    )
    _nodes(app)
    Night(app, clock).fall()
    clock.at = NOW
    yield app
    app.close()


def us(at: datetime) -> int:
    """Return an instant as the ledger has it."""
    return round(at.timestamp() * 1_000_000)


def _declare(app: App) -> None:
    def settle(day: str = "yesterday") -> None:
        """Settle the payments of a day with the bank."""

    def invoices(region: str) -> None:
        """Send the invoices of a region."""

    def orders() -> None:
        """Import the orders of all shops."""

    def quotes() -> None:
        """Fetch the latest prices."""

    def reconcile() -> None:
        """Compare the books with the bank's."""

    def ledgers(month: str) -> None:
        """Close the books of a month."""

    app.job(cron("0 3 * * *", tz="Europe/Berlin"), timeout="10m", retries=2, effects="fenced")(settle)
    app.job(timeout="20m", type="manual")(invoices)
    app.job(every("15m"), timeout="13m", type="bulk", effects="fenced")(orders)
    app.job(every("1m"), timeout="30s", type="near-real-time")(quotes)
    app.job(every("5m"), timeout="8m", overlap="forbid")(reconcile)
    app.job(timeout="2h", type="manual", on_crash="hold", name="close-books")(ledgers)


def _accounts(app: App) -> None:
    access = Access(app.ledger, Scope.direct("root"))
    for name, role, job in (("ann", "admin", ""), ("bob", "operator", ""), ("carol", "viewer", "invoices")):
        access.put_account(name, None)
        access.give(f"user:{name}", role, jobs=[job])
    access.set_role_reasons("operator", "always")


def _nodes(app: App) -> None:
    names = tuple(each.name for each in app.operations.jobs())
    for number, days in ((1, 4), (2, 4), (3, 4), (4, 0)):
        joined = NOW - timedelta(days=days, minutes=63 if not days else number)
        row = NewNode(f"n{number}", f"web-{number}", f"g{number}", us(joined), 12, "0.1.0", 4, ("default",), names)
        nodes.join(app.ledger, row)
        _change(app, update(app.ledger.tables.node).where(app.ledger.tables.node.c.id == f"n{number}").values(
            started_at=us(joined), longest_pause_us=38_000 * number,
            dead_at=us(NOW - timedelta(minutes=71)) if number == 2 else None,
            dead_why="its session expired" if number == 2 else None,
        ))  # fmt: skip


def _change(app: App, statement: Any) -> None:
    app.ledger.write(lambda cursor: app.ledger.change(cursor, statement))


class Night:
    """Writes what happened, oldest first, so that the numbers of the runs rise with time."""

    def __init__(self, app: App, clock: StandingClock) -> None:
        self._app = app
        self._clock = clock
        self._tables = app.ledger.tables

    def fall(self) -> None:
        """Write all of it."""
        for due, job in sorted(self._dues()):
            self._ordinary(job, due)
        self._given_up()
        self._at(minutes=66)
        self._app.operations.trigger("invoices", {"region": "eu"}, by="user:bob", reason="a customer asked by phone")
        self._set(42, state="succeeded", started_at=self._us(65), ended_at=self._us(64, -20), node="n1", attempts=1,
                  token=self._us(65), available_at=self._us(66), result='{"sent": 1204}')  # fmt: skip
        self._held()
        self._running()
        self._paused()

    def _dues(self) -> Iterator[tuple[datetime, str]]:
        for number in range(_KEPT_DUES["quotes"]):
            yield NOW - timedelta(minutes=number + 73), "quotes"
        for number in range(_KEPT_DUES["reconcile"]):
            yield NOW - timedelta(minutes=5 * number + 72), "reconcile"
        for days in range(1, 8):
            yield NOW.replace(hour=2, minute=0) - timedelta(days=days), "settle"
        for number in range(11):
            yield NOW - timedelta(minutes=15 * number + 87), "orders"

    def _ordinary(self, job: str, due: datetime) -> None:
        """Write a run that ended well, or was skipped because the one before it was not over."""
        at, is_skipped = us(due), job == "reconcile" and due.minute % 10 == 0
        took = {"quotes": 640_000, "reconcile": 287_000_000, "settle": 94_000_000, "orders": 402_000_000}[job]
        took += at // 1_000_000 % 97 * took // 400
        values: dict[str, Any] = {"state": "succeeded", "attempts": 1, "started_at": at + 12_000, "token": at + 12_000}
        values |= {"ended_at": at + 12_000 + took, "node": f"n{1 + at // 60_000_000 % 3}"}
        if is_skipped:
            values = {
                "state": "skipped",
                "attempts": 0,
                "started_at": None,
                "ended_at": at + 9_000,
                "token": 0,
                "node": None,
            }
            values["why"] = "the run before it had not ended (overlap is forbid)"
        self._run(job, job, due, **values)

    def _given_up(self) -> None:
        due = NOW.replace(hour=2, minute=0)
        at = us(due)
        self._run("settle", "settle", due, state="dead", attempts=3, failures=2, crashes=1, started_at=at + 36_000_000,
                  ended_at=at + 51_200_000, token=at + 36_000_000, node="n3", error_code="OperationalError",
                  error=_ERROR, exclusive_key="settle")  # fmt: skip
        rows = (
            (1, "n2", 0, 14_000_000, "lost", None, "node web-2 died: its session expired", None),
            (2, "n1", 19_000_000, 29_400_000, "failed", "OperationalError", _ERROR, _TRACE),
            (3, "n3", 36_000_000, 51_200_000, "failed", "OperationalError", _ERROR, _TRACE),
        )
        for number, node, begin, end, outcome, code, error, trace in rows:
            row = {"run_id": GIVEN_UP, "number": number, "node": node, "token": at + begin, "started_at": at + begin}
            row |= {
                "ended_at": at + end,
                "took_us": end - begin,
                "outcome": outcome,
                "error_code": code,
                "error": error,
            }
            _change(self._app, insert(self._tables.attempt).values(row | {"trace": trace}).inline())
        self._note(at + 14_000_000, "node died", node="n2", detail='{"why": "its session expired"}')
        self._note(at + 14_000_000, "run lost", job="settle", run_id=GIVEN_UP, node="n2", token=at)
        self._note(at + 22_700_000, "refused write", job="settle", run_id=GIVEN_UP, node="n2", token=at)
        text = _LOG.encode()
        chunk = {
            "run_id": GIVEN_UP,
            "attempt": 3,
            "seq": 0,
            "first_at": at + 36_000_000,
            "lines": 4,
            "bytes": len(text),
        }
        table = self._tables.operating["log_chunk"]
        _change(self._app, insert(table).values(chunk | {"dropped": 0, "text": zlib.compress(text)}).inline())

    def _held(self) -> None:
        self._at(minutes=58)
        self._app.operations.trigger("close-books", {"month": "2026-10"}, by="user:ann", reason="end of the month")
        self._set(HELD, state="waiting", waits_for="person", attempts=1, crashes=1, token=self._us(58),
                  why="it was lost in the middle, and its policy says on_crash=hold")  # fmt: skip
        row = {"run_id": HELD, "number": 1, "node": "n2", "token": self._us(58), "started_at": self._us(58)}
        row |= {"ended_at": self._us(51), "outcome": "lost", "error": "node web-2 died: its session expired"}
        _change(self._app, insert(self._tables.attempt).values(row).inline())

    def _running(self) -> None:
        self._run("orders", "orders", NOW - timedelta(minutes=12), state="running", attempts=1, node="n1",
                  started_at=self._us(12), token=self._us(12), progress=0.42, progress_note="chunk 84 of 200",
                  exclusive_key="orders")  # fmt: skip
        self._run("quotes", "quotes", NOW - timedelta(minutes=1), state="succeeded", attempts=1, node="n4",
                  started_at=self._us(1), token=self._us(1), ended_at=self._us(1, 1))  # fmt: skip
        self._run("reconcile", "reconcile", NOW - timedelta(minutes=2), state="running", attempts=1, node="n3",
                  started_at=self._us(2), token=self._us(2), exclusive_key="reconcile")  # fmt: skip

    def _paused(self) -> None:
        self._at(minutes=40)
        self._app.schedules.pause(
            "invoices:us", by="user:ann", reason="the tax rates change today", until=NOW + timedelta(hours=9)
        )
        table = self._tables.schedule
        for job, minutes in (
            ("settle", 22 * 60 + 48),
            ("quotes", 1),
            ("reconcile", 3),
            ("orders", 3),
            ("invoices:eu", 22 * 60 + 18),
        ):
            soon = us(NOW + timedelta(minutes=minutes))
            values = {"next_due_at": soon, "planned_through": us(NOW)}
            _change(self._app, update(table).where(table.c.id == job).values(values))

    # -- rows --------------------------------------------------------------------------------------------------------

    def _run(self, job: str, schedule: str, due: datetime, **values: Any) -> None:
        at = us(due)
        row = {"job": job, "type": "periodic", "schedule": schedule, "first_due_at": at, "due_at": at, "ticks": 1}
        row |= {"origin_key": f"tick {schedule} {at}", "params": "{}", "params_hash": "", "priority": 0, "token": 0}
        row |= {"queue": "default", "failures": 0, "crashes": 0, "created_at": at, "available_at": at, "generation": 12}
        _change(self._app, insert(self._tables.run).values(row | values).inline())

    def _set(self, run_id: int, **values: Any) -> None:
        _change(self._app, update(self._tables.run).where(self._tables.run.c.id == run_id).values(values))

    def _note(self, at: int, what: str, **values: Any) -> None:
        _change(self._app, insert(self._tables.journal).values({"at": at, "what": what, **values}).inline())

    def _at(self, *, minutes: int) -> None:
        self._clock.at = NOW - timedelta(minutes=minutes)

    @staticmethod
    def _us(minutes: int, seconds: int = 0) -> int:
        return us(NOW - timedelta(minutes=minutes) + timedelta(seconds=seconds))
