"""Pauses of queues, and of everything, in the name of one caller: ``authorized.pauses``."""

from __future__ import annotations

import builtins
from datetime import datetime

from fencepost.access.authority import CALLER, Authority
from fencepost.app.records import PauseRecord, ResumedRecord
from fencepost.core.duration import Duration
from fencepost.core.rights import HumanAct


class AuthorizedPauses:
    """The methods of `fencepost.app.queue_pauses.QueuePauses`."""

    def __init__(self, authority: Authority) -> None:
        """Reach pauses by `authority`."""
        self._authority = authority

    def list(self) -> builtins.list[PauseRecord]:
        """Return the pause of everything, and those of the queues of the caller's jobs."""
        return self._authority.looks(lambda ops: ops.pauses.list())

    def pause(
        self,
        queue: str | None,
        *,
        reason: str,
        until: datetime | str | None = None,
        duration: Duration | None = None,
        expect: str | None = None,
    ) -> PauseRecord:
        """Let no node claim runs of this queue, or of any if it is None. Needs the role of admin for all jobs."""
        return self._authority.acts(
            HumanAct.PAUSE_ALL,
            reason,
            lambda ops: ops.pauses.pause(
                queue, by=CALLER, reason=reason, until=until, duration=duration, expect=expect
            ),
            queue=queue,
        )

    def resume(self, queue: str | None, *, reason: str | None = None, expect: str | None = None) -> ResumedRecord:
        """End the pause of a queue, or that of everything. Needs the role of admin for all jobs."""
        return self._authority.acts(
            HumanAct.RESUME_ALL,
            reason,
            lambda ops: ops.pauses.resume(queue, by=CALLER, reason=reason, expect=expect),
            queue=queue,
        )
