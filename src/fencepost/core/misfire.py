"""Misfire: what becomes of due times that nobody planned in time.

A due is *late* when it is planned more than `grace` after its time: all nodes were down, or the ledger was.
A due that is not late becomes a run of its own. Late ones follow the policy:

======  =====================================================================================
once    one run for all of them; its window spans from the first to the last
all     a run for each, but only the newest `cap`; the older ones are one misfired stretch
skip    no run; one misfired stretch
======  =====================================================================================

**Promises.** Every due is covered by exactly one `PlannedStretch`: nothing is silent. Planned stretches ascend and do
not overlap. A year of missed seconds is counted, not walked, so `plan_schedule` takes milliseconds at most.
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
DEFAULT_GRACE_S = 10.0
DEFAULT_CAP = 100
LARGEST_CAP = 10_000
_KINDS: Mapping[str, MisfireKind] = {kind: kind for kind in get_args(MisfireKind)}
_HELP = "there are 'once', 'all', 'all:10' (at most 10) and 'skip'"


@dataclass(frozen=True, slots=True)
class Misfire:
    """The policy for late dues. Make it with `Misfire.of`, which validates."""

    kind: MisfireKind = "once"
    cap: int = DEFAULT_CAP
    grace_us: int = int(DEFAULT_GRACE_S * SECOND_US)

    @staticmethod
    def of(misfire: MisfireWord | Misfire = "once", *, grace: Duration | None = None) -> Misfire:
        """Read what users write: ``once``, ``all``, ``all:10``, ``skip``, with a grace such as ``10s``."""
        policy = misfire if isinstance(misfire, Misfire) else _parsed(misfire)
        if grace is None:
            return policy
        return Misfire(policy.kind, policy.cap, round(seconds(grace, what="grace") * SECOND_US))

    def late_through_us(self, now_us: int) -> int:
        """Return the last instant whose due would be late now."""
        return now_us - self.grace_us - 1

    def __str__(self) -> str:
        kind = f"all:{self.cap}" if self.kind == "all" else self.kind
        return f"{kind}, grace {spelled(self.grace_us / SECOND_US)}"


@dataclass(frozen=True, slots=True)
class PlannedStretch:
    """What becomes of a stretch of dues: one run for them, or the record that they misfired."""

    kind: Literal["run", "misfired"]
    first_due_us: int
    due_us: int
    ticks: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write, how far the schedule is planned then, and when to look again."""

    items: tuple[PlannedStretch, ...]
    planned_through_us: int
    next_due_us: int | None


def plan(dues: Sequence[int], *, now_us: int, misfire: Misfire) -> list[PlannedStretch]:
    """Decide about dues, given ascending, that nobody planned yet."""
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
    """Decide about all dues in (planned_through, until], as `plan` would, however many they are.

    At most `limit` items are returned, the earliest; if there are more, the plan reaches only as far as they
    do, and the next call goes on from there. What is late is judged anew by each call.
    """
    late_through_us = min(until_us, misfire.late_through_us(now_us))
    items = _late_of(schedule, planned_through_us, late_through_us, misfire=misfire, limit=limit)
    timely_after_us = max(planned_through_us, late_through_us)
    items += [_run(due) for due in schedule.dues(timely_after_us, until_us, limit - len(items))]
    reached_us = items[-1].due_us if len(items) >= limit else max(planned_through_us, until_us)
    return Plan(tuple(items), reached_us, schedule.due_after(reached_us))


def _plan_late(late: list[int], misfire: Misfire) -> list[PlannedStretch]:
    if misfire.kind != "all":
        return _stretch("run" if misfire.kind == "once" else "misfired", late)
    older, newest = late[: -misfire.cap], late[-misfire.cap :]
    return [*_stretch("misfired", older), *(_run(due) for due in newest)]


def _late_of(
    schedule: Schedule, after_us: int, through_us: int, *, misfire: Misfire, limit: int
) -> list[PlannedStretch]:
    """Do what `_plan_late` does for the dues in (after, through], but count them instead of listing them."""
    if after_us >= through_us:
        return []
    if misfire.kind != "all":
        return _counted("run" if misfire.kind == "once" else "misfired", schedule, after_us, through_us)
    oldest_kept_us = through_us + 1
    for _ in range(misfire.cap):
        earlier_us = schedule.due_before(oldest_kept_us)
        if earlier_us is None or earlier_us <= after_us:
            break
        oldest_kept_us = earlier_us
    older = _counted("misfired", schedule, after_us, oldest_kept_us - 1)
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
    if known == "all":
        return Misfire(known, _cap(cap) if cap else DEFAULT_CAP)
    if known is None or cap:
        raise InvalidPolicy(f"misfire {text!r} is not known; {_HELP}")
    return Misfire(known)


def _cap(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= LARGEST_CAP:
        return int(text)
    raise InvalidPolicy(f"misfire 'all:{text}': the cap is a number from 1 to {LARGEST_CAP}")
