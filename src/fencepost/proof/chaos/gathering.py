"""Gathers the evidence: all histories, the ledger at the end, and the effects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import Engine, select

from fencepost.ledger.ledger import Ledger
from fencepost.proof.chaos.effects import ChaosTables
from fencepost.proof.chaos.lines import read_lines
from fencepost.proof.chaos.plan import BACKOFF, BY_NAME, CRASH_LIMIT, PLAN, RETRIES
from fencepost.proof.evidence import FINAL, Due, Evidence, JobRules, RunSeen, Timing, Violation
from fencepost.proof.oracle import cron_us, dues, every_us
from fencepost.proof.reading import read_ledger

POLL_S = 1.0  # nodes look every 2 or 5 s; the bound for starts covers the rest by _START_SLACK_S
SETTLE_S = 90.0  # within which everything that was due has ended, when nothing goes wrong any more
_START_SLACK_S = 5.0  # all that had to wait is worked off first
_US = 1_000_000


@dataclass(frozen=True, slots=True)
class CalmTimes:
    """When it was calm again and when it was over, on the clock of histories; and the ledger's time at nought."""

    quiet_from: float
    ended_at: float
    wall_us_at_0: int
    store_was_away: bool


def gather(
    ledger: Ledger, engine: Engine, histories: Path, *, ttl_s: float, ending: CalmTimes, tokens_are_durable: bool
) -> Evidence:
    """Return the evidence."""
    runs, attempts = read_ledger(ledger)
    runs = tuple(replace(run, job=BY_NAME[run.job].name) for run in runs)  # of one job, under whichever name
    end_us = ending.wall_us_at_0 + round(ending.ended_at * _US)
    return Evidence(
        history=read_lines(histories),
        timing=Timing(ttl_s, POLL_S, ending.quiet_from, ending.ended_at, ending.store_was_away),
        due=tuple(_due(ledger, end_us)),
        runs=runs,
        attempts=attempts,
        effects=ChaosTables(ledger.url).read(engine),
        jobs={planned.name: _rules(planned.overlap) for planned in PLAN},
        wall_us_at_0=ending.wall_us_at_0,
        tokens_are_durable=tokens_are_durable,
        notes={"settle_s": SETTLE_S, "start_slack_s": _START_SLACK_S},
    )


def is_settled(ledger: Ledger, until_us: int) -> bool:
    """Whether all that was due until then is planned, and has ended."""
    run, schedule = ledger.tables.run.c, ledger.tables.schedule.c
    is_open = select(run.id).where(run.state.not_in(FINAL), run.due_at <= until_us).limit(1)
    is_unplanned = select(schedule.id).where(schedule.planned_through < until_us).limit(1)
    return not ledger.read(lambda cursor: ledger.rows(cursor, is_open) or ledger.rows(cursor, is_unplanned))


def lost_writes(evidence: Evidence) -> Iterator[Violation]:
    """Compare runs and effects: each success has its effects, each once."""
    written: dict[int, list[str]] = {}
    for effect in evidence.effects:
        if effect.run_id is not None:
            written.setdefault(effect.run_id, []).append(effect.key)
    for run in evidence.runs:
        yield from _compared(run, sorted(written.pop(run.id, [])))
    for run_id, keys in written.items():
        yield Violation("effects", f"run {run_id}, which is not on record, left {', '.join(keys)}")


def _compared(run: RunSeen, found: list[str]) -> Iterator[Violation]:
    wanted = sorted(_works(run))
    if run.state == "succeeded" and found != wanted:
        yield Violation("effects", f"run {run.id} of {run.job!r} succeeded, and left {found} instead of {wanted}")
    elif len(set(found)) < len(found) or not set(found) <= set(wanted):
        yield Violation("effects", f"run {run.id} of {run.job!r} is {run.state}, and left {found}")


def _works(run: RunSeen) -> list[str]:
    work = f"{run.job}:{run.due_us}"
    return [f"{work}#{chunk}" for chunk in range(BY_NAME[run.job].chunks)] if BY_NAME[run.job].chunks else [work]


def _due(ledger: Ledger, end_us: int) -> Iterator[Due]:
    c = ledger.tables.schedule.c
    began: dict[str, int] = dict(ledger.read(lambda cursor: ledger.rows(cursor, select(c.id, c.created_at))))
    for planned in PLAN:
        if (after_us := began.get(planned.name)) is None:
            continue
        if planned.cron is not None:
            times = cron_us(planned.cron, after_us=after_us, until_us=end_us)
        else:
            times = every_us(planned.every_s, after_us=after_us, until_us=end_us)
        yield from dues(planned.name, planned.name, times)


def _rules(overlap: str) -> JobRules:
    pauses_s = tuple(BACKOFF.delay_s(failures, 0.0) for failures in range(1, RETRIES + 1))
    return JobRules(overlap, RETRIES, pauses_s, CRASH_LIMIT)
