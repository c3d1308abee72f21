"""One simulation from beginning to end: nodes start, things go wrong, then it is quiet, and everything is judged."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from fencepost.proof.checkers import check_all
from fencepost.proof.evidence import Due, Effect, Evidence, JobRules, Timing, Transition, Violation
from fencepost.proof.oracle import dues, every_us
from fencepost.proof.reading import read_ledger
from fencepost.testing.simulation.bulk import bulk_evidence, load_rules
from fencepost.testing.simulation.cluster import Cluster
from fencepost.testing.simulation.faults import Faults
from fencepost.testing.simulation.jobs import EVERY_S, job_rules
from fencepost.testing.simulation.ledger_file import ledger_file
from fencepost.testing.simulation.lives.live import live
from fencepost.testing.simulation.lives.plan import is_life
from fencepost.testing.simulation.operators import Operators
from fencepost.testing.simulation.outcome import Patch, SeedOutcome, counted, trace_hash, uncollected, unexpected
from fencepost.testing.simulation.runtime import EPOCH_US
from fencepost.testing.simulation.scenario import LOAD, LOAD_EVERY_S, Scenario, SimulatedFault, scenario

_LAST_GRACE_S = 5.0  # longer than any job takes: no run may be lost at the end

_STALE = "SELECT key, token, run_id, holder_token FROM sim_effect WHERE holder_token IS NOT token ORDER BY id"


def simulate(
    seed: int,
    *,
    faults: tuple[SimulatedFault, ...] | None = None,
    kinds: frozenset[str] | None = None,
    patch: Patch | None = None,
) -> SeedOutcome:
    """Simulate the cluster that `seed` stands for, and let the checkers judge it.

    Args:
        seed: which cluster, which faults, which order of events.
        faults: these, instead of those that the seed stands for.
        kinds: of those that the seed stands for, only these kinds.
        patch: returns a context in which everything happens: for bugs planted on purpose.
    """
    if is_life(seed):
        return live(seed, faults=faults, kinds=kinds, patch=patch)
    plan = scenario(seed, kinds=kinds)
    if faults is not None:
        plan = replace(plan, faults=faults)
    file = ledger_file()
    file.empty()
    with uncollected(), patch() if patch is not None else nullcontext():
        cluster = Cluster(plan, file)
        evidence = _lived(cluster)
    violations = (*check_all(evidence), *_stale(evidence), *unexpected(cluster))
    return SeedOutcome(
        seed=seed,
        violations=violations,
        trace_hash=trace_hash(cluster, [evidence]),
        evidence=evidence,
        plan=plan,
        counts=_counts(cluster, evidence),
        emitted=tuple(cluster.emitted),
    )


def _lived(cluster: Cluster) -> Evidence:
    plan, hub = cluster.plan, cluster.hub
    operators = Operators(cluster)
    going_wrong = Faults(cluster, operators)
    try:
        for place in cluster.places:
            cluster.boot(place)
        operators.begin()
        going_wrong.begin()
        hub.run(plan.faults_until)
        quiet_from = _calm_down(cluster, going_wrong)
        hub.run(quiet_from + _quiet_s(plan))
        ended_at = hub.now
        for place in cluster.places:
            hub.spawn(cluster.world.process, "end", lambda place=place: cluster.leave(place, _LAST_GRACE_S))  # type: ignore[misc]
        hub.run(ended_at + 30.0)
        return _evidence(cluster, quiet_from, ended_at)
    finally:
        hub.over()
        cluster.drop_all()


def _calm_down(cluster: Cluster, going_wrong: Faults) -> float:
    """End all faults, and wait until every place has a node again."""
    hub = cluster.hub
    hub.run(max([hub.now, *(fault.until for fault in cluster.plan.faults if fault.kind in ("restart", "operator"))]))
    going_wrong.end()
    give_up_at = hub.now + 20.0
    hub.run(hub.now + 0.5)
    while hub.now < give_up_at and (going_wrong.is_under_way or any(place.node is None for place in cluster.places)):
        hub.run(hub.now + 0.1)
    return hub.now


def _quiet_s(plan: Scenario) -> float:
    bound_s = (2 if plan.is_blind else 1) * plan.ttl_s + plan.poll_s + 2.0
    return bound_s + 0.5


def _evidence(cluster: Cluster, quiet_from: float, ended_at: float) -> Evidence:
    plan = cluster.plan
    cluster.server.is_instant = True
    runs, attempts = read_ledger(cluster.connection)
    with _looking(cluster) as (connection, elsewhere):
        stepped_s = sum(abs(fault.amount) for fault in plan.faults if fault.kind == "clock step")
        return Evidence(
            history=cluster.history,
            timing=Timing(plan.ttl_s, plan.poll_s, quiet_from, ended_at, store_was_away=plan.is_blind),
            due=tuple(_due(cluster, connection, ended_at)),
            runs=runs,
            attempts=attempts,
            transitions=tuple(
                Transition(*row)
                for row in connection.execute("SELECT run_id, before, after, token FROM sim_transition ORDER BY id")
            ),
            effects=tuple(_effects(connection)) + (() if elsewhere is connection else tuple(_effects(elsewhere))),
            jobs=_rules(plan),
            wall_us_at_0=EPOCH_US + cluster.store_clock.off_us,
            tokens_are_durable=plan.gate != "forgetful",
            notes={
                "ledger_slack_s": 1.0 + stepped_s,
                "stepped_s": stepped_s,
                "all_have_left": True,
                "nodes_ended_us": {} if plan.gate else _nodes_ended(connection),
                "seed": plan.seed,
                "effects_of": {"pay": "job:pay"},
                "stale": connection.execute(_STALE).fetchall(),
                "bulk": _bulk(cluster, quiet_from, connection, elsewhere),
            },
        )


@contextmanager
def _looking(cluster: Cluster) -> Iterator[tuple[sqlite3.Connection, sqlite3.Connection]]:
    """Open the ledger and the database of bulk work, which may be the same, to look at them."""
    files = [server.file for server in cluster.servers.values()]
    opened = [file.take() for file in files]
    try:
        yield opened[0], opened[-1]
    finally:
        for file, connection in zip(files, opened, strict=True):
            file.give_back(connection)


def _bulk(
    cluster: Cluster, quiet_from: float, ledger: sqlite3.Connection, target: sqlite3.Connection
) -> list[dict[str, Any]]:
    quiet_us = EPOCH_US + cluster.store_clock.off_us + round(quiet_from * 1_000_000)
    return [] if cluster.plan.bulk is None else bulk_evidence(cluster.plan.bulk, ledger, target, quiet_us=quiet_us)


def _effects(connection: sqlite3.Connection) -> Iterator[Effect]:
    rows = connection.execute("SELECT resource, key, token, grant_id, run_id FROM sim_effect ORDER BY id")
    return (Effect(*row) for row in rows)


def _rules(plan: Scenario) -> dict[str, JobRules]:
    rules = job_rules((*(name for name in plan.jobs if name != LOAD), "late"))
    return rules if plan.bulk is None else rules | load_rules()


def _nodes_ended(connection: sqlite3.Connection) -> dict[str, int]:
    """Return when each node died or left. Runs may lose their lease at a gate, too; then this says nothing."""
    rows = connection.execute("SELECT id, coalesce(dead_at, left_at) FROM fencepost_node").fetchall()
    return {node: ended_us for node, ended_us in rows if ended_us is not None}


def _due(cluster: Cluster, connection: sqlite3.Connection, ended_at: float) -> list[Due]:
    until_us = EPOCH_US + cluster.store_clock.off_us + round(ended_at * 1_000_000)
    found: list[Due] = []
    rows = connection.execute("SELECT id, job, created_at FROM fencepost_schedule ORDER BY id").fetchall()
    for schedule, job, made_us in rows:
        every_s = LOAD_EVERY_S if job == LOAD else EVERY_S[job]
        found += dues(schedule, job, every_us(every_s, after_us=made_us, until_us=until_us))
    return found


def _stale(evidence: Evidence) -> list[Violation]:
    """Return the effects that were written when their run was not the writer's any more, as the database saw it."""
    return [
        Violation(
            "no stale write",
            f"{key!r} was written under token {token} when run {run_id} was held by "
            + ("nobody" if held is None else f"somebody else, under token {held}"),
        )
        for key, token, run_id, held in evidence.notes["stale"]
    ]


def _counts(cluster: Cluster, evidence: Evidence) -> Counter[str]:
    counts = counted(cluster, [evidence])
    counts["bulk items"] = sum(bulk["counts"].get("read", 0) for bulk in evidence.notes["bulk"])
    counts["bulk chunks"] = sum(bulk["counts"].get("chunks", 0) for bulk in evidence.notes["bulk"])
    return counts
