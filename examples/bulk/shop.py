"""The application of docs/tutorial-bulk.md: orders are settled, in chunks, by as many nodes as there are.

::

    python shop.py 100000                     # make the tables: so many orders, five of which have no amount
    fencepost run shop:app                    # a node; start another one in a second terminal
    fencepost trigger SettleOrders --reason 'to see it work'
"""

from __future__ import annotations

import os
import sys
from typing import Any

from sqlalchemy import create_engine, text

from fencepost import App
from fencepost.bulk import keyset

app = App(os.environ.get("FENCEPOST_URL", "sqlite:///fencepost.db"))
shop = create_engine(os.environ.get("SHOP_URL", "sqlite:///shop.db"))


@app.bulk(chunk=1000, partitions=4, skip_limit=10, target=shop)
class SettleOrders:
    """Book what each paid order brings in, less our fee."""

    read = keyset(
        "SELECT id, customer, cents FROM orders WHERE paid = 1 AND id > :after ORDER BY id LIMIT :limit", key="id"
    )

    def process(self, order: Any) -> dict[str, Any] | None:
        """Work out what is left of an order. None leaves it out."""
        if order.cents is None:
            raise ValueError(f"order {order.id} has no amount")
        if order.cents == 0:
            return None
        return {"order_id": order.id, "customer": order.customer, "cents": order.cents - order.cents // 50}

    def write(self, tx: Any, bookings: list[dict[str, Any]]) -> None:
        """Book a chunk, in the transaction that also moves its checkpoint."""
        tx.execute(text("INSERT INTO booking VALUES (:order_id, :customer, :cents)"), bookings)


def prepare(count: int, broken: int = 5) -> None:
    """Make the tables anew."""
    step = max(count // broken, 1)
    orders = [
        {"id": number, "customer": number % 97, "cents": None if number % step == step // 2 else number % 1000}
        for number in range(1, count + 1)
    ]
    with shop.begin() as tx:
        for table in ("orders", "booking"):
            tx.execute(text(f"DROP TABLE IF EXISTS {table}"))
        tx.execute(text("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, cents INTEGER, paid INTEGER)"))
        tx.execute(text("CREATE TABLE booking (order_id INTEGER PRIMARY KEY, customer INTEGER, cents INTEGER)"))
        tx.execute(text("INSERT INTO orders VALUES (:id, :customer, :cents, 1)"), orders)
    print(f"{count} orders, {sum(each['cents'] is None for each in orders)} of them without an amount")


if __name__ == "__main__":
    prepare(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
