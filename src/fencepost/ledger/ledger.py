"""The ledger as everybody else sees it: one object with a method for each thing asked of it.

Each call is written in a module of its own, as a function of the `Database`; here they are only gathered. Loops of the
engine pass their own `Desk`; calls without one borrow a connection for their duration, from any thread.
`open_ledger` connects to nothing; the first use does.
"""

from __future__ import annotations

from fencepost.core.runtime import Runtime
from fencepost.ledger.database import Database
from fencepost.ledger.urls import LedgerUrl


class Ledger(Database):
    """One database of schedules, runs and all that happened. Shows no password."""


def open_ledger(url: str, runtime: Runtime) -> Ledger:
    """Return the ledger that `url` names, without connecting; `InvalidUrl` or `MissingExtra` say what is wrong."""
    return Ledger(LedgerUrl.parse(url), runtime)
