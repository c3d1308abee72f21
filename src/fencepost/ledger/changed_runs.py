"""Repetitions with other parameters: ``fencepost retry 42 -p account=8``.

Such a run does other work than the one that it repeats. It refers to that run (`retry_of`) and has its window, its due
time and its schedule, because they say which data it is about. All else that names work is its own:

- Its root is the run itself (`fencepost.ledger.roots`), also for nodes of older versions. So a bulk job without a
  window gives it a new instance, and it never continues the checkpoints of the first run. With a window, the instance
  is named after the parameters anyway.
- Its hash is that of its own parameters, so a later request for the same finds it.
- It has no origin key, and `reprocess` does not count it as a repetition: a run that was given up can still be repeated
  with its own parameters. Older versions count it.

**Not promised.** That the first run's work is done: nobody but the person who asked knows that.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sqlalchemy import update

from fencepost.core.identity import canonical_json
from fencepost.core.noted import Noted
from fencepost.core.runs import Requested
from fencepost.errors import StateChanged
from fencepost.ledger.dialects.statements import statements_for
from fencepost.ledger.duplicates import live_twin
from fencepost.ledger.history import run_row
from fencepost.ledger.journal import About, note
from fencepost.ledger.recording import Enqueued, record
from fencepost.ledger.roots import Root

if TYPE_CHECKING:
    from fencepost.ledger.database import Database
    from fencepost.ledger.dialects import Cursor
    from fencepost.ledger.history import RunRow


def has_params_of(row: RunRow, changed: Requested) -> bool:
    """Whether the parameters are those of the run: then it is an ordinary repetition."""
    return canonical_json(json.loads(row.params)) == changed.params


def repeat_changed(database: Database, cursor: Cursor, row: RunRow, changed: Requested, *, again: bool) -> Enqueued:
    """Record a repetition of `row`, which is locked, with other parameters. Lock the row of the job first.

    Unless `again` is set, raise `AlreadyRequested` while a run that does the same has not ended.
    """
    if changed.job != row.job:
        raise StateChanged(f"the job of run {row.id} was renamed meanwhile, and nothing was done")
    twin = None if again else live_twin(database, cursor, changed)
    if twin is not None:
        raise twin.refusal()
    [made] = record(database, cursor, [changed._replace(retry_of=row.id)])
    _make_own_root(database, cursor, made.run_id)
    about = About(job=row.job, run_id=made.run_id, schedule=row.schedule, by=changed.requested_by)
    detail = {"retry_of": row.id, "changed": _names_changed(row.params, changed.params)}
    note(database, cursor, Noted.RUN_RETRIED, about._replace(reason=changed.reason, detail=detail))
    statements_for(database.connect("words")).notify(cursor)
    return made


def _make_own_root(database: Database, cursor: Cursor, run_id: int) -> None:
    run = database.tables.run
    root = Root(run_id, False, run_row(database, cursor, run_id).created_at)
    database.change(cursor, update(run).where(run.c.id == run_id).values(root=root.to_text()))


def _names_changed(before: str, after: str) -> list[str]:
    """Return the names of the parameters that differ, never their values: the runs have those."""
    old, new = json.loads(before), json.loads(after)
    return sorted(name for name in {*old, *new} if (name in old, old.get(name)) != (name in new, new.get(name)))
