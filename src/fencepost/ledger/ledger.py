"""The ledger: the database of schedules, runs and all that happened.

What is asked of it is in modules beside this one, each a function of the `Database`: `history.runs(ledger)`,
`requests.enqueue(ledger, …)`. Loops of the engine pass a `LedgerConnection` of their own; calls without one borrow a
connection from the pool, from any thread. `open_ledger` connects to nothing; the first use does. Outside the package,
operators, the command line and the application's own code go through `Operations`.
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
