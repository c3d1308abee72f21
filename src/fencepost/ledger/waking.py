"""Waking: hints that something may have changed in the ledger, for loops that otherwise sleep until they poll.

A hint carries no content, and none is needed for correctness: loops also poll. So errors of the listening connection
are not reported. It is opened again, less and less often while that fails.

On PostgreSQL, hints are notifications (`LedgerStatements.notify`), received on a separate connection. Other databases
have none, nor is there one behind a pooler that assigns another connection to every transaction. There, only `wake`
ends a wait early.
"""

from __future__ import annotations

from typing import Protocol

from fencepost.core.runtime import Runtime
from fencepost.ledger.database import Database


class Listener(Protocol):
    """Waits for hints. One thread waits; `wake` and `close` may be called from any thread."""

    def wait(self, timeout_s: float) -> bool:
        """Return True as soon as there is a hint, or False after `timeout_s`. Several hints may be merged into one."""
        ...

    def wake(self) -> None:
        """Give a hint to the waiting thread."""
        ...

    def close(self) -> None:
        """End the wait and close the connection; later waits return at once."""
        ...


class Unhinted:
    """A listener for databases without hints."""

    def __init__(self, runtime: Runtime) -> None:
        self._woken = runtime.event()
        self._is_closed = False

    def wait(self, timeout_s: float) -> bool:
        """Wait for `wake`."""
        if not self._woken.wait(timeout_s):
            return False
        if not self._is_closed:
            self._woken.clear()
        return not self._is_closed

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        """End this wait and all later ones."""
        self._is_closed = True
        self._woken.set()


def listener(database: Database) -> Listener:
    """Return a listener for this ledger. It connects when it is first waited on."""
    if not database.dialect.has_hints:
        return Unhinted(database.runtime)
    from fencepost.ledger.dialects.postgres_listening import LedgerListener  # noqa: PLC0415 - needs its driver

    return LedgerListener(database.dialect, database.runtime)
