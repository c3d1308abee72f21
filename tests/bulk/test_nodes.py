"""Bulk work on real nodes: worker processes that items end, nodes that leave in the middle, ledgers that are away."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from fencepost import App
from fencepost.testing import until
from fencepost.threaded import ThreadedRuntime
from testbed.proxy import Proxy
from tests.bulk import killing_app
from tests.bulk.orders import Shop, hand, kind, place, result_of, settling, shop
from tests.cluster.nodes import nodes

__all__ = ["kind", "place", "shop"]

RUNTIME = ThreadedRuntime()


def test_an_item_that_ends_its_process_is_put_aside_and_the_job_ends_by_itself(shop: Shop, tmp_path: Path) -> None:
    shop.fill(range(1, 41))
    with nodes(
        1, shop.url, "--workers", "2", folder=tmp_path, app="tests.bulk.killing_app:app", env={"FENCEPOST_TTL": "5s"}
    ):
        run_id = shop.app.enqueue("Settle").run_id
        row = until(lambda: _ended(shop.app, run_id), 60, "the run has ended")
    assert row.state == "succeeded"
    assert shop.settled() == [n for n in range(1, 41) if n != killing_app.KILLS]
    assert [key for key, _ in shop.letters()] == [f"id={killing_app.KILLS}"]
    counts = result_of(row)
    assert (counts["read"], counts["written"], counts["skipped"]) == (40, 39, 1)


def test_a_node_that_leaves_in_the_middle_of_a_chunk_leaves_it_to_the_next(shop: Shop) -> None:
    shop.fill(range(1, 41))
    inside, go = threading.Event(), threading.Event()

    def process(order: Any) -> Any:
        if order.id == 15 and not inside.is_set():
            inside.set()
            go.wait(20)
        return order

    run_id = shop.bulk(settling(process)).enqueue().run_id
    next_app = shop.another_app()
    shop.bulk(settling(), app=next_app)
    with shop.app.running(grace="0s"):
        assert inside.wait(10)
    with next_app.running():
        row = until(lambda: _ended(next_app, run_id), 20, "the next node has done it")
        go.set()  # the old thread goes on, and finds that it may not
    assert (row.state, row.attempts) == ("succeeded", 2)
    assert shop.settled() == list(range(1, 41))
    assert result_of(row)["written"] == 40
    next_app.close()


@pytest.mark.parametrize("place", [("postgresql", "own")], ids="-".join)
def test_while_the_ledger_is_away_chunks_land_elsewhere_and_the_parent_waits(
    shop: Shop, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The ledger is on PostgreSQL behind a proxy, the orders are in a file: one is away while the other is not."""
    effects = request.getfixturevalue("effects_file")
    target = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/orders.db")
    (tmp_path / "orders.db").write_bytes(effects.read_bytes())
    there = Shop(shop.url, target, is_own=False, kind="sqlite")
    there.fill(range(1, 101))
    server = request.getfixturevalue("postgres")
    away_at: list[int] = []
    with Proxy(server.host, server.port) as proxy:
        there.app = App(proxy.through(shop.url), ttl="5s")

        def process(order: Any) -> Any:
            if order.id == 5:
                away_at.append(order.id)
                proxy.refuse()
                proxy.cut()
                threading.Timer(0.7, proxy.flow).start()
            return order

        run_id = there.bulk(settling(process), partitions=4).enqueue().run_id
        with hand(there) as one:
            claimed = one.claim()
            assert claimed is not None
            outcome = one.execute(claimed)
            one.end(claimed, outcome)
            assert (outcome.how, outcome.error) == ("succeeded", None)
        assert there.app.operations.run(run_id).state == "succeeded"
        there.close()
    assert away_at == [5]
    assert there.settled() == list(range(1, 101))


def _ended(app: App, run_id: int) -> Any:
    row = app.operations.run(run_id)
    return row if row.state in ("succeeded", "dead", "cancelled", "skipped") else None
