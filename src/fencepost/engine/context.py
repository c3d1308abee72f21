"""What a run needs of its surroundings while it executes: whether it may go on, and the way to the ledger.

Each runner brings its own `RunStanding` (a flag per thread, a word of shared memory per worker process). The rest is
the same everywhere, and made by the application.
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
    """What a runner knows of whether the runs it executes may go on."""

    def stopped(self, run_id: int, token: int) -> StopReason | None:
        """Return why this run has to stop, or None while it may go on. Local, cheap, and asked often.

        `StopReason.LOST` also once the node's trust has run out, whether or not anybody said so; but not for a run
        that is suspended.
        """
        ...

    def suspended(self, run_id: int, token: int) -> bool:
        """Whether nobody knows if this run may go on, and it need not stop: its effects are fenced.

        Local, and true from the moment the node's trust has run out, whether or not anybody said so.
        """
        ...


class Unstopped:
    """The standing of what nobody can stop, as in tests."""

    def stopped(self, run_id: int, token: int) -> StopReason | None:
        """Never."""
        return None

    def suspended(self, run_id: int, token: int) -> bool:
        """Never."""
        return False


UNSTOPPED = Unstopped()


@dataclass(frozen=True, slots=True)
class RunContext:
    """The surroundings of every run that one runner executes.

    `ledger` opens the ledger when it is first asked for: most runs never do, and worker processes then need no
    connection. `ttl_s` bounds how long a fenced transaction may stand idle.
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
        from fencepost.ledger.looking import check  # noqa: PLC0415 - most runs never ask

        with self._connection() as connection:
            return check(connection, run_id=run_id, token=token)

    def show(self, run_id: int, token: int, fraction: float, note: str | None) -> None:
        """Tell the ledger how far a run is."""
        from fencepost.ledger.looking import progress  # noqa: PLC0415 - as above

        with self._connection() as connection:
            progress(connection, run_id=run_id, token=token, fraction=fraction, note=note)

    def _connection(self) -> AbstractContextManager[LedgerConnection]:
        ledger = self.ledger()
        return ledger.pool.borrow(ledger.dialect.timeout_s)
