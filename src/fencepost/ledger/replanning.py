"""Due times between a change of a schedule and the time up to which planners, who work ahead, had planned its old form.

Planners continue from `planned_through`, which never falls: nodes that remember it would conclude that the ledger was
restored. So the transaction that changes a schedule also plans its new form, from the change up to there. Runs that
were planned for the old form stay, and run. A due time that both forms have is one run.
"""

from __future__ import annotations

from fencepost.core.misfire import PlannedStretch
from fencepost.core.ticking import Ticking, kind_of, requested
from fencepost.errors import InvalidPolicy
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.dialects.statements import statements_for
from fencepost.ledger.planning import insert_runs
from fencepost.ledger.run_rows import HORIZON_US

_MOST = 10_000  # due times that are planned again


def plan_again(
    database: Database, cursor: Cursor, which: Ticking, stretch_us: tuple[int, int], *, skip_why: str | None
) -> None:
    """Plan the due times within a stretch, after its start, that are not planned yet.

    With `skip_why` they are recorded as skipped for that reason; also if this version cannot read the policy of the
    job.
    """
    after_us, until_us = stretch_us
    try:
        kind = kind_of(which)
    except InvalidPolicy:  # of a later release: the planner reports it
        kind, skip_why = kind_of(which._replace(policy="{}")), skip_why or "schedule changed"
    dues = kind.schedule.dues(after_us, until_us, _MOST)
    runs = [requested(which, kind, PlannedStretch("run", due_us, due_us, 1)) for due_us in dues]
    if skip_why is not None:
        runs = [run._replace(state="skipped", exclusive_key=None, why=skip_why) for run in runs]
    if runs:
        statements = statements_for(database.connect("words"))
        insert_runs(cursor, statements, runs, now_us=statements.now_us(cursor), horizon_us=HORIZON_US)
        statements.notify(cursor)
