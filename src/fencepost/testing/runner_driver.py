"""Gives claims to a runner, collects their outcomes, and fails if a claim has two."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from fencepost.core.runs import Claim
from fencepost.engine.runners.outcome import Outcome
from fencepost.engine.runners.runner import Runner
from fencepost.testing.waiting import until
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()
SOON_S = 20.0  # how long a busy machine may take
TRUST_S = 3600.0  # longer than any test: trust ends only where a test ends it


class RunnerDriver:
    """Gives claims to a runner, collects their outcomes, and fails if a claim has two."""

    def __init__(self, runner: Runner, folder: Path) -> None:
        self.runner = runner
        self.claims: dict[int, Claim] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.calls = 0
        self._folder = folder
        self._news = threading.Event()
        self._numbers = count(1)

    def start(self) -> None:
        """Start the runner, without trust."""
        self.runner.start(self._told)

    def trust(self, for_s: float = TRUST_S) -> None:
        """Let the runner trust its lease for this long."""
        self.runner.trust(RUNTIME.monotonic() + for_s)

    def claim(self, job: str, **params: object) -> Claim:
        """Make a claim as the ledger would."""
        run_id, at_us = next(self._numbers), RUNTIME.wall_us()
        return Claim(
            run_id=run_id,
            job=job,
            attempt=1 + run_id % 3,
            token=at_us + run_id,
            params=json.dumps(params),
            schedule=None,
            due_at_us=None,
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

    def waiter(self) -> Claim:
        """Make a claim of a run that lasts until `let_go`."""
        name = f"{len(self.claims)}-{next(self._numbers)}"
        return self.claim("wait_for", go=str(self._folder / "go"), began=str(self._folder / name))

    def submit(self, *claims: Claim) -> None:
        self.claims.update({claim.run_id: claim for claim in claims})
        self.runner.submit(claims)

    def run(self, job: str, **params: object) -> Outcome:
        """Execute one run, from claim to outcome, as soon as there is room."""
        self.await_room()
        claim = self.claim(job, **params)
        self.submit(claim)
        return self.outcome(claim)

    def begin(self, *claims: Claim) -> None:
        """Submit waiters, and wait until all of them run."""
        self.submit(*claims)
        for claim in claims:
            self.await_begun(claim)

    def await_begun(self, claim: Claim) -> None:
        """Wait until a waiter runs."""
        until(Path(json.loads(claim.params)["began"]).exists, SOON_S, f"run {claim.run_id} begins")

    def await_room(self, slots: int = 1) -> None:
        """Wait until the runner has room for this many claims."""
        until(lambda: self.runner.room() >= slots, SOON_S, f"there is room for {slots}")

    def let_go(self) -> None:
        """Let all waiters end."""
        (self._folder / "go").touch()

    def outcome(self, claim: Claim) -> Outcome:
        """Wait for one outcome."""
        return self.gather([claim])[0]

    def gather(self, claims: Iterable[Claim]) -> list[Outcome]:
        """Wait for an outcome of each claim. Collect only after the runner has called back."""
        wanted = [claim.run_id for claim in claims]
        give_up_at = time.monotonic() + SOON_S
        self.collect()
        while not self.outcomes.keys() >= set(wanted):
            missing = sorted(set(wanted) - self.outcomes.keys())
            assert self._news.wait(give_up_at - time.monotonic()), f"no callback for {missing[:10]} within {SOON_S:g} s"
            self._news.clear()
            self.collect()
        return [self.outcomes[run_id] for run_id in wanted]

    def collect(self) -> None:
        """Collect outcomes."""
        for outcome in self.runner.collect():
            claim = self.claims[outcome.run_id]
            assert (outcome.attempt, outcome.token) == (claim.attempt, claim.token)
            assert outcome.run_id not in self.outcomes, f"{outcome} after {self.outcomes[outcome.run_id]}"
            self.outcomes[outcome.run_id] = outcome

    def know_quick_runs(self, slots: int) -> None:
        """Execute quick runs until the runner claims ahead."""

        def is_ahead() -> bool:
            self.gather_quick(max(self.runner.room(), 0))
            return self.runner.room() > slots + 2

        until(is_ahead, SOON_S, "it claims ahead of its slots")

    def begin_before_two(self) -> list[Claim]:
        """Begin a run on the only slot, with two behind it that have not begun; return all three."""
        self.know_quick_runs(slots=1)
        claims = [self.waiter(), self.claim("nothing"), self.claim("nothing")]
        self.submit(*claims)
        self.await_begun(claims[0])
        return claims

    def gather_quick(self, number: int) -> list[Outcome]:
        """Execute this many runs of the job `nothing`."""
        claims = [self.claim("nothing") for _ in range(number)]
        self.submit(*claims)
        return self.gather(claims)

    def hows(self, *claims: Claim) -> list[str]:
        """Wait for the outcomes, and return how the runs ended."""
        return [str(outcome.how) for outcome in self.gather(claims)]

    def _told(self) -> None:
        self.calls += 1
        self._news.set()
