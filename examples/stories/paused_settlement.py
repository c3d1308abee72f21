"""The first story: a settlement is paused in the middle for longer than its ttl, and another node takes it over.

It is due every five minutes and takes 4 min 50 s; here it is as long as it takes to pause it. Two instances run it. The
one at work has settled two orders of six when its machine stands still (SIGSTOP) for longer than its ttl. The other
finds it lost, and settles what is not settled. Then the first wakes up, and goes on with the list it had read.

*Unprotected*, it looks for unsettled orders and pays them, in plain transactions of its own: four orders are paid
twice. *Protected*, each order is paid in a fenced transaction, and with a key that says which order and date it was.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from datetime import date

import stage
from sqlalchemy import Connection, text
from stage import Scene, until

from fencepost import LeaseLost, Run, work_key

ORDERS = 6
PAUSED_AFTER = 2
DATE = date(2026, 1, 31)

UNSETTLED = """
    SELECT o.id FROM story_order o
    WHERE NOT EXISTS (SELECT 1 FROM story_settlement s WHERE s.order_id = o.id AND s.day = :day) ORDER BY o.id
"""
PAY = "INSERT INTO story_settlement (order_id, day, paid_by, token) VALUES (:order_id, :day, :paid_by, :token)"
TWICE = "SELECT order_id, day, count(*) FROM story_settlement GROUP BY order_id, day HAVING count(*) > 1"


# -- the application -------------------------------------------------------------------------------------------------


def settle(run: Run, scene: Scene) -> None:
    """Pay every order that is not settled."""
    orders = [order_id for (order_id,) in scene.ask(UNSETTLED, day=DATE)]
    for number, order_id in enumerate(orders):
        if number == PAUSED_AFTER:
            scene.stand_still(run)
        values = {"order_id": order_id, "day": DATE, "paid_by": scene.name, "token": run.token}
        if scene.is_protected:
            pay_once(run, values)
        else:
            with scene.engine.begin() as tx:
                tx.execute(text(PAY), values)


def pay_once(run: Run, values: dict[str, object]) -> None:
    def pay(tx: Connection) -> None:
        if run.once(work_key("settle", values["order_id"], DATE), tx):
            tx.execute(text(PAY), values)

    run.in_transaction(pay)  # committed only while this attempt is the one that may write


def take_part(scene: Scene) -> None:
    """Be one instance of the application."""
    app = stage.app_on(scene, scene.ledger_url)

    @app.job(name="settle", type="scheduled", retries=0)
    def job(run: Run) -> None:
        try:
            settle(run, scene)
        except LeaseLost as loss:
            scene.sign(f"attempt {run.attempt}", f"refused: {loss}")
            raise
        scene.sign(f"attempt {run.attempt}", "went on to the end of its list")

    with app.running():
        scene.sign(f"{scene.name} is up")
        scene.awaited("the end")


# -- what happens to it ----------------------------------------------------------------------------------------------


def tell(scene: Scene) -> stage.Claims:
    scene.do(
        "CREATE TABLE story_order (id BIGINT PRIMARY KEY)",
        "CREATE TABLE story_settlement (n SERIAL, order_id BIGINT, day DATE, paid_by VARCHAR(60), token BIGINT)",
        f"INSERT INTO story_order (id) VALUES {', '.join(f'({number})' for number in range(1, ORDERS + 1))}",
    )
    stage.migrate(scene.ledger_url)
    with ExitStack() as stack:
        nodes = stack.enter_context(stage.instances(scene, "node-1", "node-2"))
        ledger = stack.enter_context(closing(stage.app_on(scene, scene.ledger_url)))
        stage.make_due(ledger, "settle")
        name, attempt = scene.awaited("in the middle").split()
        first = nodes[name]
        second = next(node for node in nodes.values() if node is not first)
        scene.say(f"has paid {PAUSED_AFTER} of {ORDERS} orders, and stands still (SIGSTOP)", first.name)
        first.pause()
        [run] = until(lambda: ledger.operations.runs(states=["succeeded"]), stage.DEADLINE_S, "the run was taken over")
        scene.say("has taken over, and paid what was not paid", second.name)
        scene.sign("go on")
        first.resume()
        scene.say("wakes up (SIGCONT)", first.name)
        scene.say(scene.awaited(f"attempt {attempt}"), first.name)
        outcomes = [attempt.outcome for attempt in ledger.operations.attempts(run.id)]
    scene.say("paid, in this order:")
    for order_id, paid_by, token in scene.ask("SELECT order_id, paid_by, token FROM story_settlement ORDER BY n"):
        scene.say(f"order {order_id}, token {token}", paid_by)
    return {
        "every order is settled": scene.ask(UNSETTLED, day=DATE) == [],
        "one settlement per order and date": scene.ask(TWICE) == [],
        "the first attempt is on record as lost, the last as succeeded": (outcomes[0], outcomes[-1])
        == ("lost", "succeeded"),
    }


if __name__ == "__main__":
    stage.main(__doc__, tell, take_part)
