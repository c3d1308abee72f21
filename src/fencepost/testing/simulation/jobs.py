"""The jobs that simulated nodes run: every overlap policy, effects in the ledger's database, quick, slow, good, bad."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from fencepost.core.policy import Policy
from fencepost.core.schedules.every import every
from fencepost.engine.jobs import Job, Jobs
from fencepost.engine.run import Run, attempt_of
from fencepost.errors import LeaseLost
from fencepost.proof.evidence import JobRules
from fencepost.proof.history import EntryKind, History
from fencepost.testing.simulation.hub import Hub, Process

_BACKOFF = "0.2s..1s"
_INSERT = "INSERT INTO sim_effect (resource, key, token, grant_id, run_id) VALUES (?, ?, ?, ?, ?)"
EVERY_S = {"beat": 1.0, "line": 2.0, "pay": 1.0, "post": 1.5, "swap": 2.0, "late": 2.0}
_WORDS: dict[str, dict[str, Any]] = {
    "beat": {"overlap": "forbid", "retries": 1},
    "line": {"overlap": "queue", "retries": 0, "timeout": "3s"},
    "pay": {"overlap": "forbid", "retries": 2, "effects": "fenced"},
    "post": {"overlap": "allow", "retries": 1, "effects": "fenced", "misfire": "all"},
    "swap": {"overlap": "replace", "retries": 0},
    "account": {"exclusive": "account:{account}", "retries": 1, "effects": "fenced"},
    "late": {"overlap": "allow", "retries": 0},
}


class JobSite:
    """Where the jobs of one process work. It records what they do."""

    def __init__(self, hub: Hub, process: Process, history: History, sleep: Callable[[float], None]) -> None:
        self._hub = hub
        self._process = process
        self._history = history
        self.sleep = sleep

    def draw(self) -> float:
        """Throw the dice."""
        return self._hub.dice.random()

    def begin(self, run: Run) -> None:
        """A job's function begins."""
        self._note("begin", run)

    def end(self, run: Run) -> None:
        """It returns."""
        self._note("end", run)

    def write(self, run: Run, *, resource: str, key: str, final: bool = False, once: bool = False) -> bool:
        """Write an effect behind the fence; return whether it was written."""
        grant = attempt_of(run).grant_id
        about: dict[str, Any] = {"name": resource, "token": run.token, "grant": grant}
        node, what = self._process.name, "write"
        call = self._history.invoke(self._hub.now, what, node, **about, detail={"key": key})
        try:
            with run.transaction(final=final) as tx:
                if once and not run.once(f"sim:{key}", tx):
                    self._history.end(call, self._hub.now, EntryKind.REFUSED, what, node, **about)
                    return False
                tx.exec_driver_sql(_INSERT, (resource, key, run.token, grant, run.id))
        except LeaseLost:
            self._history.end(call, self._hub.now, EntryKind.REFUSED, what, node, **about)
            raise
        except Exception:
            self._history.end(call, self._hub.now, EntryKind.UNKNOWN, what, node, **about)
            raise
        self._history.end(call, self._hub.now, EntryKind.OK, what, node, **about)
        return True

    def offer(self, run: Run, *, resource: str, key: str) -> None:
        """Note that an effect is on its way, in a transaction whose outcome is unknown here."""
        self._history.invoke(
            self._hub.now,
            "write",
            self._process.name,
            name=resource,
            token=run.token,
            grant=attempt_of(run).grant_id,
            detail={"key": key},
        )

    def _note(self, what: str, run: Run) -> None:
        detail = {"job": run.job, "attempt": run.attempt, "key": work_key(run)}
        self._history.note(self._hub.now, what, self._process.name, name=str(run.id), token=run.token, detail=detail)


def work_key(run: Run) -> str:
    """Name the work a run does: its tick, or itself."""
    return f"{run.schedule}@{run.due_at.timestamp():.3f}" if run.schedule is not None else f"run:{run.id}"


def job_rules(names: Iterable[str]) -> dict[str, JobRules]:
    """Return what is promised of these jobs."""
    found = {}
    for name in names:
        policy = _policy(name)
        pauses_s = tuple(policy.backoff.delay_s(failures + 1, 0.0) for failures in range(policy.retries))
        found[name] = JobRules(str(policy.overlap), policy.retries, pauses_s, policy.crash_limit)
    return found


def jobs_on(floor: JobSite, names: Iterable[str]) -> Jobs:
    """Return the jobs of one process."""
    return Jobs([replace(_declared(name), function=_MADE[name](floor)) for name in names])


@lru_cache(maxsize=64)
def _declared(name: str) -> Job:
    """Read a job's signature once: its function is the same in every process, but for the floor it works on."""
    nowhere = JobSite(Hub(0), Process("nowhere", 0), History(), lambda _: None)
    schedules = [every(f"{EVERY_S[name]}s")] if name in EVERY_S else []
    return Job.of(_MADE[name](nowhere), name=name, policy=_policy(name), schedules=schedules)


def _policy(name: str) -> Policy:
    words = {"timeout": "20s", "backoff": _BACKOFF, **_WORDS[name]}
    return Policy.of("scheduled" if name in EVERY_S else "manual", **words)


def _beat(floor: JobSite) -> Callable[..., Any]:
    def beat(run: Run) -> None:
        floor.begin(run)
        draw = floor.draw()
        floor.sleep(draw * 0.5 if draw < 0.85 else draw * 2.5)
        if floor.draw() < 0.1:
            raise RuntimeError("it went wrong, as it should")
        floor.end(run)

    return beat


def _checking(most_steps: int, step_s: float) -> Callable[[JobSite], Callable[..., Any]]:
    """Make a job that checks between its steps whether it may continue."""

    def made(floor: JobSite) -> Callable[..., Any]:
        def work(run: Run) -> None:
            floor.begin(run)
            for _ in range(round(floor.draw() * most_steps)):
                floor.sleep(step_s)
                run.check()
            floor.end(run)

        return work

    return made


def _pay(floor: JobSite) -> Callable[..., Any]:
    def pay(run: Run) -> None:
        floor.begin(run)
        floor.sleep(floor.draw() * 0.4)
        floor.write(run, resource="job:pay", key=f"run:{run.id}", final=True)
        floor.end(run)

    return pay


def _post(floor: JobSite) -> Callable[..., Any]:
    def post(run: Run) -> None:
        floor.begin(run)
        floor.sleep(floor.draw() * 0.3)
        floor.write(run, resource=f"post:{work_key(run)}", key=work_key(run), once=True)
        floor.sleep(floor.draw() * 0.3)
        if floor.draw() < 0.1:
            raise RuntimeError("it went wrong after it had written")
        floor.end(run)

    return post


def _account(floor: JobSite) -> Callable[..., Any]:
    def account(run: Run, account: str) -> None:
        floor.begin(run)
        for number in range(2):
            floor.sleep(floor.draw() * 0.6)
            floor.write(run, resource=f"account:{account}", key=f"run:{run.id}:{run.attempt}:{number}")
        floor.end(run)

    return account


def _late(floor: JobSite) -> Callable[..., Any]:
    def late(run: Run) -> None:
        floor.begin(run)
        floor.end(run)

    return late


_MADE: dict[str, Callable[[JobSite], Callable[..., Any]]] = {
    "beat": _beat,
    "line": _checking(8, 0.2),
    "pay": _pay,
    "post": _post,
    "swap": _checking(30, 0.1),
    "account": _account,
    "late": _late,
}
