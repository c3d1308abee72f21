"""A partition is done with its very last item, and not with a part of its last chunk."""

from __future__ import annotations

from typing import Any

from tests.bulk.orders import Shop, again, kind, on, place, played, settling, shop

__all__ = ["kind", "place", "shop"]


@on(("sqlite", "own"))
def test_a_run_that_ends_within_its_last_chunk_goes_on_within_it(shop: Shop) -> None:
    shop.fill(range(1, 9))

    def poisoned(order: Any) -> Any:
        if order.id == 6:
            raise ValueError("it cannot be settled yet")
        return order

    row = played(shop, shop.bulk(settling(poisoned), name="settle"))
    assert row.state == "dead"
    assert shop.settled() == [1, 2, 3, 4, 5]

    later = shop.another_app()
    shop.bulk(settling(), name="settle", app=later)
    row = again(shop, row, later)
    later.close()
    assert row.state == "succeeded"
    assert shop.settled() == list(range(1, 9))
