"""The ledger: the database of schedules, runs and their history.

The operations on it are functions of the `Database`, in the modules beside this one: `history.runs(ledger)`,
`requests.enqueue(ledger, …)`. Loops of the engine pass their own `LedgerConnection`. Calls without one borrow a
connection from the pool, from any thread. `open_ledger` does not connect; the first use does. Outside the package,
operators, the command line and the application's code use `Operations`.
"""

from __future__ import annotations

from fencepost.core.runtime import Runtime
from fencepost.ledger.database import Database
from fencepost.ledger.urls import LedgerUrl


class Ledger(Database):
    """A database of schedules, runs and their history. Its repr shows no password."""


def open_ledger(url: str, runtime: Runtime) -> Ledger:
    """Return the ledger at `url`, without connecting. Raises `InvalidUrl` or `MissingExtra`."""
    return Ledger(LedgerUrl.parse(url), runtime)
