"""One partition: what it goes on from, how large its chunks are, and items that end their worker."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from fencepost.bulk import keyset
from fencepost.bulk.checkpoint import CARELESS, Care, CheckpointMark, Counts
from fencepost.core.runs import StopReason
from fencepost.engine.run import current_run
from fencepost.testing import until
from tests.bulk.families import lost_parent
from tests.bulk.orders import (
    QUERY,
    Died,
    Shop,
    Told,
    again,
    hand,
    kind,
    on_every_database,
    place,
    played,
    result_of,
    settling,
    shop,
)

__all__ = ["kind", "place", "shop"]


class TestItemsThatEndTheirWorker:
    @on_every_database
    def test_one_is_isolated_and_put_aside_and_all_others_land_once(self, shop: Shop) -> None:
        shop.fill(range(1, 301))
        deaths: list[int] = []

        def process(order: Any) -> Any:
            if order.id == 170:
                deaths.append(order.id)
                raise Died
            return order

        row = played(shop, shop.bulk(settling(process), chunk=200, skip_limit=1))
        assert row.state == "succeeded"
        assert shop.settled() == [n for n in range(1, 301) if n != 170]
        assert shop.letters() == [("id=170", "its worker was lost 3 times while it processed only this item")]
        assert len(deaths) == 6  # twice in the whole chunk, once among a few, three times alone
        assert row.crashes == 6

    def test_losses_count_at_the_place_whoever_is_lost_there(self, shop: Shop) -> None:
        """A part that was lost is taken back by the parent, and ends that as well: it was once in the part's hands."""
        shop.fill(range(1, 41))
        deaths: list[int] = []

        def process(order: Any) -> Any:
            if order.id == 33:
                run = current_run()
                assert run is not None
                deaths.append(run.id)
                raise Died
            return order

        handle = shop.bulk(settling(process), partitions=2, skip_limit=1, crash_limit=1, chunk=20)
        run_id, part = lost_parent(shop, handle)
        with hand(shop) as one:
            one.end(part, one.execute(part))
            row = one.play(run_id, jobs=[handle.name])
        assert row.state == "succeeded"
        assert shop.settled() == [n for n in range(1, 41) if n != 33]
        assert deaths == [part.run_id, run_id, run_id]  # the last of them alone

    def test_a_limit_of_zero_skips_fails_clearly(self, shop: Shop) -> None:
        shop.fill(range(1, 6))

        def process(order: Any) -> Any:
            if order.id == 2:
                raise Died
            return order

        row = played(shop, shop.bulk(settling(process), crash_limit=1))
        assert row.state == "dead"
        assert "item id=2 failed" in (row.error or "")
        assert "its worker was lost" in (row.error or "")
        assert shop.settled() == [1]

    def test_losses_that_are_nobodys_fault_put_nothing_aside(self, shop: Shop) -> None:
        shop.fill(range(1, 101))
        lives = iter(range(4))

        def process(order: Any) -> Any:
            if order.id in (5, 55) and next(lives, None) is not None:
                raise Died
            return order

        row = played(shop, shop.bulk(settling(process), chunk=50))
        assert row.state == "succeeded"
        assert shop.settled() == list(range(1, 101))
        assert shop.letters() == []


class TestCare:
    def test_two_losses_at_a_place_make_it_careful(self) -> None:
        once = CARELESS.after_losses(1, chunk=2000)
        assert once == Care(lost=1)
        assert once.after_items(2000) == CARELESS
        assert once.after_losses(1, chunk=2000) == Care(0, 2000, 32)

    def test_a_loss_among_few_narrows_it_down_and_what_lands_makes_it_less_careful(self) -> None:
        care = Care(0, 2000, 32).after_items(32)
        assert care == Care(0, 1968, 32)
        narrow = care.after_losses(1, chunk=2000)
        assert narrow == Care(0, 32, 1)
        assert narrow.after_losses(1, chunk=2000) == Care(1, 32, 1)
        assert narrow.after_items(31) == Care(0, 1, 1)
        assert narrow.after_items(32) == CARELESS

    def test_it_survives_the_checkpoint(self) -> None:
        mark = CheckpointMark(3, [7], run=1, crashes=2, care=Care(1, 32, 1), more={"slices": []})
        assert CheckpointMark.from_json(mark.to_json()) == mark
        assert CheckpointMark.from_json(CheckpointMark().to_json()) == CheckpointMark()


class TestTheCheckpoint:
    @on_every_database
    def test_of_another_shape_is_refused_and_nothing_is_written(self, shop: Shop) -> None:
        shop.fill(range(1, 31))

        def process(order: Any) -> Any:
            if order.id == 15:
                raise ValueError("no")
            return order

        row = played(shop, shop.bulk(settling(process), name="settle"))
        assert row.state == "dead"
        later = shop.another_app()
        other = QUERY.replace("amount", "amount + 0 AS amount")
        shop.bulk(settling(read=keyset(other, key="id")), name="settle", app=later)
        row = again(shop, row, later)
        later.close()
        assert (row.state, row.attempts) == ("dead", 1)
        assert "was made by other code" in (row.error or "")
        assert "Nothing was written" in (row.error or "")
        assert shop.settled() == list(range(1, 15))

    def test_is_what_a_run_that_was_lost_goes_on_from(self, shop: Shop) -> None:
        shop.fill(range(1, 51))
        seen: list[int] = []
        deaths = iter([35])

        def process(order: Any) -> Any:
            seen.append(order.id)
            if order.id == 35 and next(deaths, None):
                raise Died
            return order

        row = played(shop, shop.bulk(settling(process)))
        assert (row.state, row.attempts) == ("succeeded", 2)
        assert seen == [*range(1, 36), *range(31, 51)]
        assert shop.settled() == list(range(1, 51))
        assert result_of(row)["read"] == 50

    def test_counts_of_nothing_are_nothing(self, shop: Shop) -> None:
        row = played(shop, shop.bulk(settling()))
        assert row.state == "succeeded"
        assert result_of(row) == Counts()._asdict()


class TestSizes:
    @pytest.mark.parametrize(
        ("words", "most"),
        [({"chunk": 25}, 25), ({"chunk": 1000, "chunk_bytes": "4kB"}, 40), ({"chunk": 1000, "memory": "49MB"}, 1000)],
        ids=["items", "bytes", "memory"],
    )
    def test_a_chunk_is_as_large_as_its_limits_allow(self, shop: Shop, words: dict[str, Any], most: int) -> None:
        shop.fill(range(1, 501))
        sizes: list[int] = []

        class Settle(settling()):  # type: ignore[misc]
            def write(self, tx: Any, items: Any) -> None:
                sizes.append(len(items))
                super().write(tx, items)

        row = played(shop, shop.bulk(Settle, read_ahead=0, **words))
        assert row.state == "succeeded"
        assert sum(sizes) == 500
        assert max(sizes[1:]) <= most
        assert len(sizes) > 2

    def test_chunks_become_small_where_each_takes_long(self, shop: Shop) -> None:
        shop.fill(range(1, 151))
        sizes: list[int] = []

        class Settle(settling()):  # type: ignore[misc]
            def write(self, tx: Any, items: Any) -> None:
                sizes.append(len(items))
                time.sleep(0.001 * len(items))  # what it takes is what is tested
                super().write(tx, items)

        played(shop, shop.bulk(Settle, read_ahead=0, chunk=1000, chunk_time="20ms"))
        assert sizes[0] == 100
        assert sizes[1] <= 20


class TestStopping:
    @pytest.mark.parametrize("why", [StopReason.LOST, StopReason.CANCELLED, StopReason.SHUTDOWN])
    def test_a_run_that_is_told_to_stop_stops_between_chunks(self, shop: Shop, why: StopReason) -> None:
        shop.fill(range(1, 101))
        told = Told()

        def process(order: Any) -> Any:
            if order.id == 25:
                told.why = why
            return order

        shop.bulk(settling(process)).enqueue()
        with hand(shop, standing=told) as one:
            claimed = one.claim()
            assert claimed is not None
            outcome = one.execute(claimed)
        ends = {StopReason.LOST: "lost", StopReason.CANCELLED: "cancelled", StopReason.SHUTDOWN: "interrupted"}
        assert outcome.how == ends[why]
        assert shop.settled() == list(range(1, 21))

    def test_a_suspended_run_waits_and_then_goes_on(self, shop: Shop) -> None:
        shop.fill(range(1, 41))
        told = Told()
        has_seen = threading.Event()

        def process(order: Any) -> Any:
            if order.id == 25:
                told.is_suspended = True
                has_seen.set()
            return order

        run_id = shop.bulk(settling(process)).enqueue().run_id
        with hand(shop, standing=told) as one:
            worker = threading.Thread(target=lambda: one.play(run_id))
            worker.start()
            assert has_seen.wait(10)
            until(lambda: shop.settled() == list(range(1, 21)), 5, "what was before has landed")
            worker.join(0.2)
            assert worker.is_alive()
            told.is_suspended = False
            worker.join(10)
            assert not worker.is_alive()
        assert shop.settled() == list(range(1, 41))
