"""Due times that come between a change of a schedule and where planners, who work ahead, had planned its old form.

Planners go on from `planned_through`, which never falls: nodes that remember it would take the ledger for restored. So
whoever changes a schedule plans the new form from the change up to there, in the transaction of the change. What was
planned ahead by the old form stays, and runs: a due time that both have is one run.
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

_MOST = 10_000


def plan_again(
    database: Database, cursor: Cursor, which: Ticking, stretch_us: tuple[int, int], *, skip_why: str | None
) -> None:
    """Plan what is due in a stretch, without its start, unless it is planned; or record it as skipped for `skip_why`.

    It is skipped, too, if this version cannot read the job's policy.
    """
    after_us, until_us = stretch_us
    try:
        kind = kind_of(which)
    except InvalidPolicy:  # of a later release: the planner will tell
        kind, skip_why = kind_of(which._replace(policy="{}")), skip_why or "schedule changed"
    dues = kind.schedule.dues(after_us, until_us, _MOST)
    runs = [requested(which, kind, PlannedStretch("run", due_us, due_us, 1)) for due_us in dues]
    if skip_why is not None:
        runs = [run._replace(state="skipped", exclusive_key=None, why=skip_why) for run in runs]
    if runs:
        statements = statements_for(database.connect("words"))
        insert_runs(cursor, statements, runs, now_us=statements.now_us(cursor), horizon_us=HORIZON_US)
        statements.notify(cursor)
