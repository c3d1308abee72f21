"""Pauses of queues, and of everything, asked of a server."""

from __future__ import annotations

import builtins
from datetime import datetime

from fencepost.app.records import PauseRecord, ResumedRecord
from fencepost.app.records.shapes import read_record
from fencepost.cli.remote.connection import ServerConnection
from fencepost.cli.remote.subjects import pause_body, records
from fencepost.core.duration import Duration
from fencepost.errors import NotInLedger


class RemotePauses:
    """The methods of `fencepost.app.queue_pauses.QueuePauses` that commands use."""

    def __init__(self, server: ServerConnection) -> None:
        self._server = server

    def list(self) -> builtins.list[PauseRecord]:
        """Return the pauses that last; none from a server of an older version, which does not know them."""
        try:
            return records(PauseRecord, self._server.get("/pauses"))
        except NotInLedger:
            return []

    def pause(
        self,
        queue: str | None,
        *,
        by: str,
        reason: str,
        until: datetime | str | None = None,
        duration: Duration | None = None,
        expect: str | None = None,
    ) -> PauseRecord:
        """Let no node claim runs of this queue, or of any."""
        body = {"queue": queue, **pause_body(reason, until, duration)}
        return read_record(PauseRecord, self._server.act("/pauses", body))

    def resume(
        self, queue: str | None, *, by: str, reason: str | None = None, expect: str | None = None
    ) -> ResumedRecord:
        """End the pause of a queue, or that of everything."""
        return read_record(ResumedRecord, self._server.act("/pauses/resume", {"queue": queue, "reason": reason}))
