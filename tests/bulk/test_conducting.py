"""A parent and its parts: who does which partition, and what becomes of the others when one of them ends."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from fencepost.bulk import keyset, watching
from fencepost.core.runs import StopReason
from fencepost.engine.run import current_run
from fencepost.engine.runners.outcome import How, Outcome
from fencepost.ledger.parts import parts_of
from fencepost.testing import until
from tests.bulk.families import beside, lost_parent, part_of
from tests.bulk.orders import (
    QUERY,
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

HASHED = "SELECT id, amount FROM orders WHERE id % :parts = :part AND id > :after ORDER BY id LIMIT :limit"


class TestOneSlot:
    @on_every_database
    def test_eight_partitions_get_through_by_the_parent_alone(self, shop: Shop) -> None:
        shop.fill(range(1, 201))
        row = played(shop, shop.bulk(settling(), partitions=8))
        assert row.state == "succeeded"
        assert shop.settled() == list(range(1, 201))
        assert result_of(row)["written"] == 200
        parts = parts_of(shop.app.ledger, row.id)
        assert [part.state for part in parts] == ["skipped"] * 7
        assert shop.app.operations.run(parts[0].run_id).why == f"run {row.id} works on its partition itself"
        assert "partitions=8/8" in (row.progress_note or "")

    @pytest.mark.parametrize(
        "words",
        [
            {"read": keyset(HASHED, key="id"), "partitions": 4},
            {
                "read": keyset(QUERY.replace("WHERE", "WHERE amount % 20 = :rest AND"), key="id"),
                "partitions": [{"rest": 0}, {"rest": 10}],
            },
            {"partitions": 5, "over": "threads"},
        ],
        ids=["by hash", "given", "over threads"],
    )
    def test_other_ways_to_divide_read_each_item_once_too(self, shop: Shop, words: dict[str, Any]) -> None:
        shop.fill(range(1, 101))
        more = {"read": words.pop("read")} if "read" in words else {}
        row = played(shop, shop.bulk(settling(**more), **words))
        assert row.state == "succeeded"
        assert shop.settled() == list(range(1, 101))

    def test_code_on_threads_knows_its_run(self, shop: Shop) -> None:
        shop.fill(range(1, 41))
        runs: set[Any] = set()

        def process(order: Any) -> Any:
            runs.add(current_run() and current_run().id)  # type: ignore[union-attr]
            return order

        row = played(shop, shop.bulk(settling(process), partitions=4, over="threads"))
        assert runs == {row.id}


class TestManyHands:
    def test_parts_are_done_by_whoever_is_free_and_the_parent_tells_of_the_whole(self, shop: Shop) -> None:
        shop.fill(range(1, 201))
        gate = threading.Event()
        seen: dict[int, int] = {}

        def process(order: Any) -> Any:
            run = current_run()
            assert run is not None
            seen[order.id] = run.id
            if order.id <= 25 and not gate.is_set():
                gate.wait(10)  # the first partition: that of the parent
            return order

        handle = shop.bulk(settling(process), partitions=4)
        run_id = handle.enqueue().run_id
        with beside(shop, run_id) as parent, hand(shop) as other:
            while (claimed := part_of(other, handle)) is not None:
                other.end(claimed, other.execute(claimed))
                if len(shop.settled()) >= 150:
                    gate.set()
                    break
            parent.join(20)
        row = shop.app.operations.run(run_id)
        assert row.state == "succeeded"
        assert shop.settled() == list(range(1, 201))
        assert [part.state for part in parts_of(shop.app.ledger, run_id)] == ["succeeded"] * 3
        assert len(set(seen.values())) == 4
        assert result_of(row)["written"] == 200

    def test_parts_are_made_with_the_parameters_and_the_window_of_their_parent(self, shop: Shop) -> None:
        shop.fill(range(1, 41))
        seen: list[tuple[Any, ...]] = []

        class Settle(settling()):  # type: ignore[misc]
            read = keyset(QUERY.replace("WHERE", "WHERE :day >= :window_start AND"), key="id")

            def __init__(self, day: datetime, labels: list[str]) -> None:
                self.day, self.labels = day, labels

            def process(self, order: Any) -> Any:
                run = current_run()
                assert run is not None
                seen.append((run.id, self.day, tuple(self.labels), run.window.start == run.window.end))
                return order

        handle = shop.bulk(Settle, partitions=2)
        day = datetime(2030, 1, 1, tzinfo=UTC)
        run_id = handle.enqueue(day=day, labels=["a"]).run_id
        with beside(shop, run_id, until_asked=handle) as parent, hand(shop) as other:
            claimed = part_of(other, handle)
            assert claimed is not None
            assert claimed.window_end_us is None  # its parent has none
            other.end(claimed, other.execute(claimed))
            parent.go()
            parent.join(20)
        assert shop.app.operations.run(run_id).state == "succeeded"
        assert {each[1:] for each in seen} == {(day, ("a",), True)}
        assert len({each[0] for each in seen}) == 2

    def test_a_partition_that_was_given_up_fails_the_parent_when_the_others_have_ended(self, shop: Shop) -> None:
        shop.fill(range(1, 101))
        is_mended = False

        def process(order: Any) -> Any:
            if order.id == 90 and not is_mended:
                raise ValueError("ninety")
            return order

        row = played(shop, shop.bulk(settling(process), partitions=4))
        assert (row.state, row.attempts) == ("dead", 1)
        assert "1 of 4 partitions have failed (partition 3" in (row.error or "")
        assert "; the others have landed. " in (row.error or "")
        assert f"(fencepost retry {row.id})" in (row.error or "")
        assert "item id=90 failed" in (row.error or "")
        assert shop.settled() == list(range(1, 90))
        is_mended = True
        row = again(shop, row)
        assert row.state == "succeeded"
        assert shop.settled() == list(range(1, 101))
        assert result_of(row)["read"] == 100

    def test_where_all_were_given_up_nobody_is_told_of_others(self, shop: Shop) -> None:
        shop.fill(range(1, 41))

        def process(order: Any) -> Any:
            raise ValueError("none of them")

        row = played(shop, shop.bulk(settling(process), partitions=2))
        assert "2 of 2 partitions have failed" in (row.error or "")
        assert "the others have landed" not in (row.error or "")

    def test_a_part_that_died_elsewhere_is_named(self, shop: Shop) -> None:
        shop.fill(range(1, 41))

        def process(order: Any) -> Any:
            if order.id == 40:
                raise ValueError("forty")
            return order

        handle = shop.bulk(settling(process), partitions=2)
        run_id = handle.enqueue().run_id
        with beside(shop, run_id, until_asked=handle) as parent, hand(shop) as other:
            claimed = part_of(other, handle)
            assert claimed is not None
            other.end(claimed, other.execute(claimed))
            parent.go()
            parent.join(20)
        row = shop.app.operations.run(run_id)
        assert row.state == "dead"
        assert f"partition 1: run {claimed.run_id} is dead: item id=40 failed" in (row.error or "")
        assert shop.settled() == list(range(1, 40))


class TestParentsThatEnd:
    def test_cancelling_the_parent_ends_parts_that_are_queued(self, shop: Shop) -> None:
        shop.fill(range(1, 41))
        told = Told()

        def process(order: Any) -> Any:
            told.why = StopReason.CANCELLED
            return order

        run_id = shop.bulk(settling(process), partitions=3).enqueue().run_id
        with hand(shop, standing=told) as one:
            claimed = one.claim()
            assert claimed is not None
            one.end(claimed, one.execute(claimed))
        assert shop.app.operations.run(run_id).state == "cancelled"
        assert [part.state for part in parts_of(shop.app.ledger, run_id)] == ["cancelled"] * 2
        assert shop.settled() == []

    @pytest.mark.parametrize("state", ["cancelled", "dead"])
    def test_a_part_whose_parent_has_ended_ends(self, shop: Shop, state: str) -> None:
        """As when the parent's node was killed at the same time: nobody was there to call the parts off."""
        shop.fill(range(1, 41))
        handle, run_id = shop.bulk(settling(), partitions=2), 0
        with hand(shop) as one:
            run_id, part = lost_parent(shop, handle)
            shop.change(f"UPDATE {shop.app.ledger.tables.name('run')} SET state = '{state}' WHERE id = {run_id}")
            outcome = one.execute(part)
        assert (outcome.how, outcome.reason) == ("cancelled", f"its parent, run {run_id}, is {state}")
        assert shop.settled() == []

    def test_a_part_at_work_notices_that_its_parent_has_ended(self, shop: Shop, monkeypatch: Any) -> None:
        monkeypatch.setattr(watching, "EVERY_S", 0.0)
        monkeypatch.setattr(watching, "_LOOK_AT_PARENT_EVERY_S", 0.0)
        shop.fill(range(1, 81))

        def process(order: Any) -> Any:
            if order.id == 55:
                shop.change(f"UPDATE {shop.app.ledger.tables.name('run')} SET state = 'dead' WHERE id = {run_id}")
            return order

        handle = shop.bulk(settling(process), partitions=2, read_ahead=0)
        run_id, part = lost_parent(shop, handle)
        with hand(shop) as one:
            assert one.execute(part).how == "cancelled"
        assert shop.settled() == list(range(41, 61))

    @pytest.mark.parametrize("why", [StopReason.LOST, StopReason.SHUTDOWN, StopReason.TIMED_OUT])
    def test_a_parent_that_only_stops_leaves_its_parts_to_whoever_goes_on(self, shop: Shop, why: StopReason) -> None:
        shop.fill(range(1, 41))
        told = Told()

        def process(order: Any) -> Any:
            if order.id == 1:
                told.why = why
            return order

        run_id = shop.bulk(settling(process), partitions=3).enqueue().run_id
        with hand(shop, standing=told) as one:
            claimed = one.claim()
            assert claimed is not None
            one.execute(claimed)
        assert [part.state for part in parts_of(shop.app.ledger, run_id)] == ["queued"] * 2

    def test_a_parent_that_comes_back_does_no_partition_that_a_part_is_at(self, shop: Shop) -> None:
        shop.fill(range(1, 41))
        handle = shop.bulk(settling(), partitions=2)
        run_id, part = lost_parent(shop, handle)
        with beside(shop, run_id) as parent, hand(shop) as other:
            until(lambda: shop.settled() == list(range(1, 21)), 10, "the parent has done its own")
            other.end(part, other.execute(part))
            parent.join(20)
        assert shop.app.operations.run(run_id).state == "succeeded"
        assert shop.settled() == list(range(1, 41))
        assert len(parts_of(shop.app.ledger, run_id)) == 1

    def test_a_repetition_waits_for_a_part_of_the_run_before_it(self, shop: Shop) -> None:
        """The old parent is dead, an old part is still at work: the new parent leaves its partition alone."""
        shop.fill(range(1, 41))
        handle = shop.bulk(settling(), partitions=2)
        old_id, part = lost_parent(shop, handle, is_at_work=True)
        _end_as_dead(shop, old_id)
        new_id = shop.app.operations.retry(old_id, by="ann")
        with beside(shop, new_id) as parent, hand(shop) as other:
            until(lambda: parts_of(shop.app.ledger, new_id), 10, "the new parent has asked for a part")
            threading.Event().wait(0.2)  # time in which it might do it itself
            assert shop.settled() == list(range(1, 21))
            other.end(part, other.execute(part))  # it finds that its parent is dead
            parent.join(20)
        assert shop.app.operations.run(new_id).state == "succeeded"
        assert shop.settled() == list(range(1, 41))

    def test_a_repetition_takes_queued_parts_of_the_run_before_it_along(self, shop: Shop) -> None:
        shop.fill(range(1, 41))
        handle = shop.bulk(settling(), partitions=2)
        old_id, part = lost_parent(shop, handle)
        with hand(shop) as one:
            one.end(part, _crashed(part))  # the old part is queued again, for its node was lost
            _end_as_dead(shop, old_id)
            row = one.play(shop.app.operations.retry(old_id, by="ann"), jobs=[handle.name])
        assert row.state == "succeeded"
        assert shop.settled() == list(range(1, 41))
        assert shop.app.operations.run(part.run_id).state == "skipped"

    def test_a_part_that_somebody_took_back_in_vain_is_asked_for_again(self, shop: Shop) -> None:
        shop.fill(range(1, 41))
        handle = shop.bulk(settling(), partitions=2)
        run_id, part = lost_parent(shop, handle)
        with beside(shop, run_id) as parent, hand(shop) as other:
            until(lambda: shop.settled() == list(range(1, 21)), 10, "the parent has done its own")
            ended = other.execute(part._replace(run_id=-1))  # which never was: it is left alone
            assert ended.how != "succeeded"
            _end_as(shop, part.run_id, "skipped")
            parent.join(20)
        assert shop.app.operations.run(run_id).state == "succeeded"
        assert shop.settled() == list(range(1, 41))


class TestKeys:
    def test_parts_of_long_names_have_keys_of_their_own(self, shop: Shop) -> None:
        shop.fill(range(1, 41))
        row = played(shop, shop.bulk(settling(), name="n" * 110, partitions=4))
        assert row.state == "succeeded"
        assert shop.settled() == list(range(1, 41))
        assert len(shop.marks()) == 5

    def test_instances_without_an_exclusive_key_do_not_wait_for_each_others_parts(self, shop: Shop) -> None:
        handle = shop.bulk(settling(), partitions=2, overlap="allow")
        shop.fill(range(1, 41))
        keys = set()
        for _ in range(2):
            run_id, part = lost_parent(shop, handle)
            keys.add(part.exclusive_key)
            _end_as_dead(shop, run_id)
        assert len(keys) == 2


def _crashed(part: Any) -> Outcome:
    return Outcome(part.run_id, part.attempt, part.token, str(How.CRASHED))


def _end_as_dead(shop: Shop, run_id: int) -> None:
    _end_as(shop, run_id, "dead")


def _end_as(shop: Shop, run_id: int, state: str) -> None:
    tables = shop.app.ledger.tables
    shop.change(f"UPDATE {tables.name('run')} SET state = '{state}' WHERE id = {run_id}")
    shop.change(f"UPDATE {tables.name('exclusive')} SET run_id = NULL WHERE run_id = {run_id}")
