"""What a run needs while it executes: whether it may continue, and access to the ledger.

Each runner has its own `RunStanding` (for threads and tasks the runner itself, in a worker process the shared page).
The application makes the rest, which is the same for all runners.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fencepost.core.runs import StopReason
from fencepost.core.runtime import Runtime

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from fencepost.ledger.connection import LedgerConnection
    from fencepost.ledger.ledger import Ledger
    from fencepost.ledger.naming import Naming


class RunStanding(Protocol):
    """What a runner knows about whether its runs may continue."""

    def stopped(self, run_id: int, token: int) -> StopReason | None:
        """Return why this run has to stop, or None while it may continue. Local, cheap, and called often.

        Also `StopReason.LOST` once the node's trust has expired, even without a call of `lose`; but not for a run that
        is suspended.
        """
        ...

    def suspended(self, run_id: int, token: int) -> bool:
        """Whether it is unknown if this run is still ours, and it need not stop because its effects are fenced.

        Local, and True from the moment when the node's trust expires, even without a call of `suspend`.
        """
        ...


class Unstopped:
    """The standing of runs that cannot be stopped, as in tests."""

    def stopped(self, run_id: int, token: int) -> StopReason | None:
        """Return None."""
        return None

    def suspended(self, run_id: int, token: int) -> bool:
        """Return False."""
        return False


UNSTOPPED = Unstopped()


@dataclass(frozen=True, slots=True)
class RunContext:
    """What all runs of one runner share.

    `ledger` opens the ledger when it is first called. Most runs never call it, and worker processes then need no
    connection. `ttl_s` limits how long a fenced transaction may be idle.
    """

    node: str
    runtime: Runtime
    ledger: Callable[[], Ledger]
    standing: RunStanding = UNSTOPPED
    ttl_s: float = 30.0

    def naming(self) -> Naming:
        """Return how rows of this ledger are named in databases of effects."""
        from fencepost.ledger.naming import naming  # noqa: PLC0415 - most runs never ask

        return naming(self.ledger())

    def is_ours(self, run_id: int, token: int) -> bool:
        """Ask the ledger whether a run is still running under this token."""
        from fencepost.ledger.running_runs import check  # noqa: PLC0415 - most runs never ask

        with self._connection() as connection:
            return check(connection, run_id=run_id, token=token)

    def show(self, run_id: int, token: int, fraction: float, note: str | None) -> None:
        """Write the progress of a run to the ledger."""
        from fencepost.ledger.running_runs import progress  # noqa: PLC0415 - as above

        with self._connection() as connection:
            progress(connection, run_id=run_id, token=token, fraction=fraction, note=note)

    def _connection(self) -> AbstractContextManager[LedgerConnection]:
        ledger = self.ledger()
        return ledger.pool.borrow(ledger.dialect.timeout_s)
