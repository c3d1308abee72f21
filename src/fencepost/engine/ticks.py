"""From a due schedule to the runs it asks for: pure, between the planner and the rules of `core`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fencepost.core.events import Event, What
from fencepost.core.misfire import plan_schedule
from fencepost.core.ticking import Ticking, kind_of, requested
from fencepost.errors import ConfigurationError
from fencepost.ledger.planning import Left, SchedulePlan, ScheduleRow
from fencepost.ledger.serving import queue_of

_UNREADABLE_FOR_US = 60_000_000
_LARGEST_BATCH = 1000


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A schedule that this node could not plan, as it was then, and until when it is passed by."""

    texts: tuple[str, str, str]
    until_us: int


class ClockLeapt(Exception):
    """The ledger's clock is not to be believed: whatever was about to be planned by it must not be written."""


class Ticks:
    """Decides what becomes of the ticks of a schedule.

    `is_believed` is asked about the ledger's time before anything is decided by it, inside the transaction that would
    write it: a leap that is noticed one transaction later has moved every schedule already. `is_served` says whether a
    living node has a job and takes runs from a queue.
    """

    def __init__(
        self,
        *,
        horizon_us: int,
        emit: Callable[[Event], None],
        is_believed: Callable[[int], bool],
        is_served: Callable[[str, str], bool] = lambda *_: True,
    ) -> None:
        self._is_believed = is_believed
        self._is_served = is_served
        self._horizon_us = horizon_us
        self._emit = emit
        self._unreadable: dict[str, _Unreadable] = {}

    def passed_by(self, now_us: int) -> list[str]:
        """Return the ids of schedules that this node cannot plan, and is not to try again yet."""
        return [name for name, each in self._unreadable.items() if now_us < each.until_us]

    def plan(self, now_us: int, row: ScheduleRow) -> SchedulePlan | Left:
        """Plan one schedule up to the horizon, unless no living node would run it.

        One that this node cannot plan (a newer version made it, the time zone is newer than this machine's) is left as
        it is, for others may be able to; this node logs it once, and tries again in a minute.
        """
        if not self._is_believed(now_us):
            raise ClockLeapt
        if not self._is_served(row.job, queue_of(row.policy)):
            return Left.UNSERVED
        try:
            plan = self._planned(now_us, row)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one schedule is wrong with that one alone
            self._pass_by(now_us, row, error)
            return Left.UNREADABLE
        self._unreadable.pop(row.id, None)
        return plan

    def _pass_by(self, now_us: int, row: ScheduleRow, error: Exception) -> None:
        known, texts = self._unreadable.get(row.id), (row.spec, row.params, row.policy)
        self._unreadable[row.id] = _Unreadable(texts, now_us + _UNREADABLE_FOR_US)
        if known is None or known.texts != texts:
            why = str(error) if isinstance(error, ConfigurationError) else repr(error)
            reason = f"schedule {row.id!r} cannot be planned by this node, and is left to others: {why}"
            self._emit(Event(What.LEDGER_TROUBLE, job=row.job, reason=reason))

    def _planned(self, now_us: int, row: ScheduleRow) -> SchedulePlan:
        which = Ticking(row.id, row.job, row.spec, row.params, row.origin, row.generation, row.policy)
        kind = kind_of(which)
        plan = plan_schedule(
            kind.schedule,
            planned_through_us=row.planned_through,
            until_us=now_us + self._horizon_us,
            now_us=now_us,
            misfire=kind.misfire,
            limit=_LARGEST_BATCH,
        )
        runs = [requested(which, kind, item) for item in plan.items]
        return SchedulePlan(runs, plan.planned_through_us, plan.next_due_us)
