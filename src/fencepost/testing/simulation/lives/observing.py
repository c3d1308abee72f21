"""What is seen of a life: what no node can run, scene by scene; and at the end all that is, or was, on record."""

# ruff: noqa: S608 - the names of tables and columns are ours

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from fencepost.core.events import What
from fencepost.ledger.history import AttemptRow, RunRow
from fencepost.proof.evidence import Due, Effect, Evidence, JobRules, RunSeen, Timing, Transition
from fencepost.proof.history import History
from fencepost.proof.reading import as_seen
from fencepost.testing.simulation.lives.acts import Happenings
from fencepost.testing.simulation.lives.dues import dues_of
from fencepost.testing.simulation.lives.jobs import policy_of
from fencepost.testing.simulation.lives.plan import LifeJob
from fencepost.testing.simulation.lives.settlement import Settlement, Tenure
from fencepost.testing.simulation.runtime import EPOCH_US

_STRANDED_US = 600 * 1_000_000  # nodes warn after as long (`WARNED_AFTER_US`)
_SHAKEN_US = 60 * 1_000_000  # before and after what a clock was set over
_MARGIN_US = 60 * 1_000_000  # a process declares its jobs up to `_UP_WITHIN_S` before its tenure is noted
_NEVER_US = 1 << 62  # after every instant: nobody has noticed the death
_LIVING = "SELECT name FROM fencepost_node WHERE left_at IS NULL AND dead_at IS NULL"
_QUEUED = """
SELECT id, job, queue, available_at FROM fencepost_run
WHERE (state = 'queued' OR state = 'waiting' AND waits_for = 'node') AND available_at < ? ORDER BY id
"""
# Ticks that were put together with a later one are removed, though they never began: that one stands for them.
_ENDED = "state IN ('succeeded', 'dead', 'cancelled', 'skipped', 'misfired')"


class Observer:
    """Looks at the ledgers from outside."""

    def __init__(self, world: Settlement, happenings: Happenings) -> None:
        self._world = world
        self._happenings = happenings
        self._looked_us: list[int | None] = [None] * len(world.ledgers)
        self.stranded: list[dict[int, dict[str, Any]]] = [{} for _ in world.ledgers]
        self._evidence: list[dict[str, Any]] = []

    # -- scene by scene ----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Record what has waited for ten minutes although no living node could run it, on a ledger that has nodes."""
        now_us = self._world.now_us()
        for number in range(len(self._world.ledgers)):
            with self._world.ledgers[number].file.connected() as connection:
                queued = connection.execute(_QUEUED, (now_us - _STRANDED_US,)).fetchall()
                names = {row[0] for row in connection.execute(_LIVING)}
            self._bury(number, names)
            living = [each for each in self._tenures(number) if each.to_us is None]
            believed = [each for each in self._tenures(number) if each.process.name in names]
            ended = [each for each in self._tenures(number) if self._has_just_ended(each)]
            for run_id, job, queue, since_us in queued:
                if living and not any(self._can_run(each, job, queue) for each in (*believed, *ended)):
                    self._note(number, run_id, job, since_us, living)

    def _has_just_ended(self, tenure: Tenure) -> bool:
        """Whether a node left, or was noticed to be dead, too short a time ago for a warning."""
        ended_us = tenure.noticed_us if tenure.was_killed else tenure.to_us
        return ended_us is not None and ended_us > self._world.now_us() - 2 * _STRANDED_US

    def _bury(self, number: int, names: set[str]) -> None:
        """Note of nodes that were killed when it was first seen that the ledger knows."""
        for each in self._tenures(number):
            if each.was_killed and each.noticed_us is None and each.process.name not in names:
                each.noticed_us = self._world.now_us()

    def _note(self, number: int, run_id: int, job: str, since_us: int, living: list[Tenure]) -> None:
        """Record it, if a node was there for long enough to warn."""
        now_us = self._world.now_us()
        if min(each.from_us for each in living) < now_us - 2 * _STRANDED_US:
            self.stranded[number].setdefault(run_id, {"run": run_id, "job": job, "waited_s": (now_us - since_us) / 1e6})

    def _can_run(self, tenure: Tenure, job: str, queue: str) -> bool:
        base = job.removesuffix("/part")
        return self._world.life.programs[tenure.program].queue == queue and any(
            each.name == base for each in tenure.jobs
        )

    def _tenures(self, number: int) -> list[Tenure]:
        programs = self._world.life.programs
        return [each for each in self._world.tenures if programs[each.program].ledger == number]

    # -- in the end --------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read everything, while the files are as they were left."""
        for number in range(len(self._world.ledgers)):
            with self._world.ledgers[number].file.connected() as connection:
                self._evidence.append(_read(connection))
        file = self._world.elsewhere.file  # type: ignore[union-attr]
        connection = file.take()
        self._shared = _effects(connection)
        file.give_back(connection)

    def evidence(self, *, quiet_from: float, ended_at: float) -> list[Evidence]:
        """Return what is to be judged, ledger by ledger."""
        return [self._of(number, quiet_from, ended_at) for number in range(len(self._world.ledgers))]

    def _of(self, number: int, quiet_from: float, ended_at: float) -> Evidence:
        world, seen = self._world, self._evidence[number]
        mine = {program.name for program in world.life.programs if program.ledger == number}
        shared = [each for each in self._shared if _program_of(each) in mine]
        stepped_s = sum(abs(act.amount) for act in world.plan.faults if act.kind == "clock step")
        until_us = EPOCH_US + world.store_clock.off_us + round(ended_at * 1e6)
        specs = self._specs(number)
        idle = self._idle(number)
        runs = tuple(
            replace(run, waits_for="person", available_us=until_us) if run.id in idle else run for run in seen["runs"]
        )
        return Evidence(
            history=self._history(number),
            # Not the ttl of a week: dead nodes were noticed in the quiet days, so starts have to be prompt.
            timing=Timing(10.0, world.plan.poll_s, quiet_from, ended_at),
            due=tuple(self._dues(number, specs, runs, until_us)),
            runs=runs,
            attempts=seen["attempts"],
            transitions=seen["transitions"],
            effects=tuple(self._remembered(number, (*seen["effects"], *shared))),
            jobs={job.name: _rules(job) for found in specs.values() for _, _, job in found},
            wall_us_at_0=EPOCH_US + world.store_clock.off_us,
            notes={
                "ledger_slack_s": 1.0 + stepped_s,
                "stepped_s": stepped_s,
                "all_have_left": True,
                "seed": world.plan.seed,
                "events": _batches(world.life.keys, seen["runs"], seen["params"]),
                "stranded": list(self._unwarned(number)),
                "hits": dict(self._happenings.hits[number]),
                "failures": dict(world.failures[number]),
                "missed": self._missed(number, specs),
                "pruned": seen["pruned"],
            },
        )

    def _history(self, number: int) -> History:
        """Return what was done on one ledger; processes are named after their places."""
        world = self._world
        others = tuple(f"node{place.slot}." for place in world.places if world.ledger_number(place.slot) != number)
        forgotten = self._happenings.restoring.seen.forgotten[number]
        return History(
            each
            for each in world.history.entries
            if not (others and each.node.startswith(others)) and (each.token is None or each.token not in forgotten)
        )

    def _remembered(self, number: int, effects: tuple[Effect, ...]) -> Iterator[Effect]:
        """Return effects, without the runs that a restored ledger has forgotten."""
        forgotten = self._happenings.restoring.seen.forgotten[number]
        return (replace(each, run_id=None) if each.token in forgotten else each for each in effects)

    def _idle(self, number: int) -> set[int]:
        """Return what is queued at the end and no node could run: only a warning is promised for it."""
        last = [each for each in self._tenures(number) if each.to_us is None]
        queues = self._evidence[number]["queues"]
        return {
            run.id
            for run in self._evidence[number]["runs"]
            if not run.has_ended and not any(self._can_run(each, run.job, queues[run.id]) for each in last)
        }

    def _unwarned(self, number: int) -> Iterator[dict[str, Any]]:
        for each in self.stranded[number].values():
            base = each["job"].removesuffix("/part")
            warnings = (event for _, _, event in self._world.emitted if event.what is What.JOB_WITHOUT_NODE)
            yield {**each, "warned": any(event.job == base for event in warnings)}

    def _specs(self, number: int) -> dict[str, list[tuple[int, int | None, LifeJob]]]:
        """Return, for each scheduled job, in which stretches it was declared how."""
        found: dict[str, list[tuple[int, int | None, LifeJob]]] = defaultdict(list)
        for tenure in sorted(self._tenures(number), key=lambda each: each.from_us):
            for job in tenure.jobs:
                spans = found[job.name]
                if spans and spans[-1][2] == job:
                    first, last, _ = spans[-1]
                    ends = None if last is None or tenure.to_us is None else max(last, tenure.to_us)
                    spans[-1] = (first, ends, job)
                    continue
                if spans:
                    first, last, before = spans[-1]
                    spans[-1] = (
                        first,
                        tenure.from_us - _MARGIN_US if last is None else min(last, tenure.from_us - _MARGIN_US),
                        before,
                    )
                spans.append((tenure.from_us, tenure.to_us, job))
        return dict(found)

    def _dues(self, ledger: int, specs: dict[str, Any], runs: tuple[RunSeen, ...], until_us: int) -> Iterator[Due]:
        """Return what was due while it was declared; and of what was due later, what is on record all the same."""
        seen: set[tuple[str, int]] = set()
        for name, spans in specs.items():
            covered = [run.span_us for run in runs if run.is_tick and run.schedule == name]
            for number, (first, last, job) in enumerate(spans):
                next_us = spans[number + 1][0] + _MARGIN_US if number + 1 < len(spans) else until_us
                for at_us in dues_of(job, after_us=first, until_us=max(next_us, self._back_until(ledger, first, last))):
                    if self._is_replaced(ledger, first, at_us):
                        if any(at_us in each for each in covered) and (name, at_us) not in seen:
                            seen.add((name, at_us))
                            yield Due(name, name, at_us)
                        continue
                    is_declared = (last is None or at_us <= last) and not self._is_shaken(at_us)
                    is_declared = is_declared and not self._is_forgotten(ledger, spans[0][0], at_us)
                    is_wanted = is_declared or any(begin <= at_us <= end for begin, end in covered)
                    if is_wanted and (name, at_us) not in seen:
                        seen.add((name, at_us))
                        yield Due(name, name, at_us)

    def _back_until(self, ledger: int, first_us: int, last_us: int | None) -> int:
        """Return until when a schedule of this stretch was back with a dump: about until that was accepted."""
        stretches = self._happenings.restoring.seen.stretches[ledger]
        back = [until for dump, until in stretches if first_us <= dump and (last_us is None or dump <= last_us)]
        return max(back, default=0) + _MARGIN_US

    def _is_replaced(self, ledger: int, declared_us: int, at_us: int) -> bool:
        """Whether a dump took the place of what was declared then: until it was accepted, nodes may declare it anew."""
        stretches = self._happenings.restoring.seen.stretches[ledger]
        return any(dump < declared_us and dump < at_us <= until for dump, until in stretches)

    def _is_shaken(self, at_us: int) -> bool:
        """Whether the clock was set over it: what was due may have been leapt over."""
        return any(first <= at_us <= last for first, last in self._shaken())

    def _is_forgotten(self, number: int, declared_us: int, at_us: int) -> bool:
        """Whether a schedule was first declared after the dump that a ledger was restored from: it is unknown there."""
        stretches = self._happenings.restoring.seen.stretches[number]
        return any(dump_us < declared_us and at_us <= until_us for dump_us, until_us in stretches)

    def _shaken(self) -> list[tuple[int, int]]:
        return [(first - _SHAKEN_US, last + _SHAKEN_US) for first, last in self._happenings.steps_us]

    def _missed(self, number: int, specs: dict[str, Any]) -> dict[str, Any]:
        """Return in which stretches some node could run a job, and in which certainly none could."""
        found = {}
        for name, spans in specs.items():
            tenures = [each for each in self._tenures(number) if any(job.name == name for job in each.jobs)]
            able = _union([(each.from_us, each.to_us) for each in tenures])
            killed = [(each.to_us, each.noticed_us or _NEVER_US) for each in tenures if each.was_killed]
            gaps = [
                (before[1], after[0])
                for before, after in pairwise(able)
                if before[1] is not None and not any(at <= after[0] and until > before[1] for at, until in killed if at)
            ]
            policies = {job.misfire for _, _, job in spans}
            found[name] = {
                "able": able,
                "unable": gaps,
                "misfire": policies.pop() if len(policies) == 1 else None,
                "shaken": self._shaken() + self._happenings.restoring.seen.stretches[number],
            }
        return found


def _union(spans: list[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
    found: list[tuple[int, int | None]] = []
    for first, last in sorted(spans, key=lambda each: each[0]):
        if found and (found[-1][1] is None or first <= found[-1][1]):
            before = found[-1]
            found[-1] = (before[0], None if last is None or before[1] is None else max(last, before[1]))
        else:
            found.append((first, last))
    return found


def _rules(job: LifeJob) -> JobRules:
    policy = policy_of(job)
    return JobRules(str(policy.overlap), policy.retries, (), policy.crash_limit)


def _read(connection: sqlite3.Connection) -> dict[str, Any]:
    runs, attempts = ", ".join(RunRow._fields), ", ".join(AttemptRow._fields)
    both = f"SELECT * FROM fencepost_run UNION ALL SELECT * FROM sim_gone_run WHERE {_ENDED}"
    rows = connection.execute(f"SELECT {runs} FROM ({both}) ORDER BY id").fetchall()
    both = "SELECT * FROM fencepost_attempt UNION ALL SELECT * FROM sim_gone_attempt"
    tried = connection.execute(f"SELECT {attempts} FROM ({both})").fetchall()
    listed = [RunRow(*row) for row in rows]
    known = {row.id for row in listed}
    moves = connection.execute("SELECT run_id, before, after, token FROM sim_transition ORDER BY id")
    seen, attempts_seen = as_seen(listed, [AttemptRow(*row) for row in tried])
    return {
        "runs": seen,
        "attempts": attempts_seen,
        "transitions": tuple(Transition(*row) for row in moves if row[0] in known),
        "effects": _effects(connection),
        "pruned": connection.execute(f"SELECT count(*) FROM sim_gone_run WHERE {_ENDED}").fetchone()[0],
        "queues": {row.id: row.queue for row in listed},
        "params": {row.id: row.params for row in listed},
    }


def _effects(connection: sqlite3.Connection) -> tuple[Effect, ...]:
    rows = connection.execute("SELECT resource, key, token, grant_id, run_id FROM sim_effect ORDER BY id")
    return tuple(Effect(*row) for row in rows)


def _program_of(effect: Effect) -> str:
    """Return whose an effect is: what it is about begins with the program's name."""
    return effect.resource.partition(":")[2][:1]


def _batches(keys: tuple[int, ...], runs: tuple[RunSeen, ...], params: dict[int, str]) -> dict[str, dict[str, bool]]:
    """Return what must be there of bulk work that has succeeded: all of its input."""
    done = {
        json.loads(params[run.id])["batch"] for run in runs if run.job.endswith("-load") and run.state == "succeeded"
    }
    return {f"batch:{batch}": {str(key): True for key in keys} for batch in sorted(done)}
