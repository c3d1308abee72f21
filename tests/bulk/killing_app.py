"""An application with an order that ends whichever process settles it."""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy import text

from fencepost import App
from fencepost.bulk import keyset

KILLS = 33
app = App()


@app.bulk(chunk=20, partitions=2, skip_limit=1, crash_limit=1, backoff="1ms..2ms")
class Settle:
    """Settles orders, but for one."""

    read = keyset("SELECT id, amount FROM orders WHERE id > :after ORDER BY id LIMIT :limit", key="id")

    def process(self, order: Any) -> Any:
        if order.id == KILLS:
            os._exit(1)
        return order

    def write(self, tx: Any, orders: Any) -> None:
        tx.execute(text("INSERT INTO settled VALUES (:id, :amount)"), [order._asdict() for order in orders])
