"""What is done with each item: filtered, put aside, tried again, several at once; order is kept."""

from __future__ import annotations

import asyncio
from typing import Any

from fencepost import Retry, Skip
from tests.bulk.orders import Shop, kind, place, played, result_of, settling, shop

__all__ = ["kind", "place", "shop"]


class Written(settling()):  # type: ignore[misc]
    """Notes the order in which items are written."""

    order: list[int]

    def write(self, tx: Any, items: Any) -> None:
        self.order.extend(item.id for item in items)
        super().write(tx, items)


def test_none_leaves_an_item_out(shop: Shop) -> None:
    shop.fill(range(1, 31))
    row = played(shop, shop.bulk(settling(lambda order: order if order.id > 12 else None)))
    counts = result_of(row)
    assert (counts["read"], counts["written"], counts["filtered"]) == (30, 18, 12)
    assert shop.settled() == list(range(13, 31))


def test_skip_puts_an_item_aside_with_its_reason(shop: Shop) -> None:
    shop.fill(range(1, 6))

    def process(order: Any) -> Any:
        if order.id == 3:
            raise Skip("closed account")
        return order

    row = played(shop, shop.bulk(settling(process), skip_limit=1))
    assert row.state == "succeeded"
    assert shop.letters() == [("id=3", "closed account")]


def test_skips_count_against_the_limit(shop: Shop) -> None:
    shop.fill(range(1, 6))

    def process(order: Any) -> Any:
        raise Skip("not today")

    row = played(shop, shop.bulk(settling(process), skip_limit=2))
    assert row.state == "dead"
    assert "item id=3 failed, and skip_limit is 2" in (row.error or "")


def test_retry_waits_and_tries_again_up_to_the_limit(shop: Shop) -> None:
    shop.fill(range(1, 5))
    tries: dict[int, int] = {}

    def process(order: Any) -> Any:
        tries[order.id] = tries.get(order.id, 0) + 1
        if (order.id == 2 and tries[2] < 3) or order.id == 3:
            raise Retry(after="1ms", reason="busy")
        return order

    row = played(shop, shop.bulk(settling(process), skip_limit=1, retry_limit=2))
    assert row.state == "succeeded"
    assert tries == {1: 1, 2: 3, 3: 3, 4: 1}
    assert shop.letters() == [("id=3", "still failing after 3 tries: busy")]
    assert shop.settled() == [1, 2, 4]


def test_a_retry_that_fails_otherwise_is_judged_by_that(shop: Shop) -> None:
    shop.fill([1, 2])
    tries: list[int] = []

    def process(order: Any) -> Any:
        if order.id == 2:
            tries.append(2)
            raise Retry(reason="busy") if len(tries) == 1 else ValueError("broken")
        return order

    played(shop, shop.bulk(settling(process), skip_limit=1))
    assert shop.letters() == [("id=2", "broken")]


def test_a_database_that_the_code_asks_and_that_breaks_off_is_asked_again(shop: Shop) -> None:
    shop.fill([1, 2])
    tries: list[int] = []

    def process(order: Any) -> Any:
        import psycopg

        tries.append(order.id)
        if tries.count(2) == 1 and order.id == 2:
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return order

    row = played(shop, shop.bulk(settling(process)))
    assert (row.state, row.attempts) == ("succeeded", 1)
    assert tries == [1, 2, 2]


def test_many_poison_items_in_one_page_keep_the_others_in_order(shop: Shop) -> None:
    shop.fill(range(1, 101))
    order: list[int] = []

    class Settle(Written):
        def process(self, item: Any) -> Any:
            if item.id % 3 == 0:
                raise ValueError("three")
            return item

    Settle.order = order
    row = played(shop, shop.bulk(Settle, chunk=100, skip_limit=100))
    assert order == [n for n in range(1, 101) if n % 3]
    assert result_of(row)["skipped"] == 33


def test_coroutines_process_as_many_at_once_as_they_may_and_order_is_kept(shop: Shop) -> None:
    shop.fill(range(1, 41))
    order: list[int] = []
    now, most = 0, 0

    class Settle(Written):
        async def process(self, item: Any) -> Any:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.001 * (item.id % 3))
            now -= 1
            if item.id == 7:
                raise ValueError("seven")
            if item.id == 8 and 8 not in asked:
                asked.append(8)
                raise Retry(after="1ms", reason="busy")
            return None if item.id == 9 else item

    asked: list[int] = []
    Settle.order = order
    row = played(shop, shop.bulk(Settle, chunk=20, concurrency=5, skip_limit=1))
    assert row.state == "succeeded"
    assert order == [n for n in range(1, 41) if n not in (7, 9)]
    assert most == 5
    counts = result_of(row)
    assert (counts["written"], counts["filtered"], counts["skipped"]) == (38, 1, 1)
