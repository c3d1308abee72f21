"""The name of an instance's checkpoints: prefixed with the ledger's identity, or without it as in older versions.

Work continues under the name with which it was begun, and an instance that is complete under either name is complete.
New work gets the name with the identity, unless nodes of an older version take part, which would not find it
(`fencepost.ledger.naming`).

Checkpoints without the identity may belong to another ledger that shares the database. They count as ours unless this
ledger knows that the last run that moved them belongs to another job or never had that token. If that run is no longer
recorded, they count as ours, because doing nothing twice has priority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from fencepost.errors import NoSuchRun
from fencepost.ledger import history
from fencepost.ledger.naming import naming
from fencepost.ledger.renaming import first_name

if TYPE_CHECKING:
    from fencepost.bulk.checkpoint import StoredCheckpoint
    from fencepost.ledger.database import Database

PART = "/part"
COMPLETE = "complete"
Look = Callable[[str], Iterable["StoredCheckpoint"]]
"""Returns the stored plans of an instance's steps under a label."""


def label_of(ledger: Database, job: str, instance: str, look: Look, *, asked_at_us: int | None = None) -> str:
    """Return the name of an instance in its checkpoints' names; `job` is the job's first name."""
    names = naming(ledger)
    ours = names.instance(instance)
    if names.nameless_until is None or any(True for _ in look(ours)):
        return ours
    found = list(look(instance))
    if found:
        return instance if all(_is_ours(ledger, job, each, asked_at_us) for each in found) else ours
    return instance if names.is_mixed else ours


def _is_ours(ledger: Database, job: str, plan: StoredCheckpoint, asked_at_us: int | None) -> bool:
    then_us = plan.mark.more.get("asked_at")
    if then_us is not None and asked_at_us is not None:
        return bool(then_us == asked_at_us)
    run_id = plan.mark.more.get(COMPLETE, plan.mark.run)
    if run_id is None or plan.token is None:
        return True
    try:
        row = history.run(ledger, run_id)
    except NoSuchRun:
        return True
    tokens = {row.token, *(each.token for each in history.attempts(ledger, run_id))}
    is_of_job = row.job in (job, job + PART) or first_name(ledger, row.job.removesuffix(PART)) == job
    return is_of_job and plan.token in tokens
