"""A shop with orders to be settled, in the ledger's own database or in another one, and a hand that executes runs.

The hand claims and ends runs as a node does, one at a time, in the test's own thread: what happens is in the test.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Engine, text

from fencepost import App
from fencepost.app.records import RunRecord
from fencepost.bulk import keyset
from fencepost.core.overlap import START, WAIT
from fencepost.core.runs import Claim, StopReason
from fencepost.engine.context import UNSTOPPED, RunStanding
from fencepost.engine.invoke import invoke
from fencepost.engine.job_policies import JobPolicies
from fencepost.engine.run import Run
from fencepost.engine.runners.outcome import How, Outcome
from fencepost.ledger.claiming import claim
from fencepost.ledger.finishing import finish
from fencepost.ledger.urls import LedgerUrl

NODE = "0" * 32
QUERY = "SELECT id, amount FROM orders WHERE id > :after ORDER BY id LIMIT :limit"
QUICK = {"retry_backoff": "1ms..2ms", "backoff": "1ms..2ms"}
PLACES = tuple((kind, place) for kind in ("sqlite", "postgresql", "mysql") for place in ("own", "other"))


def on(*places: tuple[str, str]) -> Any:
    """Run a test at these places; without it, a test runs where everything is in one file of SQLite."""
    return pytest.mark.parametrize("place", places, ids="-".join)


on_every_database = on(*PLACES)
on_servers = on(*PLACES[2:])
on_postgresql = on(*PLACES[2:4])


class Died(BaseException):
    """Raised where a worker is to die: whoever executes takes the run for crashed."""


class Shop:
    """Orders, a table of those that are settled, and an application."""

    def __init__(self, ledger_url: str, engine: Engine, *, is_own: bool, kind: str) -> None:
        self.url = ledger_url
        self.engine = engine
        self.is_own = is_own
        self.kind = kind
        self.app = self.another_app()
        for table in ("orders", "settled"):
            self.change(f"DROP TABLE IF EXISTS {table}")
            self.change(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, amount INTEGER)")

    def another_app(self, **settings: Any) -> App:
        """The application of another process, or of the next deploy."""
        return App(self.url, ttl="5s", **settings)

    @property
    def target(self) -> dict[str, Any]:
        """Where bulk jobs read and write, as options."""
        return {} if self.is_own else {"target": self.engine}

    def bulk(self, given: Any, *schedules: Any, app: App | None = None, **words: Any) -> Any:
        """Declare a bulk job that reads and writes here, with short back-offs."""
        return (app or self.app).bulk(*schedules, **{"chunk": 10, **QUICK, **self.target, **words})(given)

    def change(self, sql: str, values: Any = None) -> int:
        with self.engine.begin() as connection:
            return connection.execute(text(sql), values).rowcount

    def rows(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(sql), values)]

    def fill(self, ids: Iterable[int]) -> None:
        self.change("INSERT INTO orders VALUES (:id, :amount)", [{"id": each, "amount": each * 10} for each in ids])

    def settled(self) -> list[int]:
        return [row[0] for row in self.rows("SELECT id FROM settled ORDER BY id")]

    def effects_table(self, name: str) -> str:
        return f"{self.app.ledger.url.prefix}{name}"

    def letters(self) -> list[tuple[str, str]]:
        """The items that were put aside, with why."""
        return self.rows(f"SELECT item_key, error FROM {self.effects_table('dead_letter')} ORDER BY id")

    def marks(self) -> dict[str, dict[str, Any]]:
        """What the checkpoints say."""
        rows = self.rows(f"SELECT name, position FROM {self.effects_table('checkpoint')} ORDER BY name")
        return {name: json.loads(position) for name, position in rows}

    def close(self) -> None:
        self.app.close()
        self.engine.dispose()


class Hand:
    """Executes runs, one at a time."""

    def __init__(self, app: App, standing: RunStanding = UNSTOPPED) -> None:
        self.app = app
        self.standing = standing
        self._connection = app.ledger.connect("hand")
        self._endings = JobPolicies(app.jobs, random=lambda: 0.0, emit=lambda _: None)

    def claim(self, jobs: Iterable[str] | None = None) -> Claim | None:
        found = claim(
            self._connection,
            node=NODE,
            jobs=list(jobs or self.app.jobs),
            queues=["default"],
            limit=1,
            decide=lambda job, *, key_is_taken, **_: WAIT if key_is_taken else START,
        )
        return next(iter(found.claims), None)

    def run(self, claimed: Claim) -> Run:
        return Run(self.app.jobs[claimed.job], claimed, self.context)

    @property
    def context(self) -> Any:
        return replace(self.app.worker_context(), standing=self.standing)

    def execute(self, claimed: Claim) -> Outcome:
        outcome = invoke(self.app.jobs[claimed.job], claimed, self.context)
        if outcome.error_code is not None and outcome.error_code.endswith("Died"):
            outcome = Outcome(claimed.run_id, claimed.attempt, claimed.token, str(How.CRASHED), error="it died")
        return outcome

    def end(self, claimed: Claim, outcome: Outcome) -> None:
        ending = self._endings.of(claimed, outcome)
        if ending is not None:
            finish(self._connection, [ending])

    def play(self, run_id: int, *, jobs: Iterable[str] | None = None, most: int = 60) -> RunRecord:
        """Execute what is due until a run has ended."""
        for _ in range(most):
            row = self.app.operations.run(run_id)
            if row.state in ("succeeded", "dead", "cancelled", "skipped"):
                return row
            claimed = self.claim(jobs)
            if claimed is not None:
                self.end(claimed, self.execute(claimed))
        raise AssertionError(f"run {run_id} has not ended: {self.app.operations.run(run_id)}")

    def close(self) -> None:
        self._connection.rest()


class Told:
    """A standing that a test sets."""

    def __init__(self) -> None:
        self.why: StopReason | None = None
        self.is_suspended = False

    def stopped(self, run_id: int, token: int) -> StopReason | None:
        return self.why

    def suspended(self, run_id: int, token: int) -> bool:
        return self.is_suspended


def played(shop: Shop, handle: Any, **params: Any) -> RunRecord:
    """Ask for a run and execute it, and its parts, by one hand."""
    with hand(shop) as one:
        return one.play(handle.enqueue(**params).run_id)


def again(shop: Shop, row: RunRecord, app: App | None = None) -> RunRecord:
    """Repeat a run as an operator does, and execute that."""
    with hand(shop, app) as one:
        return one.play(one.app.operations.retry(row.id, by="ann"))


@contextmanager
def hand(shop: Shop, app: App | None = None, standing: RunStanding = UNSTOPPED) -> Iterator[Hand]:
    with closing(Hand(app or shop.app, standing)) as one:
        yield one


def result_of(row: RunRecord) -> dict[str, Any]:
    assert row.result is not None, row
    return dict(row.result)


def settling(process: Callable[[Any], Any] | None = None, **more: Any) -> type:
    """A class as users write it: it settles orders; `process` takes an order, without self."""

    class Settle:
        read = keyset(QUERY, key="id")

        def write(self, tx: Any, items: Any) -> None:
            tx.execute(
                text("INSERT INTO settled VALUES (:id, :amount)"), [{"id": i.id, "amount": i.amount} for i in items]
            )

    if process is not None:
        Settle.process = staticmethod(process)  # type: ignore[attr-defined]
    for name, value in more.items():
        setattr(Settle, name, value)
    return Settle


@pytest.fixture
def place() -> tuple[str, str]:
    """Of which kind the database of effects is, and whether it is the ledger's own."""
    return "sqlite", "own"


@pytest.fixture
def kind(place: tuple[str, str]) -> str:
    """For the fixtures of all tests of bulk work."""
    return place[0]


@pytest.fixture
def shop(place: tuple[str, str], request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """A shop whose effects are in the ledger's own database, or in one of this kind while the ledger is a file."""
    if place[1] == "own":
        url = request.getfixturevalue("ledger_url")
        made = Shop(url, sqlalchemy.create_engine(LedgerUrl.parse(url).sqlalchemy()), is_own=True, kind=place[0])
    else:
        shutil.copyfile(request.getfixturevalue("migrated_file"), tmp_path / "ledger.db")
        made = Shop(f"sqlite:///{tmp_path}/ledger.db", request.getfixturevalue("engine"), is_own=False, kind=place[0])
    yield made
    made.close()
