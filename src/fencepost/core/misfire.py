"""Misfire: what happens to due times that no node planned in time.

A due time is *late* when it is planned more than `grace` after its time, because all nodes or the ledger were down.
A due time that is not late becomes a run of its own. The policy decides about late ones:

======  =====================================================================================
once    one run for all of them; its window spans from the first to the last
all     a run for each, but only the newest `cap`; the older ones are one misfired stretch
skip    no run; one misfired stretch
======  =====================================================================================

**Promises.** Every due time is covered by exactly one `PlannedStretch`, so none is dropped without a record. Planned
stretches ascend and do not overlap. Missed due times are counted arithmetically, not one by one, so `plan_schedule`
takes milliseconds at most, even after a year of missed seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from fencepost.core.duration import Duration, seconds, spelled
from fencepost.core.schedule import Schedule
from fencepost.core.words import MisfireKind, MisfireWord
from fencepost.errors import InvalidPolicy

SECOND_US = 1_000_000
DEFAULT_GRACE_S = 10.0  # a due time that is a few seconds late is an ordinary delay, not an outage
DEFAULT_CAP = 100  # limits the backlog after a long outage
LARGEST_CAP = 10_000  # as many items as one plan returns
_KINDS: Mapping[str, MisfireKind] = {kind: kind for kind in get_args(MisfireKind)}


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a policy does with late dues: the newest `kept` get a run each, and the others get one run, or none.

    A policy that keeps some and merges the others would need more than an entry here: `fencepost.ledger.misfiring`
    reads ticks in one order to keep the newest, and in the other to merge.
    """

    kept: int | None = 0  # None: as many as the cap says
    merges: bool = False


_RULES: Mapping[MisfireKind, _Rule] = {"once": _Rule(merges=True), "all": _Rule(kept=None), "skip": _Rule()}
_HELP = "there are 'once', 'all', 'all:10' (at most 10) and 'skip'"


@dataclass(frozen=True, slots=True)
class Misfire:
    """The policy for late due times. Create it with `Misfire.of`, which validates."""

    kind: MisfireKind = "once"
    cap: int = DEFAULT_CAP
    grace_us: int = int(DEFAULT_GRACE_S * SECOND_US)

    @staticmethod
    def of(misfire: MisfireWord | Misfire = "once", *, grace: Duration | None = None) -> Misfire:
        """Parse the option of a job: ``once``, ``all``, ``all:10`` or ``skip``, with a grace such as ``10s``."""
        policy = misfire if isinstance(misfire, Misfire) else _parsed(misfire)
        if grace is None:
            return policy
        return Misfire(policy.kind, policy.cap, round(seconds(grace, what="grace") * SECOND_US))

    @property
    def kept(self) -> int:
        """How many late dues, the newest ones, get a run each."""
        kept = _RULES[self.kind].kept
        return self.cap if kept is None else kept

    @property
    def others(self) -> Literal["run", "misfired"]:
        """What the other late dues become together: one run, or one misfired stretch."""
        return "run" if _RULES[self.kind].merges else "misfired"

    @property
    def word(self) -> str:
        """The policy without its grace, as users write it."""
        return f"{self.kind}:{self.cap}" if _RULES[self.kind].kept is None else self.kind

    def late_through_us(self, now_us: int) -> int:
        """Return the last instant at which a due time would be late now."""
        return now_us - self.grace_us - 1

    def __str__(self) -> str:
        return f"{self.word}, grace {spelled(self.grace_us / SECOND_US)}"


@dataclass(frozen=True, slots=True)
class PlannedStretch:
    """A stretch of due times, and its result: one run for all of them, or the record that they misfired."""

    kind: Literal["run", "misfired"]
    first_due_us: int
    due_us: int
    ticks: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write, how far the schedule is then planned, and when to look again."""

    items: tuple[PlannedStretch, ...]
    planned_through_us: int
    next_due_us: int | None


def plan(dues: Sequence[int], *, now_us: int, misfire: Misfire) -> list[PlannedStretch]:
    """Decide about due times that are not planned yet, given in ascending order."""
    late_through_us = misfire.late_through_us(now_us)
    late = [due for due in dues if due <= late_through_us]
    return [*_plan_late(late, misfire), *(_run(due) for due in dues if due > late_through_us)]


def plan_schedule(
    schedule: Schedule,
    *,
    planned_through_us: int,
    until_us: int,
    now_us: int,
    misfire: Misfire,
    limit: int = 10_000,
) -> Plan:
    """Decide about all due times in (planned_through, until], as `plan` would, however many there are.

    Returns at most `limit` items, the earliest. If there are more, the plan ends with the last of them, and the next
    call continues from there. Each call decides again which due times are late.
    """
    late_through_us = min(until_us, misfire.late_through_us(now_us))
    items = _late_of(schedule, planned_through_us, late_through_us, misfire=misfire, limit=limit)
    timely_after_us = max(planned_through_us, late_through_us)
    items += [_run(due) for due in schedule.dues(timely_after_us, until_us, limit - len(items))]
    reached_us = items[-1].due_us if len(items) >= limit else max(planned_through_us, until_us)
    return Plan(tuple(items), reached_us, schedule.due_after(reached_us))


def _plan_late(late: list[int], misfire: Misfire) -> list[PlannedStretch]:
    split = max(len(late) - misfire.kept, 0)
    return [*_stretch(misfire.others, late[:split]), *(_run(due) for due in late[split:])]


def _late_of(
    schedule: Schedule, after_us: int, through_us: int, *, misfire: Misfire, limit: int
) -> list[PlannedStretch]:
    """Do the same as `_plan_late` for the due times in (after, through], but count them instead of listing them."""
    if after_us >= through_us:
        return []
    oldest_kept_us = through_us + 1
    for _ in range(misfire.kept):
        earlier_us = schedule.due_before(oldest_kept_us)
        if earlier_us is None or earlier_us <= after_us:
            break
        oldest_kept_us = earlier_us
    older = _counted(misfire.others, schedule, after_us, oldest_kept_us - 1)
    kept = schedule.dues(max(after_us, oldest_kept_us - 1), through_us, limit - len(older))
    return [*older, *(_run(due) for due in kept)]


def _counted(
    kind: Literal["run", "misfired"], schedule: Schedule, after_us: int, through_us: int
) -> list[PlannedStretch]:
    first_us = schedule.due_after(after_us)
    if first_us is None or first_us > through_us:
        return []
    last_us = schedule.due_before(through_us + 1) or first_us
    return [PlannedStretch(kind, first_us, last_us, schedule.count(after_us, through_us))]


def _stretch(kind: Literal["run", "misfired"], dues: Sequence[int]) -> list[PlannedStretch]:
    return [PlannedStretch(kind, dues[0], dues[-1], len(dues))] if dues else []


def _run(due_us: int) -> PlannedStretch:
    return PlannedStretch("run", due_us, due_us, 1)


def _parsed(text: object) -> Misfire:
    kind, _, cap = text.strip().lower().partition(":") if isinstance(text, str) else ("", "", "")
    known = _KINDS.get(kind)
    if known is None or (cap and _RULES[known].kept is not None):
        raise InvalidPolicy(f"misfire {text!r} is not known; {_HELP}")
    return Misfire(known, _cap(known, cap) if cap else DEFAULT_CAP)


def _cap(kind: MisfireKind, text: str) -> int:
    digits = text.lstrip("0")
    if (
        text.isascii()
        and text.isdigit()
        and len(digits) <= len(str(LARGEST_CAP))
        and 1 <= int(digits or 0) <= LARGEST_CAP
    ):
        return int(digits)
    raise InvalidPolicy(f"misfire '{kind}:{text}': the cap must be a number from 1 to {LARGEST_CAP}")
