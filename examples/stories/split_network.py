"""The second story: a leader that cannot reach the lock store any more, but the database it can.

The network between the first leader and the lock store swallows everything. The store waits for a ttl and lets a second
leader in, which writes. The first has a transaction open, and begins another. It even believes that it leads: its clock
stood still meanwhile, as that of a virtual machine may while it is moved. (With a clock that goes right, its lease is
`lost` before the store lets anybody in. But that is its own opinion, and no write should hang on it.)

*Unprotected*, both writes of the first leader are committed after those of the second: an old plan replaces a newer
one. *Protected* by ``lease.fence(connection)``, both are refused: the database has seen a higher token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import stage
from sqlalchemy import Connection, text
from stage import Scene

from fencepost import LeaseLost, locks
from fencepost.threaded import ThreadedRuntime
from testbed.proxy import Proxy

LOG = "INSERT INTO story_written (leader, token, plan) VALUES (:leader, :token, :plan)"
PLAN = "UPDATE story_plan SET plan = :plan, leader = :leader WHERE id = 1"


class ClockThatMayStandStill(ThreadedRuntime):
    """A machine whose clock can be stopped, without anything else being stopped."""

    def __init__(self) -> None:
        self._stopped_at: float | None = None

    def stop_clock(self) -> None:
        self._stopped_at = super().monotonic()

    def monotonic(self) -> float:
        return super().monotonic() if self._stopped_at is None else self._stopped_at


class Leader:
    """Whoever holds the lock writes the plan."""

    def __init__(self, scene: Scene, name: str, lease: locks.Lease) -> None:
        self.name = name
        self.lease = lease
        self._scene = scene

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with self._scene.engine.connect() as connection:
            if self._scene.is_protected:
                with self.lease.fence(connection, prefix=stage.PREFIX) as tx:
                    yield tx
            else:
                with connection.begin():
                    yield connection

    def write(self, tx: Connection, plan: str) -> None:
        values = {"leader": self.name, "token": self.lease.token, "plan": plan}
        tx.execute(text(LOG), values)
        tx.execute(text(PLAN), values)


def tell(scene: Scene) -> stage.Claims:
    scene.do(
        "CREATE TABLE story_plan (id BIGINT PRIMARY KEY, plan VARCHAR(60), leader VARCHAR(60))",
        "CREATE TABLE story_written (n SERIAL, leader VARCHAR(60), token BIGINT, plan VARCHAR(60))",
        "INSERT INTO story_plan (id) VALUES (1)",
    )
    if scene.is_protected:
        stage.install_effects(scene.effects_url)
    address = urlsplit(scene.other_url)
    with ExitStack() as stack:
        network = stack.enter_context(Proxy(str(address.hostname), int(address.port or 5432)))
        _play(scene, network, stack)
    scene.say("written, in this order:")
    written = scene.ask("SELECT leader, token, plan FROM story_written ORDER BY n")
    for leader, token, plan in written:
        scene.say(f"{plan}, token {token}", leader)
    [(plan,)] = scene.ask("SELECT plan FROM story_plan")
    tokens = [token for _, token, _ in written]
    return {
        "no write came after one with a higher token": tokens == sorted(tokens),
        "the plan is that of the second leader": plan == "the second plan",
        "both leaders have written in their time": {leader for leader, _, _ in written} == {"node-1", "node-2"},
    }


def _play(scene: Scene, network: Proxy, stack: ExitStack) -> None:
    clock = ClockThatMayStandStill()
    first = _elected(scene, "node-1", network.through(stage.prefixed(scene.other_url)), stack, clock)
    with first.transaction() as tx:
        first.write(tx, "the first plan")
    scene.say(f"leads, and has written: token {first.lease.token}", first.name)

    network.swallow()
    clock.stop_clock()
    scene.say("the network between node-1 and the lock store swallows everything")
    second = _elected(scene, "node-2", stage.prefixed(scene.other_url), stack, ThreadedRuntime())
    scene.say(f"is elected: token {second.lease.token}", second.name)
    with _watched(scene, first, "ends the transaction that it had open"), first.transaction() as tx:
        with second.transaction() as newer:
            second.write(newer, "the second plan")
        scene.say("has written", second.name)
        scene.say(f"{'knows that it lost' if first.lease.lost else 'believes that it leads'}", first.name)
        first.write(tx, "the first plan, a little later")
    with _watched(scene, first, "begins another"), first.transaction() as tx:
        first.write(tx, "the first plan, still later")
    network.flow()
    network.cut()


@contextmanager
def _watched(scene: Scene, leader: Leader, what: str) -> Iterator[None]:
    try:
        yield
    except LeaseLost as loss:
        scene.say(f"{what}, and is refused: {loss}", leader.name)
    else:
        scene.say(f"{what}, and it is committed", leader.name)


def _elected(scene: Scene, name: str, url: str, stack: ExitStack, runtime: ThreadedRuntime) -> Leader:
    store = stack.enter_context(locks.connect(url, holder=name, runtime=runtime))
    return Leader(scene, name, store.lock("planner", ttl=stage.TTL, wait="20s").acquire())


if __name__ == "__main__":
    stage.main(__doc__, tell, has_other=True)
