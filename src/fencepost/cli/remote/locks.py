"""Locks, asked of a server."""

from __future__ import annotations

from fencepost.app.records import LockRecord, PastLockRecord
from fencepost.app.records.locks import KeyRecord, ReleasedLockRecord, ResetLockRecord
from fencepost.app.records.shapes import read_record
from fencepost.cli.remote.connection import ServerConnection, part
from fencepost.cli.remote.subjects import pages, records

_MOST = 500  # records on a page: the server refuses more (`MOST_ON_A_PAGE`)


class RemoteLocks:
    """The methods of `fencepost.app.lock_operations.LockOperations` that commands use."""

    def __init__(self, server: ServerConnection) -> None:
        self._server = server

    def show(self, name: str, *, store: str = "ledger") -> LockRecord:
        """Return one lock, or raise `NoSuchLock`."""
        return read_record(LockRecord, self._server.get(f"/locks/{part(name)}", {"store": store}))

    def history(
        self, name: str | None = None, *, store: str = "ledger", limit: int = 100
    ) -> list[PastLockRecord] | None:
        """Return who held which lock until when, newest first."""
        query = {"name": name, "store": store, "limit": min(limit, _MOST)}
        return records(PastLockRecord, self._server.get("/lock-history", query))

    def leaders(self, *, limit: int = 100) -> list[PastLockRecord]:
        """Return the nodes that led until now, newest first."""
        return records(PastLockRecord, self._server.get("/leaders", {"limit": min(limit, _MOST)}))

    def keys(self, *, after: str = "", limit: int = 100) -> list[KeyRecord]:
        """Return the exclusive keys that runs have or wait for."""
        return pages(self._server, KeyRecord, "/keys", {}, edge="after", start=after, limit=limit)

    def release(
        self, name: str, *, by: str, reason: str, token: int | None = None, store: str = "ledger"
    ) -> ReleasedLockRecord:
        """Take a lock away from its holder."""
        body = {"reason": reason, "token": token, "store": store}
        return read_record(ReleasedLockRecord, self._server.act(f"/locks/{part(name)}/release", body))

    def reset(self, name: str, *, by: str, reason: str, store: str = "ledger") -> ResetLockRecord:
        """Bring back the token of a lock."""
        body = {"reason": reason, "store": store}
        return read_record(ResetLockRecord, self._server.act(f"/locks/{part(name)}/reset", body))

    def list(self, *, store: str = "ledger", held: bool = False, after: str = "", limit: int = 100) -> list[LockRecord]:
        """Return locks by name."""
        query = {"store": store, "held": str(held).lower()}
        return pages(self._server, LockRecord, "/locks", query, edge="after", start=after, limit=limit)
