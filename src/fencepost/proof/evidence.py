"""The input of the checkers at the end: the history, the final state of the ledger, the effects, and what was due.

Times of the ledger are microseconds since 1970. Unknown values are left empty, and a checker that needs them then
reports nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost.proof.history import History

# A copy on purpose, so that a mistake in the engine's own table is noticed.
FINAL = frozenset({"succeeded", "dead", "cancelled", "skipped", "misfired"})


@dataclass(frozen=True, slots=True)
class Due:
    """A due time that an independent oracle has computed, and its job."""

    schedule: str
    job: str
    at_us: int


@dataclass(frozen=True, slots=True)
class RunSeen:
    """A run as it is in the ledger at the end.

    `due_us` is its due time if it comes from a schedule. It stands for `ticks` due times, of which `from_us` is the
    first. `request_key` is the key of its request. `origin_key` begins with ``tick:`` for the runs of a schedule.
    `retry_of` is the run that an operator repeated with this one.
    """

    id: int
    job: str
    state: str
    schedule: str | None = None
    due_us: int | None = None
    from_us: int | None = None
    ticks: int = 1
    exclusive_key: str | None = None
    request_key: str | None = None
    payload_hash: str | None = None
    attempts: int = 0
    crashes: int = 0
    failures: int = 0
    origin_key: str | None = None
    retry_of: int | None = None
    waits_for: str | None = None
    available_us: int | None = None
    ended_us: int | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it is in a final state."""
        return self.state in FINAL

    @property
    def span_us(self) -> tuple[int, int]:
        """The first and the last due time that it stands for."""
        due_us = self.due_us or 0
        return (due_us if self.from_us is None else self.from_us), due_us

    @property
    def is_tick(self) -> bool:
        """Whether it is a schedule's own run for its due times, and not a back-fill or a repetition."""
        is_own = self.origin_key is None or self.origin_key.startswith("tick:")
        return is_own and self.retry_of is None and self.schedule is not None and self.due_us is not None


@dataclass(frozen=True, slots=True)
class AttemptSeen:
    """An attempt as it is in the ledger, with times of the ledger's clock. `ended_us` is None if it has not ended."""

    run_id: int
    number: int
    token: int
    node: str
    outcome: str | None
    started_us: int | None
    ended_us: int | None
    counts: bool = True  # whether it counts as a crash if it was lost


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of a run's state, in the order of commits."""

    run_id: int
    before: str | None
    after: str
    token: int | None = None


@dataclass(frozen=True, slots=True)
class Effect:
    """A committed write, in the order of commits. `resource` is what the fence guards, `key` identifies the work."""

    resource: str
    key: str
    token: int
    grant: str
    run_id: int | None = None


@dataclass(frozen=True, slots=True)
class JobRules:
    """The policy of a job: its overlap, its retries, and the pauses before them."""

    overlap: str
    retries: int
    pauses_s: tuple[float, ...] = ()
    crashes_allowed: int | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """The timings of the cluster. `quiet_from` is when the last fault had ended, on the history's clock."""

    ttl_s: float
    poll_s: float
    quiet_from: float
    ended_at: float
    store_was_away: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that is known at the end. `wall_us_at_0` is the true time at which the history's clock read zero."""

    history: History
    timing: Timing
    due: tuple[Due, ...] = ()
    runs: tuple[RunSeen, ...] = ()
    attempts: tuple[AttemptSeen, ...] = ()
    transitions: tuple[Transition, ...] = ()
    effects: tuple[Effect, ...] = ()
    jobs: Mapping[str, JobRules] = field(default_factory=dict)
    wall_us_at_0: int = 0
    tokens_are_durable: bool = True
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: the checker that found it, what happened, and details."""

    checker: str
    what: str
    about: str = ""

    def __str__(self) -> str:
        return f"{self.checker}: {self.what}" + (f" ({self.about})" if self.about else "")


def attempts_by_run(attempts: tuple[AttemptSeen, ...]) -> dict[int, list[AttemptSeen]]:
    """Return the attempts of each run, in their order."""
    found: dict[int, list[AttemptSeen]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda each: (each.run_id, each.number)):
        found[attempt.run_id].append(attempt)
    return found
