"""Runs that are repeated: what they stand for, what is complete, and what is not done twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fencepost import cron
from fencepost.bulk import keyset
from tests.bulk.orders import (
    QUERY,
    Died,
    Shop,
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

DAY = datetime(2026, 1, 2, 2, tzinfo=UTC)


class TestWhatIsComplete:
    @on_every_database
    def test_a_repetition_of_it_is_skipped_with_a_reason_and_does_nothing(self, shop: Shop) -> None:
        shop.fill(range(1, 21))
        row = played(shop, shop.bulk(settling()))
        assert row.state == "succeeded"
        second = again(shop, row)
        assert second.state == "skipped"
        assert f"was completed by run {row.id}" in (second.why or "")
        assert "fencepost bulk again" in (second.why or "")
        assert shop.settled() == list(range(1, 21))

    def test_the_same_window_is_refused_whoever_asks_for_it_and_another_is_not(self, shop: Shop) -> None:
        shop.fill(range(1, 6))
        handle = shop.bulk(settling(write=lambda _, tx, items: None), cron("0 2 * * *"))
        states = [_backfilled(shop, handle, day).state for day in (DAY, DAY, DAY + timedelta(days=1))]
        assert states == ["succeeded", "skipped", "succeeded"]

    def test_other_parameters_are_something_else(self, shop: Shop) -> None:
        shop.fill(range(1, 6))

        class Settle(settling(write=lambda _, tx, items: None)):  # type: ignore[misc]
            def __init__(self, region: str) -> None:
                self.region = region

        handle = shop.bulk(Settle, cron("0 2 * * *"), params={"region": "eu"})
        states = [_backfilled(shop, handle, DAY, params={"region": region}).state for region in ("eu", "us", "eu")]
        assert states == ["succeeded", "succeeded", "skipped"]

    def test_a_run_that_was_lost_after_its_last_commit_succeeds(self, shop: Shop) -> None:
        shop.fill(range(1, 21))
        handle = shop.bulk(settling())
        run_id = handle.enqueue().run_id
        with hand(shop) as one:
            claimed = one.claim()
            assert claimed is not None
            assert one.execute(claimed).how == "succeeded"
            one.end(claimed, one.execute(claimed)._replace(how="crashed"))  # nobody heard of it
            row = one.play(run_id)
        assert row.state == "succeeded"
        assert result_of(row)["written"] == 20
        assert shop.settled() == list(range(1, 21))


class TestWhatQueriesSee:
    def test_the_window_of_a_scheduled_run_and_its_parameters_as_they_are(self, shop: Shop) -> None:
        shop.fill(range(1, 11))
        seen: list[Any] = []

        class Settle(settling()):  # type: ignore[misc]
            read = keyset(QUERY.replace("id, amount", "id, amount, :window_start AS since, :day AS day"), key="id")

            def __init__(self, day: datetime) -> None:
                self.day = day

            def process(self, order: Any) -> Any:
                seen.append((str(order.since)[:19], str(order.day)[:19], self.day))
                return order

        handle = shop.bulk(Settle, cron("0 2 * * *"), params={"day": DAY}, partitions=2)
        assert _backfilled(shop, handle, DAY).state == "succeeded"
        assert set(seen) == {("2026-01-01 02:00:00", "2026-01-02 02:00:00", DAY)}

    def test_without_a_window_an_empty_one_that_stays_the_same_when_it_is_tried_again(self, shop: Shop) -> None:
        shop.fill(range(1, 31))
        seen: list[Any] = []

        class Settle(settling()):  # type: ignore[misc]
            read = keyset(
                QUERY.replace("id, amount", "id, amount, :window_start AS since, :window_end AS upto"), key="id"
            )

            def process(self, order: Any) -> Any:
                seen.append((order.since, order.upto))
                if order.id == 15 and len(seen) < 20:
                    raise Died
                if order.id == 25 and len(seen) < 33:
                    raise ValueError("twenty-five")
                return order

        row = played(shop, shop.bulk(Settle))
        assert row.state == "dead"
        assert again(shop, row).state == "succeeded"
        assert len(set(seen)) == 1
        assert seen[0][0] == seen[0][1]


class TestBackOff:
    def test_a_part_that_failed_is_not_taken_back_before_its_time(self, shop: Shop) -> None:
        shop.fill(range(1, 41))
        handle = shop.bulk(settling(), partitions=2, backoff="1s..1s")
        run_id = handle.enqueue().run_id
        with hand(shop) as one:
            parent = one.claim([handle.name])
            assert parent is not None
            from fencepost.bulk import conducting

            made: list[Any] = []
            careful = conducting.Parts._work

            def work(self: Any, number: int) -> None:
                if not made:  # a part fails elsewhere, while the parent is at its own
                    part = one.claim([handle.name + "/part"])
                    assert part is not None
                    made.append(part)
                    one.end(part, one.execute(part)._replace(how="failed", error="away", error_code="Away"))
                careful(self, number)

            conducting.Parts._work = work  # type: ignore[method-assign]
            try:
                one.end(parent, one.execute(parent))
            finally:
                conducting.Parts._work = careful  # type: ignore[method-assign]
        row = shop.app.run(run_id)
        part = shop.app.run(made[0].run_id)
        assert row.state == "succeeded"
        assert (part.state, part.failures) == ("skipped", 1)
        assert (part.ended_at or 0) - (part.available_at or 0) >= 0
        assert shop.settled() == list(range(1, 41))


@pytest.mark.parametrize("place", [("sqlite", "other"), ("postgresql", "other")], ids="-".join)
def test_a_plan_that_cannot_be_made_is_made_by_the_next_attempt(shop: Shop, monkeypatch: Any) -> None:
    from fencepost.bulk import patience

    monkeypatch.setattr(patience, "TRIES", 2)
    shop.fill(range(1, 21))
    engines: list[Any] = []

    def target() -> Any:
        """A database that is away at first."""
        from sqlalchemy import create_engine

        where = "sqlite:////nowhere/at/all.db" if shop.kind == "sqlite" else shop.engine.url.set(port=1)
        engines.append(create_engine(where) if not engines else shop.engine)
        return engines[-1]

    handle = shop.bulk(settling(), target=target)
    run_id = handle.enqueue().run_id
    with hand(shop) as one:
        claimed = one.claim()
        assert claimed is not None
        outcome = one.execute(claimed)
        one.end(claimed, outcome)
        assert outcome.how == "failed"
        from fencepost.bulk import places

        places._PLACES._made.clear()
        assert one.play(run_id).state == "succeeded"
    assert shop.settled() == list(range(1, 21))


def _backfilled(shop: Shop, handle: Any, day: datetime, **wishes: Any) -> Any:
    from fencepost.app.composing import publish

    publish(shop.app)
    shop.app.backfill(handle.name, day, day, by="ann", **wishes)
    newest = shop.app.runs(job=handle.name, limit=1)[0]
    with hand(shop) as one:
        return one.play(newest.id)
