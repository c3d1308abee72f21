"""Nodes in a bad network, whose sessions and leases are taken away at random; then quiet: nothing is lost or stuck.

Seconds of trouble per test: FENCEPOST_CHAOS_S. The seed is in the test's name, but threads and networks keep no time:
the same seed does not meet the same moment twice.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import update

from fencepost.core.names import NODE_LEASE
from fencepost.core.schedule import every
from fencepost.engine.jobs import Job
from fencepost.engine.node import Node
from fencepost.errors import FencepostError
from fencepost.leases.locks import Locks
from fencepost.ledger import nodes
from fencepost.ledger.history import RunRow, attempts
from fencepost.ledger.requests import cancel
from fencepost.testing import until
from testbed.proxy import Proxy
from tests.engine.crew import RUNTIME, SHORT_TTL, Crew, crew, job, seldom

CHAOS_S = float(os.environ.get("FENCEPOST_CHAOS_S", "6"))
OPEN_STATES = ("queued", "waiting", "running")
FAULTS = ("hold", "swallow", "swallow_replies", "refuse", "cut")


class Work:
    """Jobs of every sort, and which of their claims were executed."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.executed: Counter[tuple[int, int]] = Counter()
        self._lock = threading.Lock()

    def quick(self, run: Any) -> None:
        with self._lock:
            self.executed[run.id, run.token] += 1

    def slow(self, run: Any) -> None:
        self.quick(run)
        until_s = RUNTIME.monotonic() + self.dice.random()
        while RUNTIME.monotonic() < until_s:
            run.check()
            RUNTIME.sleep(0.02)

    def flaky(self, run: Any) -> None:
        self.quick(run)
        if self.dice.random() < 0.5:
            raise ValueError("as it happens")

    def jobs(self) -> list[Job]:
        def quick(run) -> None:
            self.quick(run)

        def slow(run) -> None:
            self.slow(run)

        def flaky(run) -> None:
            self.flaky(run)

        def keyed(run) -> None:
            self.quick(run)

        def beat(run) -> None:
            self.quick(run)

        def skipping(run) -> None:
            self.slow(run)

        return [
            job(quick, crash_limit=1000),
            job(slow, crash_limit=1000),
            job(flaky, crash_limit=1000, retries=3, backoff="50ms..3s"),
            job(keyed, crash_limit=1000, overlap="queue"),
            job(beat, every("500ms"), crash_limit=1000, overlap="queue", misfire="all:1000", grace="1s"),
            job(skipping, every("1s"), crash_limit=1000, overlap="forbid"),
        ]


class Chaos:
    """What happens to three nodes."""

    def __init__(self, made: Crew, dice: random.Random, *, gate: str | None, server: Any, stack: ExitStack) -> None:
        self.made = made
        self.dice = dice
        self._gate = gate
        self._server = server
        self._stack = stack
        self.proxies: list[Proxy] = []
        self.nodes: list[tuple[Node, Proxy | None]] = [self._node() for _ in range(3)]

    def go_on_for(self, duration_s: float) -> None:
        acts = (self._ask, self._ask, self._ask, self._ask, self._revoke_session, self._fault, self._replace)
        until_s = RUNTIME.monotonic() + duration_s
        while RUNTIME.monotonic() < until_s:
            with suppress(FencepostError):
                self.dice.choice(acts if self._gate is None else (*acts, self._revoke_key))()
            RUNTIME.sleep(self.dice.random() * 0.15)
        for proxy in self.proxies:
            proxy.flow()

    def keys_held(self) -> list[str]:
        return [record.name for record in self._gate_locks.records() if record.is_held] if self._gate else []

    @property
    def _gate_locks(self) -> Locks:
        return self.made._locks[-1]

    def _node(self) -> tuple[Node, Proxy | None]:
        slots, proxy, url = self.dice.choice((1, 2, 10)), None, self.made.url
        if self._server is not None:
            proxy = self._stack.enter_context(Proxy(self._server.host, self._server.port))
            self.proxies.append(proxy)
            url = proxy.through(f"{url}&call_timeout=1s")
        return self.made.node(url=url, gate=self._gate, slots=slots, ttl=SHORT_TTL), proxy

    def _ask(self) -> None:
        name = self.dice.choice(("quick", "slow", "flaky", "keyed"))
        wishes: dict[str, Any] = {"exclusive_key": f"key {self.dice.randrange(3)}"} if name == "keyed" else {}
        if self.dice.random() < 0.2:
            wishes["available_at_us"] = self.made.ledger.now_us() + self.dice.randrange(6_000_000)
        ids = self.made.enqueue(name, count=self.dice.randrange(1, 8), priority=self.dice.randrange(3), **wishes)
        if self.dice.random() < 0.2:
            cancel(self.made.ledger, self.dice.choice(ids), by="chance")

    def _revoke_session(self) -> None:
        node, _ = self.dice.choice(self.nodes)
        if node.node_id is not None and self.dice.random() < 0.5:
            self.made._locks[0].revoke(f"{NODE_LEASE}{node.node_id}")

    def _revoke_key(self) -> None:
        if held := self.keys_held():
            self._gate_locks.revoke(self.dice.choice(held))

    def _fault(self) -> None:
        _, proxy = self.dice.choice(self.nodes)
        if proxy is None:
            return
        fault = self.dice.choice(FAULTS)
        getattr(proxy, fault)()
        if fault == "refuse":
            proxy.cut()
        RUNTIME.sleep(self.dice.random() * 2.5)
        proxy.flow()

    def _replace(self) -> None:
        index = self.dice.randrange(len(self.nodes))
        node, proxy = self.nodes[index]
        if proxy is not None:
            proxy.flow()
        node.stop(self.dice.choice((0.0, 1.0)))
        self.nodes[index] = self._node()


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest) -> Any:
    names = {"postgresql": "postgres", "mysql": "mariadb"}
    return request.getfixturevalue(names[kind]) if kind in names else None


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


# Locks of a gate lie in a store of their own, whatever the ledger is: one ledger is enough for those.
@pytest.mark.parametrize(
    ("kind", "has_gate"),
    [("sqlite", False), ("postgresql", False), ("mysql", False), ("postgresql", True)],
    indirect=["kind"],
    ids=["sqlite-ledger", "postgresql-ledger", "mysql-ledger", "postgresql-gate"],
)
@pytest.mark.parametrize("seed", [1])
@pytest.mark.timeout(120 + 2 * CHAOS_S)
def test_after_the_storm_everything_has_ended_once(
    ledger_url: str, server: Any, stack: ExitStack, seed: int, has_gate: bool
) -> None:
    dice = random.Random(seed)
    work = Work(dice)
    with crew(ledger_url, work.jobs()) as made:
        gate = f"memory://{RUNTIME.new_id()}" if has_gate else None
        chaos = Chaos(made, dice, gate=gate, server=server, stack=stack)
        chaos.go_on_for(CHAOS_S)
        _plan_no_more(made)
        try:
            until(seldom(lambda: _open(made) == []), 60, "all have ended")
        except AssertionError as error:
            raise AssertionError(f"{error}, but {_open(made)}") from None
        rows = made.runs()
        tries = {row.id: attempts(made.ledger, row.id) for row in rows}
        until(lambda: not chaos.keys_held(), 30, "nobody holds a key")
    assert {key: times for key, times in work.executed.items() if times > 1} == {}
    for row in rows:
        assert [each.number for each in tries[row.id]] == list(range(1, row.attempts + 1)), row
        tokens = [each.token for each in tries[row.id]]
        assert tokens == sorted(set(tokens)), row
    assert _gaps(rows, "beat", 500_000) == []
    assert _gaps(rows, "skipping", 1_000_000) == []


def _plan_no_more(made: Crew) -> None:
    table = made.ledger.tables.schedule
    made.ledger.write(lambda cursor: made.ledger.change(cursor, update(table).values(next_due_at=None)))


def _open(made: Crew) -> list[tuple[Any, ...]]:
    living = {node.id for node in nodes.living_nodes(made.ledger)}
    return [
        (row.id, row.job, row.state, row.waits_for, row.exclusive_key, row.node in living, row.why)
        for row in made.runs()
        if row.state in OPEN_STATES
    ]


def _gaps(rows: list[RunRow], name: str, step_us: int) -> list[tuple[Any, Any]]:
    ticks = sorted((row.first_due_at, row.due_at) for row in rows if row.job == name)
    return [(earlier, later) for earlier, later in pairwise(ticks) if later[0] != earlier[1] + step_us]
