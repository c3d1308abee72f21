"""The third story: at the month's end the schedule and an operator settle the same orders at the same moment.

The schedule begins to settle the month. At that moment an operator, who has heard of a delay, starts the job that
processes the month again. Both look for orders that are not settled, and both find all of them: here a barrier makes
sure of it, where in life it takes a while until it happens.

*Unprotected*, each pays what it found: every order is paid twice. *Protected* with ``--how once`` (the default), each
order is paid under a key that belongs to the order, whoever pays it. With ``--how take`` the orders are shared out:
each takes rows that the other has not taken. Either way both runs are in the history, with parameters and hashes.
"""

from __future__ import annotations

import threading
from typing import Any

import stage
from sqlalchemy import Connection, text
from stage import Scene, until

from fencepost import App, Run, work_key

ORDERS = 8
MONTH = "2026-01"
OPEN = "SELECT id FROM story_order WHERE month = :month AND settled_by IS NULL ORDER BY id"
TAKEN = "SELECT id FROM story_order WHERE month = %s AND settled_by IS NULL ORDER BY id"
PAY = "INSERT INTO story_settlement (order_id, run_id, token) VALUES (:order_id, :run_id, :token)"
CLOSE = "UPDATE story_order SET settled_by = :run_id WHERE id = :order_id"
TWICE = "SELECT order_id FROM story_settlement GROUP BY order_id HAVING count(*) > 1"


class Settlement:
    """What both jobs do: find the open orders of the month, and pay them."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._both_are_here = threading.Barrier(2)
        self._both_have_looked = threading.Barrier(2)

    def __call__(self, run: Run, month: str) -> None:
        if not self._scene.is_protected:
            self._plainly(run, month)
        elif self._scene.how == "take":
            self._sharing(run, month)
        else:
            self._each_once(run, month)

    def _plainly(self, run: Run, month: str) -> None:
        for order_id in self._found(month):
            with self._scene.engine.begin() as tx:
                self._pay(tx, run, order_id)

    def _each_once(self, run: Run, month: str) -> None:
        for order_id in self._found(month):

            def pay(tx: Connection, order_id: int = order_id) -> None:
                if run.once(work_key("settle", order_id, month), tx):
                    self._pay(tx, run, order_id)

            run.in_transaction(pay)

    def _sharing(self, run: Run, month: str) -> None:
        """Each takes half of what it finds, while the other holds its own."""
        self._both_are_here.wait(stage.DEADLINE_S)
        with run.transaction() as tx:
            rows = run.take(tx, TAKEN, params=[month], limit=ORDERS // 2)
            self._both_have_looked.wait(stage.DEADLINE_S)
            for (order_id,) in rows:
                self._pay(tx, run, order_id)

    def _found(self, month: str) -> list[int]:
        found = [order_id for (order_id,) in self._scene.ask(OPEN, month=month)]
        self._both_have_looked.wait(stage.DEADLINE_S)
        return found

    def _pay(self, tx: Connection, run: Run, order_id: int) -> None:
        values = {"order_id": order_id, "run_id": run.id, "token": run.token}
        tx.execute(text(PAY), values)
        tx.execute(text(CLOSE), values)


def declare(app: App, scene: Scene) -> None:
    settlement = Settlement(scene)

    @app.job(type="scheduled", retries=0)
    def settle_month(run: Run, month: str) -> None:
        settlement(run, month)

    @app.job(retries=0, isolation="read committed" if scene.how == "take" else None)
    def process_again(run: Run, month: str, ticket: str) -> None:
        settlement(run, month)


def tell(scene: Scene) -> stage.Claims:
    orders = ", ".join(f"({number}, '{MONTH}')" for number in range(1, ORDERS + 1))
    scene.do(
        "CREATE TABLE story_order (id BIGINT PRIMARY KEY, month VARCHAR(7), settled_by BIGINT)",
        "CREATE TABLE story_settlement (n SERIAL, order_id BIGINT, run_id BIGINT, token BIGINT)",
        f"INSERT INTO story_order (id, month) VALUES {orders}",
    )
    stage.migrate(scene.ledger_url)
    app = stage.app_on(scene, scene.ledger_url, ttl="10s")
    declare(app, scene)
    with app.running():
        stage.make_due(app, "settle_month", {"month": MONTH})
        asked = {"month": MONTH, "ticket": "T-17"}
        app.operations.trigger("process_again", asked, by="ann", reason="the bank was late")
        until(
            lambda: len(app.operations.runs(states=["succeeded", "dead"])) == 2,
            stage.DEADLINE_S,
            "both runs have ended",
        )
    history = app.operations.runs()
    app.close()
    return _claims(scene, history)


def _claims(scene: Scene, history: list[Any]) -> stage.Claims:
    paid = scene.ask("SELECT order_id, run_id FROM story_settlement ORDER BY n")
    for row in reversed(history):
        orders = sorted(order_id for order_id, run_id in paid if run_id == row.id)
        who = row.requested_by or "the schedule"
        scene.say(f"run {row.id}, {row.job} {row.params} ({row.request_hash[:12]}…), {row.state}, paid {orders}", who)
    return {
        "every order is settled": scene.ask(OPEN, month=MONTH) == [],
        "each order is settled once": scene.ask(TWICE) == [],
        "both runs are in the history, and succeeded": [row.state for row in history] == ["succeeded"] * 2,
        "with their parameters, and hashes that differ": len({row.request_hash for row in history}) == 2
        and all(row.params["month"] == MONTH for row in history),
    }


if __name__ == "__main__":
    stage.main(__doc__, tell, ways=("once", "take"))
