"""Renaming a job permanently, in the ledger and in the databases of its effects: ``app.operations.rename_job``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from fencepost.app.records import RenamedJobRecord
from fencepost.effects.installing import open_database
from fencepost.effects.renaming import has_effects, move_effects, refuse_effects
from fencepost.errors import ConfigurationError
from fencepost.ledger import moving
from fencepost.ledger.jobs import jobs
from fencepost.ledger.journal import About

if TYPE_CHECKING:
    from fencepost.ledger.ledger import Ledger


def rename_job(
    ledger: Ledger,
    old: str,
    new: str,
    *,
    by: str,
    reason: str | None,
    effects: Sequence[str] | None,
    into_existing: bool,
) -> RenamedJobRecord:
    """Rename first in the databases of effects, each in one transaction, and then in the ledger.

    What is renamed first stays renamed if the rest is cut off. So everything that can be refused is looked at before,
    and the ledger stores what was begun: until it is done, nobody gives the job another name.
    """
    if effects is None:
        _refuse_bulk(ledger, {old, new})
    with ExitStack() as opened:
        elsewhere = [opened.enter_context(closing(open_database(url, ledger.runtime))) for url in effects or ()]
        places = (ledger, *elsewhere)
        found = moving.renaming_of(
            ledger,
            old,
            new,
            into_existing=into_existing,
            is_left=lambda: any(has_effects(each, ledger, old) for each in places),
        )
        for each in places:
            refuse_effects(each, ledger, found)
        moving.refuse_running(ledger, found)
        found = moving.begin_renaming(ledger, found, About(by=by, reason=reason))
        moved = [move_effects(each, ledger, found) for each in places]
        done = moving.rename(ledger, found, by=by, reason=reason)
    return RenamedJobRecord(
        name=new,
        formerly=old,
        schedules=done.schedules,
        runs=done.runs,
        checkpoints=sum(each.checkpoints for each in moved),
        letters=sum(each.letters for each in moved),
        schedules_deleted=done.deleted,
        permissions_taken=done.taken,
    )


def _refuse_bulk(ledger: Ledger, names: set[str]) -> None:
    """Refuse to leave out the databases of a bulk job: its effects would land a second time."""
    if any(row.name in names and row.type == "bulk" for row in jobs(ledger)):
        raise ConfigurationError(
            f"{min(names)!r} is a bulk job, whose checkpoints are where it writes to: name each of these databases "
            "with --effects URL (effects=[URL]); if that is only the ledger's own, --effects own (effects=[])"
        )
