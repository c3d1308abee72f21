"""A runner with somebody who hands it claims and collects outcomes."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from fencepost.core.events import Event
from fencepost.core.runs import Claim
from fencepost.engine.runners.outcome import Outcome
from fencepost.engine.runners.runner import Runner
from fencepost.testing import Stopwatch
from fencepost.threaded import ThreadedRuntime
from testbed.keeper import is_alive
from testbed.wait import until

RUNTIME = ThreadedRuntime()
LONG_S = 30.0
TRUST_S = 600.0


def claim(run_id: int, job: str, **params: object) -> Claim:
    """A claim as the ledger would give it."""
    at_us = RUNTIME.wall_us()
    return Claim(
        run_id=run_id,
        job=job,
        attempt=1,
        token=at_us + run_id,
        params=json.dumps(params),
        schedule=None,
        due_at_us=at_us,
        window_start_us=None,
        window_end_us=None,
        exclusive_key=None,
        failures=0,
        crashes=0,
        requested_by=None,
        available_at_us=at_us,
        claimed_at_us=at_us,
        ticks=1,
    )


class Stand:
    """Submits, collects, and insists on one outcome per claim."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.events: list[Event] = []
        self.submitted: dict[int, Claim] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.news = RUNTIME.event()
        self._last = 0

    def start(self, *, slots: int, trust_s: float = TRUST_S) -> None:
        self.runner.start(self.news.set)
        self.trust(trust_s)
        until(lambda: self.runner.room() >= slots, LONG_S, what=f"{slots} workers are ready ({self.events})")

    def trust(self, for_s: float = TRUST_S) -> float:
        until_at = RUNTIME.monotonic() + for_s
        self.runner.trust(until_at)
        return until_at

    def submit(self, job: str, **params: object) -> Claim:
        self._last += 1
        made = claim(self._last, job, **params)
        self.submit_all([made])
        return made

    def submit_all(self, claims: Iterable[Claim]) -> None:
        claims = list(claims)
        self.submitted |= {each.run_id: each for each in claims}
        self.runner.submit(claims)

    def collect(self) -> None:
        for outcome in self.runner.collect():
            expected = self.submitted[outcome.run_id]
            assert (outcome.attempt, outcome.token) == (expected.attempt, expected.token)
            assert outcome.run_id not in self.outcomes, f"two outcomes: {outcome}, {self.outcomes[outcome.run_id]}"
            self.outcomes[outcome.run_id] = outcome

    def run(self, job: str, **params: object) -> Outcome:
        """Wait for room, submit, and wait for the outcome."""
        until(lambda: self.runner.room() > 0, LONG_S, what="there is room")
        return self.outcome(self.submit(job, **params))

    def outcome(self, of: Claim, within_s: float = LONG_S) -> Outcome:
        """Wait for the outcome of a claim."""

        def found() -> Outcome | None:
            self.collect()
            return self.outcomes.get(of.run_id)

        return until(found, within_s, what=f"run {of.run_id} ({of.job}) has an outcome")

    def pump(self, jobs: Iterable[tuple[str, dict[str, object]]], *, within_s: float = 90.0) -> None:
        """Submit all of these as there is room, and wait for all outcomes."""
        waiting = list(jobs)[::-1]
        give_up_at = RUNTIME.monotonic() + within_s
        while waiting or len(self.outcomes) < len(self.submitted):
            assert RUNTIME.monotonic() < give_up_at, f"{len(self.outcomes)} of {len(self.submitted)} have ended"
            batch = [waiting.pop() for _ in range(min(self.runner.room(), 500, len(waiting)))]
            claims = []
            for job, params in batch:
                self._last += 1
                claims.append(claim(self._last, job, **params))
            self.submit_all(claims)
            self.news.wait(0.01)
            self.news.clear()
            self.collect()
        assert self.runner.running() == 0
        assert self.outcomes.keys() == self.submitted.keys()


def said(path: Path) -> str:
    """Wait for a job to write a file, and return what it wrote."""
    until(path.exists, LONG_S, what=f"{path.name} is written")
    return path.read_text()


def gone(*pids: int) -> float:
    """Wait until these processes are gone, and return when they were: not when a late machine looked."""
    with Stopwatch() as took:
        until(lambda: not any(is_alive(pid) for pid in pids), LONG_S, what=f"processes {pids} are gone")
    return RUNTIME.monotonic() - took.late_s


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))
