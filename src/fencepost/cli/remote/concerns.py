"""What needs a person, asked of a server."""

from __future__ import annotations

import builtins
from datetime import datetime

from fencepost.app.records.concerns import ChangeRecord, ConcernRecord
from fencepost.cli.remote.connection import ServerConnection
from fencepost.cli.remote.subjects import pause_body, records
from fencepost.core.duration import Duration

Time = datetime | str | None
Lasting = Duration | None


class RemoteConcerns:
    """The methods of `fencepost.app.concerns.Concerns` that commands use."""

    def __init__(self, server: ServerConnection) -> None:
        self._server = server

    def changes(self) -> builtins.list[ChangeRecord]:
        """Return what changed in the last 24 hours."""
        return records(ChangeRecord, self._server.get("/now/changes"))

    def acknowledge(
        self, what: str, id: str, *, by: str, note: str | None = None, until: Time = None, duration: Lasting = None
    ) -> None:
        """Say that you know of something."""
        self._server.act("/now/acknowledge", {"what": what, "id": id} | pause_body(note, until, duration))

    def unacknowledge(self, what: str, id: str, *, by: str, reason: str | None = None) -> None:
        """Withdraw an acknowledgement."""
        self._server.act("/now/unacknowledge", {"what": what, "id": id, "reason": reason})

    def list(self) -> builtins.list[ConcernRecord]:
        """Return what needs a person, worst first, and then what a person knows of."""
        return records(ConcernRecord, self._server.get("/now"))
