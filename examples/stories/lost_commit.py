"""The fourth story: a payment is committed, and the reply to the COMMIT is lost.

The database has done it, but the application never hears of it: the network swallows the reply and then breaks. So the
attempt fails, and the run is tried again, as it has to be: it might as well not have happened.

*Unprotected*, the customer is charged twice. *Protected*, the charge has a key that is committed with it: the second
attempt finds it, charges nothing, and returns the receipt of the first. With ``--how final`` the end of the run is
committed with the charge as well; then there is nothing to try again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import stage
from sqlalchemy import Connection, Engine, event, text
from stage import Scene, until

from fencepost import App, Run, current_run, idempotent
from testbed.proxy import Proxy

ORDER, CENTS = 42, 1999
CHARGE = "INSERT INTO story_charge (receipt, order_id, cents, attempt) VALUES (:receipt, :order_id, :cents, :attempt)"
CHARGED = "SELECT receipt, attempt FROM story_charge ORDER BY n"


# -- the application -------------------------------------------------------------------------------------------------


def charge(tx: Connection, order_id: int, cents: int) -> str:
    """Take the money, and return a receipt."""
    receipt, run = f"R-{uuid4().hex[:8]}", current_run()
    attempt = run.attempt if run else 0
    tx.execute(text(CHARGE), {"receipt": receipt, "order_id": order_id, "cents": cents, "attempt": attempt})
    return receipt


@idempotent(key="charge:{order_id}")
def charge_once(tx: Connection, order_id: int, cents: int) -> str:
    """The same, but whoever asks again for this order gets the receipt of the first time."""
    return charge(tx, order_id, cents)


def declare(app: App, scene: Scene, engine: Engine) -> None:
    @app.job(retries=3, backoff="100ms..1s")
    def charge_order(run: Run, order_id: int, cents: int) -> str:
        if not scene.is_protected:
            with engine.begin() as tx:
                return charge(tx, order_id, cents)
        if scene.how == "final":
            with run.transaction(engine, final=True) as tx:
                return charge(tx, order_id, cents)
        return run.in_transaction(lambda tx: charge_once(tx, order_id, cents), engine)


# -- what happens to it ----------------------------------------------------------------------------------------------


class LostReply:
    """The network between the application and its database. It loses the reply to the first COMMIT, and breaks."""

    def __init__(self, scene: Scene, network: Proxy) -> None:
        self._scene = scene
        self._network = network
        self._commit_was_sent = threading.Event()
        self.has_happened = False

    def on_commit(self, _: Connection) -> None:
        """SQLAlchemy is about to send COMMIT."""
        if not self._commit_was_sent.is_set():
            self._network.swallow_replies()
            self._commit_was_sent.set()

    def break_when_committed(self) -> None:
        if self._commit_was_sent.wait(stage.DEADLINE_S):
            until(lambda: self._scene.ask(CHARGED), stage.DEADLINE_S, "the charge is committed")
            self._scene.say("has committed; the network swallows its reply, and breaks", "the database")
            self.has_happened = True
            self._network.flow()
            self._network.cut()


@contextmanager
def bad_network(scene: Scene) -> Iterator[tuple[Engine, LostReply]]:
    """Lend an engine whose connections lead through a network that loses one reply."""
    address = urlsplit(scene.url)
    with Proxy(str(address.hostname), int(address.port or 5432)) as network:
        engine = stage.engine_for(network.through(scene.url))
        fault = LostReply(scene, network)
        event.listen(engine, "commit", fault.on_commit)
        watching = threading.Thread(target=fault.break_when_committed)
        watching.start()
        try:
            yield engine, fault
        finally:
            watching.join()
            engine.dispose()


def tell(scene: Scene) -> stage.Claims:
    scene.do("CREATE TABLE story_charge (n SERIAL, receipt VARCHAR(20), order_id BIGINT, cents BIGINT, attempt BIGINT)")
    stage.migrate(scene.ledger_url)
    app = stage.app_on(scene, scene.ledger_url, ttl="10s")
    with bad_network(scene) as (engine, fault):
        declare(app, scene, engine)
        with app.running():
            app.enqueue("charge_order", params={"order_id": ORDER, "cents": CENTS})
            until(lambda: app.operations.runs(states=["succeeded", "dead"]), stage.DEADLINE_S, "the run has ended")
    [row] = app.operations.runs()
    attempts = app.operations.attempts(row.id)
    app.close()
    for each in attempts:
        scene.say(f"{each.outcome}: {(each.error or 'no error').splitlines()[0]}", f"attempt {each.number}")
    charges = scene.ask(CHARGED)
    for receipt, attempt in charges:
        scene.say(f"charged, receipt {receipt}", f"attempt {attempt}")
    scene.say(f"says {row.result}", "the run")
    return _claims(scene, fault, row, charges)


def _claims(scene: Scene, fault: LostReply, row: Any, charges: list[tuple[Any, ...]]) -> stage.Claims:
    claims = {
        "the reply to a COMMIT was lost": fault.has_happened,
        "the run succeeded": row.state == "succeeded",
        "the customer was charged once": len(charges) == 1,
    }
    if scene.how != "final":
        claims["its result is the receipt of the one charge"] = row.result == charges[0][0]
    return claims


if __name__ == "__main__":
    stage.main(__doc__, tell, ways=("key", "final"))
