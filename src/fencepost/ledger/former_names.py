"""Which names fit a rename for good, by the former names that jobs on record have in their code (`formerly`).

What a job has is stored under its first name, whatever it is called now. So a rename may take the first name of the job
that gets everything, with the names in between, and no name of a third job.

**Not promised.** Anything about a program that declares other names later: `fencepost.ledger.renaming` refuses those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import select

from fencepost.core.nearest import suggestion
from fencepost.errors import LedgerRefused, NoSuchJob
from fencepost.ledger.dialects.statements import statements_for
from fencepost.ledger.nodes import living_nodes
from fencepost.ledger.renaming import formers, name_now

if TYPE_CHECKING:
    from fencepost.ledger.database import Database
    from fencepost.ledger.dialects import Cursor
    from fencepost.ledger.jobs import JobRow
    from fencepost.ledger.moving import Renaming

_OPEN = "SELECT r.id FROM {run} r WHERE r.job = %s AND {was:r.state} IN ('queued', 'waiting', 'running') LIMIT 1"


def refuse_names(known: Mapping[str, tuple[str, ...]], old: str, new: str, *, is_known: bool) -> None:
    """Raise if the names do not fit what is stored: the jobs on record, with their former names."""
    if old not in known and known.get(new, ())[:1] != (old,) and not is_known:
        raise NoSuchJob(old, suggestion(old, known)) if known else NoSuchJob(old)
    if known.get(old):
        first = f"fencepost jobs rename {known[old][0]} {old}"
        raise LedgerRefused(
            f"job {old!r} is stored under its first name, {known[old][0]!r}. Run: {first}; and then: fencepost jobs "
            f"rename {old} {new}"
        )
    if known.get(new, ())[:1] not in ((), (old,)):
        raise LedgerRefused(
            f"job {new!r} has other former names: {', '.join(known[new])}. To rename {old!r} to it, remove them first: "
            f"fencepost jobs rename {known[new][0]} {new}"
        )


def names_between(known: Mapping[str, tuple[str, ...]], old: str, new: str) -> tuple[str, ...]:
    """Return the names that a job had after `old` and before `new`, according to what is stored of its code."""
    first, *between = known.get(new) or (old,)
    if first != old:
        return ()
    if others := [name for name in between if name in known and known[name][:1] != (old,)]:
        raise LedgerRefused(
            f"job {new!r} has {others[0]!r} among its former names, which is a job of its own on record: if no program "
            f"has that any more, run: fencepost jobs forget {others[0]}; or leave it out of formerly"
        )
    return tuple(between)


def heirs_of(known: Mapping[str, tuple[str, ...]], renaming: Renaming) -> dict[str, str]:
    """Return the jobs of other names that had the old name or the new one, each with that name."""
    pair = (renaming.old, renaming.new)
    had = {name: [each for each in pair if each in names] for name, names in known.items()}
    return {name: found[0] for name, found in had.items() if found and name not in renaming.own}


def goes_on(database: Database, names: Sequence[str], *, owner: str) -> bool:
    """Whether runs of these names have not ended, or schedules belong to a job of the name `owner`."""
    statements, c = statements_for(database), database.tables.schedule.c
    owned = select(c.id).where(c.job == owner, c.deleted_at.is_(None)).limit(1)

    def work(cursor: Cursor) -> bool:
        found = any(statements.rows(cursor, _OPEN, name) for name in names)
        return found or bool(database.rows(cursor, owned))

    return database.read(work)


def _of_withdrawn(database: Database, heir: str, names: Sequence[str], now: str) -> str:
    """Say what to do about a newer name after which a program with `now` was started."""
    said = f"A program with {now!r} was started after that. "
    if goes_on(database, [heir], owner=heir):
        return said + (
            f"But runs or schedules have the name {heir!r}: if both are one job, list all of its former names in the "
            f"code of {now!r} (formerly={[*names]!r}), start that, and run this command again"
        )
    return said + f"If {heir!r} was withdrawn, run: fencepost jobs forget {heir}; and then this command again"


def refuse_heirs(database: Database, recorded: Sequence[JobRow], renaming: Renaming) -> None:
    """Raise if one of the names is the former name of a third job, which has its schedules, keys and checkpoints."""
    old, new, *_ = renaming
    known = {row.name: formers(row.policy) for row in recorded}
    if new in known.get(old, ()):
        raise LedgerRefused(
            f"job {old!r} had the name {new!r} before: to go back to it, deploy the code with the name {new!r} and "
            f"without formerly. After that, {old!r} can be forgotten: fencepost jobs forget {old}"
        )
    heirs = heirs_of(known, renaming)
    living = {name for node in living_nodes(database) for name in node.jobs}
    for name in sorted(set(heirs.values()), key=[old, new].index):
        heir = now = name_now(name, recorded, living)
        if now not in heirs:
            heir = max(each for each, had in heirs.items() if had == name)
            advice = _of_withdrawn(database, heir, [*known[heir], heir], now)
        else:
            first = f"fencepost jobs rename {known[heir][0]} {heir}"
            advice = (
                f"To give that job another name for good, run: {first}; and then: fencepost jobs rename {heir} {new}"
                if name == old
                else f"Choose a name that no job had; or take it from that job first: {first}"
            )
        raise LedgerRefused(
            f"{name!r} is a former name of job {heir!r} (formerly), whose schedules, keys and checkpoints have it: "
            f"nothing was renamed. {advice}"
        )
