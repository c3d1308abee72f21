"""Deciding about a ledger that was restored from a dump, or copied: ``app.operations.restored``.

Until a person has decided, nodes plan and claim nothing. See `fencepost.ledger.restoring` for what a decision does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from fencepost.app.held import lease_identity, standing_of
from fencepost.app.people import reason_given
from fencepost.app.records import DecisionRecord, StandingRecord
from fencepost.app.scoped import acting, actor
from fencepost.core.rights import HumanAct
from fencepost.errors import ConfigurationError, InvalidParameters
from fencepost.ledger.restoring import ID_GAP, Pending, accept, as_copy

if TYPE_CHECKING:
    from fencepost.core.rights import Scope
    from fencepost.ledger.ledger import Ledger

PendingWord = Literal["hold", "run", "cancel"]


class RestoredLedger:
    """Whether a ledger was restored or copied, and what a person decides about it."""

    def __init__(self, ledger: Ledger, scope: Scope) -> None:
        """Decide about `ledger`, as `scope` allows."""
        self._ledger = ledger
        self._scope = scope

    def standing(self) -> StandingRecord:
        """Return whether a decision is needed, and what differs from what was noted."""
        self._scope.require(HumanAct.LOOK)
        seen, changed = standing_of(self._ledger)
        return StandingRecord(
            held=bool(changed) or seen.held_why is not None,
            changed=tuple(changed),
            id=seen.ledger.ledger_id,
            noted=seen.noted,
            present=seen.present,
            why=seen.held_why,
        )

    def accept(
        self,
        *,
        by: str,
        reason: str,
        pending: PendingWord = "hold",
        id_gap: int = ID_GAP,
        unnoticed: bool = False,
    ) -> DecisionRecord:
        """Accept it as the same ledger, which replaces one that is gone.

        Due times since the dump are skipped, one row per schedule; `backfill` repeats what is needed. `pending` says
        what becomes of runs that had not ended in the dump, `id_gap` how many ids of runs are left out. `unnoticed`
        decides although no difference was noticed, because all nodes were stopped meanwhile.
        """
        self._scope.require(HumanAct.ACCEPT_LEDGER)
        if pending not in get_args(PendingWord):
            words = ", ".join(get_args(PendingWord))
            raise InvalidParameters(f"pending={pending!r} is not known; there are {words}")
        if id_gap < 1:
            raise InvalidParameters(f"id_gap={id_gap}: leave out at least one id")
        who, why = actor(self._scope, by), reason_given(reason)
        self._refuse_without_cause(unnoticed=unnoticed)
        leases = lease_identity(self._ledger)
        with acting(self._scope):
            done = accept(self._ledger, by=who, reason=why, runs=Pending(pending), id_gap=id_gap, leases=leases)
        return DecisionRecord.of(done, copy=False)

    def as_copy(self, *, by: str, reason: str, unnoticed: bool = False) -> DecisionRecord:
        """Accept it as a copy with a new identity, while the original continues elsewhere.

        Every run that has not ended is cancelled, and schedules that were made at run time are paused.
        """
        self._scope.require(HumanAct.ACCEPT_LEDGER)
        who, why = actor(self._scope, by), reason_given(reason)
        self._refuse_without_cause(unnoticed=unnoticed)
        with acting(self._scope):
            done = as_copy(self._ledger, by=who, reason=why, leases=lease_identity(self._ledger))
        return DecisionRecord.of(done, copy=True)

    def _refuse_without_cause(self, *, unnoticed: bool) -> None:
        """Refuse to decide twice, or about the wrong ledger: runs would be held or cancelled needlessly."""
        if not unnoticed and not self.standing().held:
            raise ConfigurationError(
                f"{self._ledger.dialect.product} is the ledger it was, as far as any node has noticed: there is "
                "nothing to decide. If it was restored by a physical backup or a snapshot while all nodes were "
                "stopped, say so: --unnoticed"
            )
