"""How the scope of a caller is applied: what is outside of it looks as if it did not exist.

**Promises.** What a caller may not see is answered by the same error as what does not exist. What may be seen but not
acted on is `NotAllowed`, which names the role. The rights to act on a run or schedule are checked by its own row, in
the transaction of the act.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from fencepost.app.people import person
from fencepost.app.records import ScheduleRecord
from fencepost.app.records.versions import run_version, schedule_version
from fencepost.core.rights import ANOTHER_JOB, HumanAct, Scope
from fencepost.errors import (
    AlreadyRequested,
    DuplicateRequest,
    NoSuchJob,
    NoSuchRun,
    NoSuchSchedule,
    NotAllowed,
    StateChanged,
)
from fencepost.ledger.auditing import acting_as

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fencepost.ledger.history import RunRow
    from fencepost.ledger.requests import RunCheck
    from fencepost.ledger.schedule_rows import StoredSchedule
    from fencepost.ledger.schedules import RowCheck

_LABEL = re.compile(r"run [\d*]+ of (['\"])(.+)\1")  # as a run is called that asks for another one


def actor(scope: Scope, by: object) -> str:
    """Return who acts: the caller of the scope. One who reaches the database itself says so with `by`."""
    return person(by) if scope.is_direct else scope.caller.name


def actor_or_none(scope: Scope, by: str | None) -> str | None:
    """Return who acts, where a program may act without naming a person."""
    return by if scope.is_direct else scope.caller.name


def acting(scope: Scope) -> AbstractContextManager[None]:
    """Record what is done within this block as done by the scope's caller, with how that was identified."""
    return nullcontext() if scope.is_direct else acting_as(scope.caller)


def require_job(scope: Scope, act: HumanAct, job: str) -> None:
    """Raise unless `act` is allowed on a job: `NoSuchJob` if it may not even be seen."""
    if not scope.sees(job):
        raise NoSuchJob(job)
    scope.require(act, job)


def jobs_to_repeat(scope: Scope, job: str | None) -> frozenset[str] | None:
    """Return the jobs whose runs the caller may reprocess, None for all; raise if there is none, or not `job`."""
    if job is not None:
        require_job(scope, HumanAct.REPROCESS, job)
    allowed = scope.jobs_for(HumanAct.REPROCESS)
    if allowed is not None and not allowed:
        scope.require(HumanAct.REPROCESS)
    for each in scope.roles if job is None else ():  # any of them may be repeated, and its role may have to say why
        if scope.may(HumanAct.REPROCESS, each):
            scope.require(HumanAct.REPROCESS, each or None)
    return allowed


def run_check(scope: Scope, act: HumanAct, expect: str | None = None) -> RunCheck:
    """Return what looks at the row of a run before `act`: whether it is allowed, and whether it is as expected."""

    def check(row: RunRow) -> None:
        if not scope.sees(row.job):
            raise NoSuchRun(row.id)
        scope.require(act, row.job)
        if expect is not None and run_version(row) != expect:
            raise StateChanged(f"run {row.id} has changed since: it is {row.state} now, and nothing was done")

    return check


def schedule_check(scope: Scope, act: HumanAct, expect: str | None = None) -> RowCheck:
    """Return what looks at the row of a schedule before `act`: whether it is allowed, and whether it is as expected."""

    def check(row: StoredSchedule) -> None:
        if not scope.sees(row.job):
            raise NoSuchSchedule(row.id)
        scope.require(act, row.job)
        _compare(row, expect)

    return check


def schedule_id_check(scope: Scope, expect: str | None = None) -> RowCheck:
    """Return what looks at the row that has the id of a schedule to be put, also one that was deleted."""

    def check(row: StoredSchedule) -> None:
        if not scope.sees(row.job):
            raise NotAllowed(
                f"the schedule id {row.id!r} cannot be used here: choose another one", act=HumanAct.PUT_SCHEDULE
            )
        scope.require(HumanAct.PUT_SCHEDULE, row.job)
        _compare(row, expect)

    return check


def _compare(row: StoredSchedule, expect: str | None) -> None:
    if expect is not None and (row.deleted_at is not None or schedule_version(ScheduleRecord.of(row)) != expect):
        raise StateChanged(f"schedule {row.id!r} has changed since, and nothing was done")


@contextmanager
def hiding_others(scope: Scope) -> Iterator[None]:
    """Name no run of a job outside of the scope where a key was used before."""
    try:
        yield
    except AlreadyRequested:  # the same request, so of the same job
        raise
    except DuplicateRequest as error:
        if scope.sees(error.job):
            raise
        raise DuplicateRequest(error.origin_key, run_id=0, job=ANOTHER_JOB, is_shown=False) from None


def masked(text: str | None, scope: Scope) -> str | None:
    """Return who asked for a run, as the caller may read it: a run of another job may have."""
    if text is None or scope.visible is None:
        return text
    found = _LABEL.fullmatch(text)
    return text if found is None or scope.sees(found[2]) else ANOTHER_JOB
