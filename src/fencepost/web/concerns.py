"""What needs a person now, worst first: the rows of the first page. Each has its sentence, since when, and one act.

**Promises.** Every question is bounded, and asked under the rights of the one who looks. **Not promised.** That it is
all: of each kind the newest are looked at, and a row says how many more there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from fencepost.core.noted import Noted
from fencepost.web.zones import duration

if TYPE_CHECKING:
    from fencepost.access import Authorized
    from fencepost.app.records import JobRecord, NodeRecord, RunRecord, ScheduleRecord

DAY = timedelta(hours=24)
LATE = timedelta(seconds=60)
_MOST = 200
_MOST_SCHEDULES = 1000
_GROUPS = 20
_NEAR_TIMEOUT = 0.9
_WARNS_FROM = 35  # what does less harm than this is a warning
_NOTED = (Noted.REFUSED_WRITE, Noted.CLOCK_LEAPT)


@dataclass(frozen=True, slots=True)
class NowRow:
    """Something that needs a person. `harm`: the order, smaller is worse; `level` is ``bad`` or ``warn``.

    `act` is what can be done with one button: ``retry``, ``release`` or empty; `consequence` says what that does.
    """

    harm: int
    level: str
    kind: str
    sentence: str
    since: datetime | None
    link: str
    link_text: str
    act: str = ""
    consequence: str = ""
    run: RunRecord | None = None


class Concerns:
    """Looks for what needs a person."""

    def __init__(self, ask: Authorized, now: datetime) -> None:
        """Ask with the rights of `ask`; `now` is the ledger's time."""
        self._ask = ask
        self._now = now
        self._jobs: Mapping[str, JobRecord] = {each.name: each for each in ask.jobs()}

    def found(self) -> list[NowRow]:
        """Return all concerns, worst first, and of equal harm those that last longest."""
        looks: Sequence[Callable[[], Iterator[NowRow]]] = (
            self._nodes,
            self._schedules,
            self._held,
            self._dead,
            self._running,
            self._waiting,
            self._noted,
        )
        all_ = [each for look in looks for each in look()]
        return sorted(all_, key=lambda each: (each.harm, each.since or self._now))

    def _schedules(self) -> Iterator[NowRow]:
        for each in self._ask.schedules.list(limit=_MOST_SCHEDULES):
            due = each.next_due_at
            if each.unserved_at is not None:
                yield self._of_schedule(
                    each,
                    12,
                    "no node has the job",
                    f"no living node has job {each.job}, so its schedule {each.id} is not planned",
                )
            elif each.paused_at is None and due is not None and due < self._now - LATE:
                words = f"schedule {each.id} of {each.job} was due {duration(self._now - due)} ago, and is not planned"
                yield self._of_schedule(each, 10, "nobody plans", words)

    def _of_schedule(self, each: ScheduleRecord, harm: int, kind: str, words: str) -> NowRow:
        since = each.unserved_at or each.next_due_at
        return NowRow(harm, "bad", kind, words, since, f"/why?job={each.id}", "Why")

    def _nodes(self) -> Iterator[NowRow]:
        found = self._ask.nodes(limit=50)
        if self._jobs and not any(each.is_living for each in found):
            yield NowRow(
                5,
                "bad",
                "no node",
                "no node takes part, so nothing runs: fencepost run APP starts one",
                _last_end(found),
                "/nodes",
                "Nodes",
            )
        for each in found:
            if each.dead_at is not None and each.dead_at > self._now - DAY:
                why = f": {each.dead_why}" if each.dead_why else ""
                yield NowRow(
                    50,
                    "warn",
                    "node died",
                    f"node {each.name} was found dead{why}; others have taken over its runs",
                    each.dead_at,
                    "/nodes?all=1",
                    "Nodes",
                )

    def _held(self) -> Iterator[NowRow]:
        for run in self._ask.runs(states=("waiting",), waits_for="person", limit=_GROUPS):
            words = f"run {run.id} of {run.job} is held for a person" + (f": {run.why}" if run.why else "")
            consequence = f"lets the run go on; {self._strategy(run)}"
            yield _of_run(run, 20, "held", words, since=run.created_at, act="release", consequence=consequence)

    def _dead(self) -> Iterator[NowRow]:
        groups: dict[str, list[RunRecord]] = {}
        for run in self._ask.runs(states=("dead",), since=self._now - DAY, limit=_MOST):
            groups.setdefault(run.job, []).append(run)
        shown = list(groups.values())[:_GROUPS]
        repeated = self._ask.repeated([run.id for runs in shown for run in runs])
        for runs in shown:
            yield from self._dead_of_job([run for run in runs if run.id not in repeated], is_cut=len(runs) >= _MOST)

    def _dead_of_job(self, left: Sequence[RunRecord], *, is_cut: bool) -> Iterator[NowRow]:
        """Say once per job what was given up: the newest run that nobody has repeated, and how many more there are."""
        if not left:
            return
        run, more = left[0], len(left) - 1
        error = ": ".join(filter(None, (run.error_code, _first_line(run.error))))
        attempts = f"{run.attempts} attempt{'' if run.attempts == 1 else 's'}"
        words = f"run {run.id} of {run.job} was given up after {attempts}" + (f": {error}" if error else "")
        words += f"; and {more}{'+' if is_cut else ''} more of this job in 24 h" if more else ""
        consequence = f"makes a new run with the same parameters; {self._strategy(run)}"
        yield _of_run(run, 30, "given up", words, since=run.ended_at, act="retry", consequence=consequence)

    def _running(self) -> Iterator[NowRow]:
        for run in self._ask.runs(states=("running",), limit=_MOST):
            taken_s = 0.0 if run.started_at is None else (self._now - run.started_at).total_seconds()
            timeout_s = self._seconds(run, "timeout")
            if run.sla_missed and run.sla_at is not None:
                late = duration(self._now - run.sla_at)
                words = f"run {run.id} of {run.job} should have ended {late} ago, and still runs"
                yield _of_run(run, 25, "SLA missed", words, since=run.sla_at)
            elif timeout_s and taken_s > _NEAR_TIMEOUT * timeout_s:
                used = f"{taken_s / timeout_s:.0%} of its timeout of {duration(timeout_s)}"
                words = f"run {run.id} of {run.job} has used {used}, and is stopped then"
                yield _of_run(run, 40, "near its timeout", words, since=run.started_at)

    def _waiting(self) -> Iterator[NowRow]:
        late = [run for run in self._ask.runs(states=("queued",), limit=_MOST) if run.available_at < self._now - LATE]
        parked = self._ask.runs(states=("waiting",), waits_for="node", limit=_MOST)
        groups: dict[str, list[RunRecord]] = {}
        for run in sorted([*late, *parked], key=lambda each: each.available_at):
            groups.setdefault(run.job, []).append(run)
        shown = list(groups.values())[:_GROUPS]
        whys = self._ask.waits_of([runs[0].id for runs in shown])
        for runs in shown:
            run, more = runs[0], len(runs) - 1
            why = whys.get(run.id, "it has not begun")
            words = f"run {run.id} of {run.job} has waited for {duration(self._now - run.available_at)}: {why}"
            yield _of_run(run, 35, "late", words + (f"; and {more} more" if more else ""), since=run.available_at)

    def _noted(self) -> Iterator[NowRow]:
        for what in _NOTED:
            found = self._ask.journal(what=what.value, since=self._now - DAY, limit=_MOST)
            if not found:
                continue
            newest, more = found[0], len(found) - 1
            of = f" of {newest.job}" if newest.job else ""
            by = f" by run {newest.run_id}{of}" if newest.run_id else of
            words = f"{newest.what}{by}" + (
                f", and {more}{'+' if len(found) >= _MOST else ''} more in 24 h" if more else ""
            )
            link = f"/runs/{newest.run_id}" if newest.run_id else "/"
            yield NowRow(60, "warn", str(what), words, newest.at, link, "Look")

    def _strategy(self, run: RunRecord) -> str:
        job = self._jobs.get(run.job)
        return (
            job.strategy if job is not None else None
        ) or "nothing is known of what keeps its effects from landing twice"

    def _seconds(self, run: RunRecord, name: str) -> float | None:
        job = self._jobs.get(run.job)
        value: Any = None if job is None or not isinstance(job.policy, Mapping) else job.policy.get(name)
        return float(value) if isinstance(value, int | float) and value > 0 else None


def _of_run(
    run: RunRecord, harm: int, kind: str, words: str, *, since: datetime | None, act: str = "", consequence: str = ""
) -> NowRow:
    level = "bad" if harm < _WARNS_FROM else "warn"
    return NowRow(harm, level, kind, words, since, f"/runs/{run.id}", f"Run {run.id}", act, consequence, run)


def _last_end(found: Sequence[NodeRecord]) -> datetime | None:
    return max((at for each in found if (at := each.dead_at or each.left_at) is not None), default=None)


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
