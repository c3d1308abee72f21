"""What must hold in the end, whatever was cut: read from the tables alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import text

from fencepost.errors import LedgerUnavailable, StoreUnavailable
from fencepost.proof.checkers import check_all
from fencepost.proof.evidence import Effect, Evidence, JobRules, Timing, Transition
from fencepost.proof.history import History
from fencepost.proof.oracle import dues, every_us
from fencepost.proof.reading import read_ledger
from tests.crashpoints.bulk import is_bulk, told
from tests.crashpoints.by_hand import TTL_S
from tests.crashpoints.grounds import EFFECTS, PREFIX, engine
from tests.crashpoints.world import HOUR_US, MANY_EFFECTS, World, unplanned_us

_ENDED = frozenset(("succeeded", "skipped", "misfired", "cancelled"))
_EXPECTED_TROUBLE = (LedgerUnavailable, StoreUnavailable)


class RunRow(NamedTuple):
    """A run in the end."""

    id: int
    job: str
    state: str
    schedule: str | None
    first_due_at: int | None
    due_at: int | None
    ticks: int
    attempts: int
    token: int


class EffectRow(NamedTuple):
    """An effect in the end, in the order of commits."""

    resource: str
    work: str
    token: int
    grant_id: str
    run_id: int


class Found(NamedTuple):
    """Everything there is to see."""

    runs: list[RunRow]
    attempts: dict[int, list[tuple[int, int, str]]]  # by run: number, token, outcome
    effects: list[EffectRow]
    journal: Counter[str]
    evidence: Evidence


def found(world: World) -> Found:
    """Look at the tables."""
    names = ", ".join(f"r.{name}" for name in RunRow._fields)
    runs = [RunRow(*row) for row in world.rows(f"SELECT {names} FROM {{run}} r ORDER BY r.id")]
    attempts: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for run_id, *rest in world.rows(
        "SELECT a.run_id, a.number, a.token, a.outcome FROM {attempt} a ORDER BY a.run_id, a.number"
    ):
        attempts[run_id].append(tuple(rest))  # type: ignore[arg-type]
    journal = Counter(row[0] for row in world.rows("SELECT j.what FROM {journal} j"))
    effects = [*_effects(world.ground.url), *_effects(world.ground.elsewhere)]
    return Found(runs, attempts, effects, journal, _evidence(world, effects))


def _evidence(world: World, effects: list[EffectRow]) -> Evidence:
    """Return the same for the checkers of simulation and chaos: as if faults had ended with the cut, long ago."""
    runs, attempts = read_ledger(world.ledger)
    schedules = world.rows("SELECT s.id, s.created_at, s.planned_through FROM {schedule} s")
    return Evidence(
        history=History(),
        timing=Timing(TTL_S, poll_s=5.0, quiet_from=0.0, ended_at=10_000.0),
        due=tuple(
            due
            for name, created, through in schedules
            for due in dues(name, name, every_us(3600, after_us=unplanned_us(created), until_us=through))
        ),
        runs=runs,
        attempts=attempts,
        transitions=tuple(_transitions(world.ground.url)),
        effects=tuple(Effect(*effect) for effect in effects),
        jobs={
            name: JobRules(str(job.policy.overlap), job.policy.retries, crashes_allowed=job.policy.crash_limit)
            for name, job in world.jobs.items()
        },
        wall_us_at_0=world.recovered_from_us,
        notes={
            "effects_of": dict.fromkeys(name for name in world.jobs if name not in MANY_EFFECTS and not is_bulk(name)),
            "bulk": told(world),
        },
    )


def _transitions(url: str) -> Iterator[Transition]:
    with engine(url).connect() as connection:
        for row in connection.execute(text(f"SELECT run_id, was, became, token FROM {PREFIX}transition ORDER BY id")):
            yield Transition(*row)


def _effects(url: str) -> list[EffectRow]:
    with engine(url).connect() as connection:
        rows = connection.execute(text(f"SELECT {', '.join(EffectRow._fields)} FROM {EFFECTS} ORDER BY id"))
        return [EffectRow(*row) for row in rows]


def violations(world: World, seen: Found) -> list[str]:
    """Say what was broken."""
    told = [str(violation) for violation in check_all(seen.evidence)]
    checks = (_stumbles, _runs, _attempts, _ticks, _effects_once, _tokens, _sessions)
    return told + [f"{check.__name__.strip('_')}: {what}" for check in checks for what in check(world, seen)]


def _stumbles(world: World, seen: Found) -> Iterator[str]:
    """A loop of the engine may find its database away, and nothing else."""
    for node in world.nodes:
        yield from (f"{node.name}: {error!r}" for error in node.troubles if not isinstance(error, _EXPECTED_TROUBLE))


def _runs(world: World, seen: Found) -> Iterator[str]:
    for run in seen.runs:
        if run.state not in _ENDED:
            yield f"run {run.id} of {run.job} is {run.state}"
        successes = sum(outcome == "succeeded" for _, _, outcome in seen.attempts[run.id])
        if successes != (run.state == "succeeded"):
            yield f"run {run.id} of {run.job} is {run.state} and succeeded {successes} times"


def _attempts(world: World, seen: Found) -> Iterator[str]:
    for run in seen.runs:
        rows = seen.attempts[run.id]
        numbers, tokens = [row[0] for row in rows], [row[1] for row in rows]
        if numbers != list(range(1, run.attempts + 1)):
            yield f"run {run.id} of {run.job} had {run.attempts} attempts, of which there are {numbers}"
        if tokens != sorted(set(tokens)):
            yield f"tokens of run {run.id} of {run.job} do not rise: {tokens}"


def _ticks(world: World, seen: Found) -> Iterator[str]:
    """Each due time since the schedules were planned last has one run, or one row that says why not."""
    for schedule, through, first in world.rows("SELECT s.id, s.planned_through, s.created_at FROM {schedule} s"):
        counts: Counter[int] = Counter()
        for run in seen.runs:
            if run.schedule == schedule and run.due_at is not None:
                due = range(run.first_due_at or run.due_at, run.due_at + 1, HOUR_US)
                counts.update(due)
                if len(due) != run.ticks:
                    yield f"run {run.id} says it stands for {run.ticks} due times, and stands for {len(due)}"
        expected = Counter(range(unplanned_us(first) + HOUR_US, through + 1, HOUR_US))
        if counts != expected:
            yield f"schedule {schedule}: due {sorted(expected)}, recorded {sorted(counts.elements())}"


def _effects_once(world: World, seen: Found) -> Iterator[str]:
    counts = Counter((effect.resource.partition("/")[0], effect.work) for effect in seen.effects)
    yield from (f"{work} was done {count} times" for (_, work), count in counts.items() if count > 1)
    done = Counter(effect.run_id for effect in seen.effects)
    for run in seen.runs:
        if is_bulk(run.job):
            continue  # as many as its checker says
        expected = (2 if run.job in MANY_EFFECTS else 1) if run.state == "succeeded" else 0
        if done[run.id] != expected and not (run.state == "cancelled" and done[run.id] <= 1):
            yield f"run {run.id} of {run.job} is {run.state} and has {done[run.id]} effects"


def _tokens(world: World, seen: Found) -> Iterator[str]:
    by_resource: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for effect in seen.effects:
        by_resource[effect.resource].append((effect.token, effect.grant_id))
    for resource, marks in by_resource.items():
        tokens = [token for token, _ in marks]
        if tokens != sorted(tokens):
            yield f"tokens went down at {resource}: {tokens}"
        if len(set(marks)) != len(set(tokens)):
            yield f"one token of two grants at {resource}: {marks}"


def _sessions(world: World, seen: Found) -> Iterator[str]:
    """Whoever lives holds its own lease, and nobody else's."""
    holders: dict[str, Any] = {}
    for node in world.nodes:
        member = node.state.member
        if member is not None:
            holders[member.lease.name] = member.lease.grant_id
    records = {record.name: record.grant_id for record in world.nodes[-1].locks.records() if record.is_held}
    if records != holders:
        yield f"leases are held by {records}, not by {holders}"
