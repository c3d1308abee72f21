"""The operators' face of an application: thin methods over `fencepost.engine.operations`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fencepost.core.duration import Duration

if TYPE_CHECKING:
    from fencepost.core.grants import LeaseRecord
    from fencepost.engine.backfilling import Backfilled
    from fencepost.engine.operations import Operations
    from fencepost.engine.why import Why
    from fencepost.leases.locks import Locks
    from fencepost.ledger.history import AttemptRow, RunRow
    from fencepost.ledger.jobs import JobRow
    from fencepost.ledger.nodes import NodeRow
    from fencepost.ledger.recording import Enqueued
    from fencepost.ledger.requests import Cancelled, Retried


class Operating:
    """Acts and questions. Every act names who does it, and leaves a line in the journal."""

    @property
    def operations(self) -> Operations:
        """All of them, for whoever wants more than what is here."""
        raise NotImplementedError

    def wake(self) -> None:
        """Let this process's node, if it is one, look now."""
        raise NotImplementedError

    def _node_locks(self) -> Locks:
        raise NotImplementedError

    def trigger(
        self,
        job: str,
        params: Mapping[str, Any] | None = None,
        *,
        by: str,
        reason: str | None = None,
        at: datetime | str | None = None,
        delay: Duration | None = None,
        key: str | None = None,
        priority: int | None = None,
        again: bool = False,
    ) -> Enqueued:
        """Ask for a run in the name of a person: ``app.trigger("settle", {"account": 7}, by="ann")``.

        While a run with the same parameters waits or runs, however it was asked for, this raises `AlreadyRequested`,
        which names it; ``again=True`` insists. With a `key`, the key alone decides.
        """
        made = self.operations.trigger(
            job, params, by=by, reason=reason, at=at, delay=delay, key=key, priority=priority, again=again
        )
        self.wake()
        return made

    def retry(self, run_id: int, *, by: str, reason: str | None = None, again: bool = False) -> int:
        """Make a new run of one that has ended; return its id. `again`: although another one of it has not ended."""
        made = self.operations.retry(run_id, by=by, reason=reason, again=again)
        self.wake()
        return made

    def cancel(self, run_id: int, *, by: str, reason: str | None = None) -> Cancelled:
        """Cancel a run, or have it stopped; says which of them, or that it was too late."""
        outcome = self.operations.cancel(run_id, by=by, reason=reason)
        self.wake()
        return outcome

    def release(self, run_id: int, *, by: str, reason: str | None = None) -> None:
        """Let a run go on that waits for a person."""
        self.operations.release(run_id, by=by, reason=reason)
        self.wake()

    def reprocess(self, *, by: str, reason: str | None = None, **wanted: Any) -> list[Retried]:
        """Repeat runs that were given up, each once; see `Operations.reprocess`."""
        made = self.operations.reprocess(by=by, reason=reason, **wanted)
        self.wake()
        return made

    def backfill(
        self,
        job: str,
        first: datetime | str,
        last: datetime | str,
        *,
        by: str,
        reason: str | None = None,
        **wishes: Any,
    ) -> Backfilled:
        """Ask for one run per due time from `first` to `last`, both included; see `Operations.backfill`."""
        made = self.operations.backfill(job, first=first, last=last, by=by, reason=reason, **wishes)
        self.wake()
        return made

    def why(self, job: str, at: datetime | str) -> list[Why]:
        """Say what became of a due time."""
        return self.operations.why(job, at)

    def runs(self, *, job: str | None = None, states: Collection[str] = (), **wanted: Any) -> list[RunRow]:
        """Return a page of runs, newest first; see `Operations.runs`."""
        return self.operations.runs(job=job, states=states, **wanted)

    def run(self, run_id: int) -> RunRow:
        """Return one run."""
        return self.operations.run(run_id)

    def attempts(self, run_id: int) -> list[AttemptRow]:
        """Return the attempts of a run that have ended."""
        return self.operations.attempts(run_id)

    def nodes(self) -> list[NodeRow]:
        """Return nodes, the living first."""
        return self.operations.nodes()

    def jobs_known(self) -> list[JobRow]:
        """Return the jobs that any deploy has put on record."""
        return self.operations.jobs()

    def leader(self) -> LeaseRecord | None:
        """Return who leads, or led last; None if nobody ever stood for it."""
        from fencepost.engine.node import LEADER  # noqa: PLC0415 - the engine's loops are not needed to ask

        return self._node_locks().read(LEADER)
