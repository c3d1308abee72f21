"""Locks, leaders and exclusive keys in the name of one caller."""

from __future__ import annotations

import builtins

from fencepost.access.authority import CALLER, Authority
from fencepost.app.lease_places import LEDGER
from fencepost.app.records import LockRecord, PastLockRecord
from fencepost.app.records.locks import KeyRecord, ReleasedLockRecord, ResetLockRecord
from fencepost.core.rights import HumanAct


class AuthorizedLocks:
    """``authorized.locks``: the methods of `fencepost.app.lock_operations.LockOperations`.

    All but `keys` need the role of viewer for all jobs: a lock says nothing about the job that it belongs to.
    """

    def __init__(self, authority: Authority) -> None:
        """Reach locks by `authority`."""
        self._authority = authority

    def stores(self) -> tuple[str, ...]:
        """Return which stores can be asked."""
        return self._authority.looks(lambda ops: ops.locks.stores())

    def show(self, name: str, *, store: str = LEDGER, to: HumanAct = HumanAct.LOOK) -> LockRecord:
        """Return one lock, or raise `NoSuchLock`; with `to`, that is recorded as a refused try at this act."""
        return self._authority.looks(lambda ops: ops.locks.show(name, store=store), to, lock=name)

    def history(
        self, name: str | None = None, *, store: str = LEDGER, limit: int = 100
    ) -> builtins.list[PastLockRecord] | None:
        """Return who held which lock until when, newest first; None if the store keeps no history."""
        return self._authority.looks(lambda ops: ops.locks.history(name, store=store, limit=limit))

    def leaders(self, *, limit: int = 100) -> builtins.list[PastLockRecord]:
        """Return the nodes that led until now, newest first."""
        return self._authority.looks(lambda ops: ops.locks.leaders(limit=limit))

    def keys(self, *, after: str = "", limit: int = 100) -> builtins.list[KeyRecord]:
        """Return the exclusive keys that runs of the caller's jobs have or wait for."""
        return self._authority.looks(lambda ops: ops.locks.keys(after=after, limit=limit))

    def release(self, name: str, *, reason: str, token: int | None = None, store: str = LEDGER) -> ReleasedLockRecord:
        """Take a lock away from its holder; with `token`, only from the one that has it."""
        return self._authority.acts(
            HumanAct.RELEASE_LOCK,
            reason,
            lambda ops: ops.locks.release(name, by=CALLER, reason=reason, token=token, store=store),
            lock=name,
        )

    def reset(self, name: str, *, reason: str, store: str = LEDGER) -> ResetLockRecord:
        """Bring back the token of a free lock that a wrong clock has put more than a day ahead."""
        return self._authority.acts(
            HumanAct.RELEASE_LOCK,
            reason,
            lambda ops: ops.locks.reset(name, by=CALLER, reason=reason, store=store),
            lock=name,
        )

    def list(
        self, *, store: str = LEDGER, held: bool = False, after: str = "", limit: int = 100
    ) -> builtins.list[LockRecord]:
        """Return locks by name."""
        return self._authority.looks(lambda ops: ops.locks.list(store=store, held=held, after=after, limit=limit))
