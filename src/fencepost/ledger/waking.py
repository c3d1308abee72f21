"""Waking: hints that something may have changed in the ledger, for those who would otherwise sleep until they look.

A hint is never the truth, and none is ever needed: who waits here looks again after a while in any case. So whatever
happens to the connection that hears them, nobody is told; it is opened anew, less and less often while that fails.

On PostgreSQL hints are notifications (`Hot.notify`), heard on a connection of their own. Other databases have none, and
neither is there one behind a pooler that hands out another connection for every transaction: then only `wake` ends a
wait before its time.
"""

from __future__ import annotations

from typing import Protocol

from fencepost.core.runtime import Runtime
from fencepost.ledger.database import Database


class Listener(Protocol):
    """Waits for hints. One thread waits; `wake` and `close` may be called from any."""

    def wait(self, timeout_s: float) -> bool:
        """Return True as soon as there is a hint, or False after `timeout_s`. Many hints at once are one."""
        ...

    def wake(self) -> None:
        """Give a hint to the one who waits here."""
        ...

    def close(self) -> None:
        """End the wait and let go of the connection; a later wait returns at once."""
        ...


class Unhinted:
    """Waits where nobody gives hints."""

    def __init__(self, runtime: Runtime) -> None:
        self._woken = runtime.event()
        self._is_closed = False

    def wait(self, timeout_s: float) -> bool:
        """Wait to be woken."""
        if not self._woken.wait(timeout_s):
            return False
        if not self._is_closed:
            self._woken.clear()
        return not self._is_closed

    def wake(self) -> None:
        """Wake."""
        self._woken.set()

    def close(self) -> None:
        """End the wait, and all later ones."""
        self._is_closed = True
        self._woken.set()


def listener(database: Database) -> Listener:
    """Return who waits for hints from this ledger. Connects when it is first waited on."""
    if not database.dialect.has_hints:
        return Unhinted(database.runtime)
    from fencepost.ledger.dialects.postgres_listening import LedgerListener  # noqa: PLC0415 - needs its driver

    return LedgerListener(database.dialect, database.runtime)
