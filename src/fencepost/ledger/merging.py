"""A rename to the name of another job: what that one has of its own, which the rename would mix with what is renamed.

Nothing tells afterwards which of the two jobs a run belonged to, and who may operate one would operate both. So it is
refused unless a person says that both are the same work. What is no merge: a name that no job has, a job on record that
has nothing yet, and a job whose code says ``formerly=`` the old name, which is the same job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import func, select

from fencepost.errors import LedgerRefused
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.schedule_rows import StoredSchedule, every_row


def refuse_merge(database: Database, old: str, names: Sequence[str]) -> None:
    """Refuse to rename `old` to the first of `names` if one of these jobs has schedules, runs or permissions."""
    has = database.read(lambda cursor: [*_belongings(database, cursor, names)])
    if has:
        new = names[0]
        raise LedgerRefused(
            f"{new!r} is another job on record, which has {_listed(has)}: {old!r} and {new!r} would become one job for "
            "good, and nothing was renamed. Choose a name that no job has. Only if both are the same work, say so with "
            f"--into-existing (into_existing=True): runs and schedules of {old!r} then go on as {new!r}; of two "
            f"schedules of the same place in the code that of {old!r} is deleted; and permissions on {old!r} are taken "
            "away, since they say nothing about the other job"
        )


def refuse_schedules_of_others(database: Database, names: Sequence[str], renamed: Callable[[str], str | None]) -> None:
    """Refuse to give a schedule of a job an id that a schedule of another one has. `renamed`: the new id of one.

    `names` are those of the job: the old name first.
    """
    c = database.tables.schedule.c

    def work(cursor: Cursor) -> None:
        ours = database.rows(cursor, select(c.id).where(c.job.in_(names), c.deleted_at.is_(None)))
        wanted = sorted({renamed(row[0]) or row[0] for row in ours} - {row[0] for row in ours})
        for row in database.rows(cursor, every_row(database).where(c.id.in_(wanted)).order_by(c.id)):
            refuse_other_owner(StoredSchedule(*row), names)

    database.read(work)


def refuse_other_owner(there: StoredSchedule, names: Sequence[str]) -> None:
    """Refuse to take over a schedule that belongs to none of the names, unless it is deleted."""
    if there.deleted_at is None and there.job not in names:
        raise LedgerRefused(
            f"the schedule {there.id!r} of job {there.job!r} has the id that a schedule of {names[0]!r} would get: "
            f"make it anew under another id and delete it (fencepost schedules delete {there.id}), or choose another "
            "name"
        )


def _belongings(database: Database, cursor: Cursor, names: Sequence[str]) -> list[str]:
    schedule, run = database.tables.schedule.c, database.tables.run.c
    permission = database.tables.operating["permission"].c
    kept = _number(database, cursor, schedule.id, schedule.job.in_(names), schedule.deleted_at.is_(None))
    newest = [
        row[0]
        for name in names
        for row in database.rows(cursor, select(run.id).where(run.job == name).order_by(run.id.desc()).limit(1))
    ]
    given = _number(database, cursor, permission.principal, permission.job.in_(names))
    return [
        *([_counted(kept, "schedule")] if kept else []),
        *([f"runs (the newest is run {max(newest)})"] if newest else []),
        *([_counted(given, "permission")] if given else []),
    ]


def _number(database: Database, cursor: Cursor, column: Any, *conditions: Any) -> int:
    return int(database.rows(cursor, select(func.count(column)).where(*conditions))[0][0])


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
