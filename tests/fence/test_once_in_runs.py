"""`run.once` and its like inside of real runs: the ledger's own tables, with nothing set up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

import fencepost
from fencepost import App, Run
from fencepost.ledger.ledger import open_ledger
from fencepost.ledger.migrations import migrate
from fencepost.testing import until
from tests.fence.effect_places import RUNTIME, effects_url


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    url = effects_url(request.param, request, tmp_path)
    if request.param != "sqlite":
        ledger = open_ledger(url, RUNTIME)
        migrate(ledger)
        ledger.close()
    made = App(url, ttl="10s")
    yield made
    made.close()


def rows(app: App, sql: str) -> list[Any]:
    def work(cursor: Any) -> list[Any]:
        cursor.execute(sql.replace("T_", app.ledger.tables.prefix))
        return [tuple(row) for row in cursor.fetchall()]

    return app.ledger.read(work)


def finished(app: App, *runs: int) -> list[Any]:
    until(
        lambda: all(app.operations.run(each).state in ("succeeded", "dead") for each in runs), 30, what="the runs ended"
    )
    assert [app.operations.run(each).error for each in runs] == [None] * len(runs)
    return [app.operations.run(each).result for each in runs]


def test_of_two_runs_one_does_it_and_the_row_says_which(app: App) -> None:
    @app.job(overlap="allow")
    def settle(run: Run) -> bool:
        def work(tx: Any) -> bool:
            return run.once("settle:1", tx, expires="90d")

        return run.in_transaction(work)

    with app.running(grace="5s"):
        runs = [app.enqueue("settle").run_id for _ in range(4)]
        results = finished(app, *runs)
    assert sorted(results) == [False, False, False, True]
    winner = runs[results.index(True)]
    [(job, run_id, token, expires_at, created_at)] = rows(
        app, "SELECT job, run_id, token, expires_at, created_at FROM T_idempotency_key"
    )
    assert (job, run_id) == ("settle", winner)
    assert token > 0
    assert 0 <= expires_at - created_at - 90 * 86_400_000_000 < 1_000_000


def test_an_idempotent_function_and_a_sequence_find_the_tables_of_the_runs_ledger(app: App) -> None:
    feed = fencepost.Sequence("feed")

    @fencepost.idempotent(key="settle:{order}")
    def settle_order(tx: Any, order: int) -> int:
        last = feed.last(tx)
        feed.advance(tx, after=last, to=(last or 0) + 1)
        return (last or 0) + 1

    @app.job
    def settle(run: Run) -> list[Any]:
        with run.transaction() as tx:
            return [settle_order(tx, 1), settle_order(tx, 1), settle_order(tx, 2), feed.last(tx)]

    with app.running(grace="5s"):
        results = finished(app, app.enqueue("settle").run_id)
    assert results == [[1, 1, 2, 2]]
    assert {job for (job,) in rows(app, "SELECT job FROM T_idempotency_key")} == {"settle"}


def test_a_key_goes_with_the_transaction_that_failed(app: App) -> None:
    answers: list[bool] = []

    @app.job(retries=1, backoff="0s")
    def settle(run: Run) -> None:
        with run.transaction() as tx:
            answers.append(run.once("settle:1", tx))
            tx.execute(text("SELECT 1"))
            if run.attempt == 1:
                raise ZeroDivisionError

    with app.running(grace="5s"):
        finished(app, app.enqueue("settle").run_id)
    assert answers == [True, True]
