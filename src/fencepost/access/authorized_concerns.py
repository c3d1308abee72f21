"""What needs a person, and acknowledging it, in the name of one caller."""

from __future__ import annotations

import builtins
from datetime import datetime

from fencepost.access.authority import CALLER, Authority
from fencepost.app.records.concerns import ChangeRecord, ConcernRecord
from fencepost.core.duration import Duration
from fencepost.core.rights import HumanAct


class AuthorizedConcerns:
    """``authorized.concerns``: the methods of `fencepost.app.concerns.Concerns`."""

    def __init__(self, authority: Authority) -> None:
        """Reach them by `authority`."""
        self._authority = authority

    def changes(self) -> builtins.list[ChangeRecord]:
        """Return what changed in the last 24 hours in the caller's jobs; deploys need a role for all jobs."""
        return self._authority.looks(lambda ops: ops.concerns.changes())

    def acknowledge(
        self,
        what: str,
        id: str,
        *,
        note: str | None = None,
        until: datetime | str | None = None,
        duration: Duration | None = None,
    ) -> ConcernRecord:
        """Say that the caller knows of something that `list` shows: see `Concerns.acknowledge`."""
        return self._authority.acts(
            HumanAct.ACKNOWLEDGE,
            note,  # it is the reason
            lambda ops: ops.concerns.acknowledge(what, id, by=CALLER, note=note, until=until, duration=duration),
            what=what,
            id=id,
        )

    def unacknowledge(self, what: str, id: str, *, reason: str | None = None) -> None:
        """Withdraw an acknowledgement, of whoever it is."""
        return self._authority.acts(
            HumanAct.ACKNOWLEDGE,
            reason,
            lambda ops: ops.concerns.unacknowledge(what, id, by=CALLER, reason=reason),
            what=what,
            id=id,
        )

    def list(self) -> builtins.list[ConcernRecord]:
        """Return what needs a person in the caller's jobs, worst first, and then what a person knows of."""
        return self._authority.looks(lambda ops: ops.concerns.list())
