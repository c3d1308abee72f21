"""The nodes of one play, the jobs they know, and how they put things in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, text

from fencepost.core.identity import canonical_json, params_hash
from fencepost.core.overlap import exclusive_key
from fencepost.core.policy import Policy
from fencepost.core.runs import Requested
from fencepost.core.schedule import schedule_to_json
from fencepost.core.schedules.every import every
from fencepost.core.verdicts import Cancel
from fencepost.engine.engines import close_engine
from fencepost.engine.jobs import Job, Jobs
from fencepost.engine.run import Run, attempt_of
from fencepost.ledger import jobs as job_rows
from fencepost.ledger.deploys import sync_code
from fencepost.ledger.dialects.statements import statements_for
from fencepost.ledger.recording import record
from fencepost.ledger.schedule_rows import NewSchedule
from tests.crashpoints import bulk
from tests.crashpoints.by_hand import BY_HAND, HandNode, HandRuntime, Skipped
from tests.crashpoints.grounds import EFFECTS, Ground, new_engine, opened

ROUND_S, ROUNDS = 14.0, 3  # the longest pause between two looks that does not break contact; more than a ttl in all
PATIENCE_S = 20.0
HOUR_US = 3_600_000_000
MANY_EFFECTS = ("chunks", "serial", "far")  # jobs that work in two steps
_INSERT = text(
    f"INSERT INTO {EFFECTS} (resource, work, token, grant_id, run_id) VALUES (:resource, :work, :token, :grant, :run)"
)


def unplanned_us(created_us: int) -> int:
    """Return until when a schedule that was made then counts as planned: three due times have passed since."""
    return (created_us // HOUR_US - 3) * HOUR_US


class Failure(Exception):
    """A job that fails when it is first tried."""


def _waits(run: Run) -> None:
    """Work until it is told to stop; where nobody would tell it, stop by itself."""
    while run.node != BY_HAND:
        run.check()
        time.sleep(0.005)  # that is its work, until it is told
    raise Cancel


class World:
    """One play: its nodes share a ledger and a clock."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.skipped = Skipped(self._meanwhile)
        self.jobs = Jobs(self._declared())
        self.nodes: list[HandNode] = []
        self.elsewhere: Engine = new_engine(ground.elsewhere)
        bulk.declare(self)
        self._is_meanwhile = False
        self.runtime = HandRuntime(self.skipped)
        self.ledger = opened(ground, self.runtime)
        self.recovered_from_us = 0
        self._connection = self.ledger.connect("world")
        self._hot = statements_for(self._connection)

    @property
    def victim(self) -> HandNode:
        return self.nodes[0]

    def node(self, name: str) -> HandNode:
        """A node that has joined."""
        made = self.stranger(name)
        made.join()
        return made

    def stranger(self, name: str, runner: Any = None) -> HandNode:
        """A node that has not joined yet."""
        runtime = HandRuntime(self.skipped)
        made = HandNode(name, opened(self.ground, runtime), self.jobs, runtime, runner)
        self.nodes.append(made)
        return made

    def publish(self) -> None:
        """Make the jobs known to the ledger."""
        rows = [
            job_rows.NewJob(each.name, each.policy.type, each.policy.to_json(), each.signature.to_json())
            for each in self.jobs.values()
        ]
        job_rows.register(self.ledger, rows, generation=0)

    def schedule(self, *names: str) -> None:
        """Let these jobs be due every hour, and not have been planned for a while."""
        spec = schedule_to_json(every("1h"))
        declared = [NewSchedule(name, name, spec, "{}") for name in names]
        sync_code(self.ledger, generation=0, jobs=tuple(self.jobs), schedules=declared)
        through = unplanned_us(self.rows("SELECT min(s.created_at) FROM {schedule} s")[0][0])
        self.change("UPDATE {schedule} SET planned_through = %s, next_due_at = %s", through, through + HOUR_US)

    def ask(self, job: str, count: int = 1, *, origin_key: str | None = None, **params: Any) -> list[int]:
        """Ask for runs, as users do."""
        policy = self.jobs[job].policy
        request = Requested(
            job,
            policy.type,
            params=canonical_json(params),
            params_hash=params_hash(job, params),
            exclusive_key=exclusive_key(job, policy, params),
            origin_key=origin_key,
        )
        found = self.ledger.write(lambda cursor: record(self.ledger, cursor, [request] * count))
        return [each.run_id for each in found]

    def rows(self, template: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Ask the ledger, by its own templates."""
        return [
            tuple(row) for row in self._connection.read(lambda cursor: self._hot.rows(cursor, template, *parameters))
        ]

    def change(self, template: str, *parameters: Any) -> None:
        self._connection.write(lambda cursor: self._hot.change(cursor, template, *parameters))

    # -- what jobs do

    def _declared(self) -> Iterator[Job]:
        def job(function: Callable[..., Any], name: str, **policy: Any) -> Job:
            kind = policy.pop("type", "manual")
            wishes = {"retries": 50, "crash_limit": 50, "backoff": {"base": 0, "cap": 0}, **policy}
            return Job.of(function, name=name, policy=Policy.of(kind, **wishes))

        yield job(lambda run: self._pay(run, 1), "plain", isolation="read committed")
        yield job(lambda run, key: self._pay(run, 1), "alone", exclusive="k:{key}", overlap="queue")
        yield job(lambda run, key: self._pay(run, 1), "forbids", exclusive="k:{key}", overlap="forbid")
        yield job(lambda run, key: self._pay(run, 1), "replaces", exclusive="k:{key}", overlap="replace")
        yield job(self._fails_first, "fails")
        yield job(lambda run: self._pay(run, 2), "chunks", isolation="read committed")
        yield job(lambda run: self._pay(run, 2), "serial", isolation="serializable")
        yield job(lambda run, key: self._pay(run, 1, final=True), "final", exclusive="k:{key}", overlap="queue")
        yield job(lambda run: self._pay(run, 2, self.elsewhere), "far", isolation="read committed")
        yield job(lambda run: self._pay(run, 1), "kept", effects="fenced")
        yield job(_waits, "waits")
        yield job(lambda run: self._pay(run, 1), "ticks_all", type="scheduled", misfire="all:10", overlap="queue")
        yield job(lambda run: self._pay(run, 1), "ticks_once", type="scheduled", misfire="once", overlap="forbid")
        yield job(lambda run: self._pay(run, 1), "ticks_skip", type="scheduled", misfire="skip", overlap="forbid")

    def _fails_first(self, run: Run) -> None:
        if run.attempt == 1:
            raise Failure
        self._pay(run, 1)

    def _pay(self, run: Run, chunks: int, source: Any = None, *, final: bool = False) -> None:
        """Do the work of a run in so many transactions, each of which lands once."""
        for number in range(chunks):
            work = f"{run.id}#{number}"
            with run.transaction(source, final=final) as tx:
                if run.once(work, tx):
                    tx.execute(_INSERT, self._effect(run, work))

    def _effect(self, run: Run, work: str) -> dict[str, Any]:
        resource = run.exclusive_key or f"run:{run.id}"
        return {
            "resource": resource,
            "work": work,
            "token": run.token,
            "grant": attempt_of(run).grant_id,
            "run": run.id,
        }

    # -- what happens afterwards

    def recover(self, *, has_exited: bool) -> bool:
        """Let everybody who is left go on, and somebody else come, until all is done; False if that does not happen."""
        self.recovered_from_us = self.ledger.now_us()
        if has_exited:
            self.ground.expire_sessions()
        self.stranger("rescuer")
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            for node in self.nodes:
                node.turn()
            if self.is_settled():
                return True
            if time.monotonic() > give_up_at:
                return False
            self._let_time_pass()

    def _let_time_pass(self) -> None:
        """Let so much time pass, in contact with the ledger, that who has not renewed may be declared dead."""
        for _ in range(ROUNDS):
            self.skipped.s += ROUND_S
            for node in self.nodes:
                node.step(node.beat)
                node.state.hint()
                node.step(node.exchange.step)

    def _meanwhile(self) -> None:
        """Let the others go on while a run waits for its parts: nobody here does anything by itself."""
        conducts = any(bulk.is_bulk(claim.job) for node in self.nodes for claim in node.under_way)
        if self._is_meanwhile or not conducts:
            return
        self._is_meanwhile = True
        try:
            self._let_time_pass()
            for node in self.nodes:
                node.turn(lambda claim: claim.job.endswith(bulk.PART))
        finally:
            self._is_meanwhile = False

    def is_settled(self) -> bool:
        """Whether nothing is left to be done: no run, no key, no node that nobody has noticed to be gone."""
        [(busy,)] = self.rows("SELECT count(*) FROM {run} r WHERE r.state IN ('queued', 'running', 'waiting')")
        [(held,)] = self.rows("SELECT count(*) FROM {exclusive} x WHERE x.run_id IS NOT NULL")
        [(overdue,)] = self.rows("SELECT count(*) FROM {schedule} s WHERE s.next_due_at <= %s", self.ledger.now_us())
        there = {row[0] for row in self.rows("SELECT n.id FROM {node} n WHERE n.dead_at IS NULL AND n.left_at IS NULL")}
        ours = {node.node_id for node in self.nodes if node.state.member is not None}
        is_known = not any(node.state.lost_identities for node in self.nodes)
        return (
            not (busy or held or overdue)
            and there == ours
            and is_known
            and all(node.exchange.is_empty for node in self.nodes)
        )

    def close(self) -> None:
        for node in self.nodes:
            node.close()
            close_engine(node.ledger)
        self.elsewhere.dispose()
        self._connection.rest()
        self.ledger.close()


@contextmanager
def world(ground: Ground) -> Iterator[World]:
    """Begin where somebody has left off."""
    made = World(ground)
    try:
        yield made
    finally:
        made.close()


def publish(ground: Ground) -> None:
    """Make the jobs known to the ledger, once for all plays."""
    with world(ground) as made:
        made.publish()


def renewing(node: HandNode) -> None:
    """Let time pass in which a node is in contact."""
    for _ in range(ROUNDS):
        node.beat()
        node.join()
        node.state.hint()
        node.exchange.step(node.runtime.monotonic())
        node.runtime.skipped.s += ROUND_S
    node.beat()
    node.join()
