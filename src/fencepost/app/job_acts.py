"""What operators do to a job that no living node has: give it another name, or forget it."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.app.node_acts import NodeActs
from fencepost.app.records import RenamedJobRecord
from fencepost.app.scoped import acting, actor
from fencepost.core.rights import HumanAct
from fencepost.ledger.removing import Forgotten, forget


class JobActs(NodeActs):
    """Acts on jobs as a whole. `Operations` has them."""

    def rename_job(
        self,
        old: str,
        new: str,
        *,
        by: str,
        reason: str | None = None,
        effects: Sequence[str] | None = None,
        into_existing: bool = False,
    ) -> RenamedJobRecord:
        """Rename a job in all records. No living node may have the job under either name.

        It is refused where `new` is another job with runs, schedules or permissions, unless `into_existing` says that
        both are the same work. `effects` are the URLs of the databases besides the ledger's that its runs write to. A
        bulk job needs it: its checkpoints are there. An empty list says that it writes only to the ledger's own
        database. If this is interrupted, call it again: until it is done, the job cannot be renamed to anything else.
        If `old` is no job, but `new` is one, runs and checkpoints that are left under the old name join that.
        """
        from fencepost.app.renaming import rename_job  # noqa: PLC0415 - done once in the life of a job

        self._scope.require(HumanAct.RENAME_JOB)
        who = actor(self._scope, by)
        with acting(self._scope):
            return rename_job(
                self._ledger, old, new, by=who, reason=reason, effects=effects, into_existing=into_existing
            )

    def forget_job(self, name: str, *, by: str, reason: str | None = None) -> Forgotten:
        """Forget a job that no living node has: delete its schedules, cancel its runs that have not ended."""
        known, who = self.job(name).name, actor(self._scope, by)
        self._scope.require(HumanAct.FORGET_JOB, known)
        with acting(self._scope):
            return forget(self._ledger, known, by=who, reason=reason)
