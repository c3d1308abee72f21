"""From a due schedule to its runs. Pure: it connects the planner with the rules of `core`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fencepost.core.events import Event, What
from fencepost.core.misfire import plan_schedule
from fencepost.core.ticking import Ticking, kind_of, requested
from fencepost.errors import ConfigurationError
from fencepost.ledger.planning import Left, SchedulePlan, ScheduleRow
from fencepost.ledger.serving import queue_of

_UNREADABLE_FOR_US = 60_000_000  # newer code or zones come with a restart; one warning a minute is enough
_LARGEST_BATCH = 1000  # due times of one schedule per transaction; the rest follows at once


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A schedule that this node could not plan: its texts at that time, and until when it is skipped."""

    texts: tuple[str, str, str]
    until_us: int


class ClockLeapt(Exception):
    """The ledger's clock cannot be trusted, so the plan that is based on it must not be written."""


class Ticks:
    """Decides which runs the ticks of a schedule become.

    `is_believed` checks the ledger's time inside the transaction that plans with it: if a leap were noticed one
    transaction later, every schedule would already be advanced. `is_served` returns whether a living node has a job and
    takes runs from a queue.
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

    def unplannable(self, now_us: int) -> list[str]:
        """Return the ids of schedules that this node cannot plan and must not retry yet."""
        return [name for name, each in self._unreadable.items() if now_us < each.until_us]

    def plan(self, now_us: int, row: ScheduleRow) -> SchedulePlan | Left:
        """Plan one schedule up to the horizon, unless no living node would run it.

        A schedule that this node cannot plan (a newer version made it, the time zone is newer than this machine's) is
        not changed, because other nodes may be able to plan it. This node logs it once, and retries in a minute.
        """
        if not self._is_believed(now_us):
            raise ClockLeapt
        if not self._is_served(row.job, queue_of(row.policy)):
            return Left.UNSERVED
        try:
            plan = self._planned(now_us, row)
        except Exception as error:  # noqa: BLE001 - an error in one schedule must not affect the others
            self._note_unreadable(now_us, row, error)
            return Left.UNREADABLE
        self._unreadable.pop(row.id, None)
        return plan

    def _note_unreadable(self, now_us: int, row: ScheduleRow, error: Exception) -> None:
        known, texts = self._unreadable.get(row.id), (row.spec, row.params, row.policy)
        self._unreadable[row.id] = _Unreadable(texts, now_us + _UNREADABLE_FOR_US)
        if known is None or known.texts != texts:
            why = str(error) if isinstance(error, ConfigurationError) else repr(error)
            reason = f"schedule {row.id!r} cannot be planned by this node, and is left to other nodes: {why}"
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
