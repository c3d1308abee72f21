"""The runs of lost identities of this process: they are adopted or given up.

::

    session ran out ──▶ runs of fenced jobs are suspended, all others stopped ──▶ the process joins again
        ──▶ adopt: still its own? ──yes──▶ resumed under the new identity
                        │                                                       ──▶ the rest is given up, here
                        └────no: a reaper was quicker──▶ stopped as lost

Living nodes adopt before others reap: a reaper acts after a ttl of unbroken contact, and this step with the first
answer. Runs that were stopped are given up when their runner has reported them, so that the next attempt does not
overlap with them. If that takes longer than `_STOPPED_WITHIN_S`, they are given up anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from fencepost.core.events import Event, What
from fencepost.core.runs import Claim, StopReason
from fencepost.engine.giving_up import LostNodeRuns
from fencepost.engine.runners.runner import Runner
from fencepost.ledger.adopting import Key, adopt
from fencepost.ledger.connection import LedgerConnection

# More than the grace and the kill of every default; a thread that hangs longer cannot be stopped at all.
_STOPPED_WITHIN_S = 15.0


class Former(NamedTuple):
    """A lost identity, the runs that were suspended when it was lost, and when that was."""

    node_id: str
    suspended: tuple[Claim, ...]
    since: float = float("-inf")


class LostIdentities:
    """The lost identities whose runs are not settled yet. The membership adds them, and the exchange settles them."""

    def __init__(self, lost_runs: LostNodeRuns, runners: Sequence[Runner], emit: Callable[[Event], None]) -> None:
        self._lost_runs = lost_runs
        self._runners = runners
        self._emit = emit
        self._formers: list[Former] = []
        self._adopted: dict[Key, str] = {}

    def __bool__(self) -> bool:
        """Whether there are runs to settle."""
        return bool(self._formers)

    def add(self, node_id: str, suspended: Collection[Claim], now: float) -> None:
        """Add a lost identity."""
        self._formers.append(Former(node_id, tuple(suspended), now))

    def adopted_by(self, key: Key) -> str | None:
        """Return the identity that adopted a run, if it was in the last adoption."""
        return self._adopted.get(key)

    def settle(
        self, connection: LedgerConnection, *, node_id: str | None, unfinished: Collection[Key], now: float
    ) -> bool:
        """Adopt the runs that are still ours and give up the rest. Return False if that has to wait.

        It waits for this process to join, or for stopped runs to end. `unfinished` are the runs that have not ended:
        only those can be adopted.
        """
        formers = list(self._formers)
        suspended = {
            _key(claim): claim for former in formers for claim in former.suspended if _key(claim) in unfinished
        }
        if suspended:
            if node_id is None:
                return False
            self._adopt(connection, [former.node_id for former in formers], node_id, suspended)
            self._formers[: len(formers)] = formers = [former._replace(suspended=()) for former in formers]
        is_stopping = any(self._adopted.get(key) != node_id for key in unfinished)
        if is_stopping and now < formers[-1].since + _STOPPED_WITHIN_S:
            return False
        for former in formers:
            self._lost_runs.declare_dead(connection, former.node_id, "its session was lost")
            self._formers.pop(0)
        return True

    def _adopt(
        self, connection: LedgerConnection, formers: list[str], node_id: str, suspended: dict[Key, Claim]
    ) -> None:
        adopted = adopt(connection, formers=formers, node=node_id, runs=suspended)
        self._adopted = dict.fromkeys(adopted, node_id)
        for runner in self._runners:
            runner.resume(adopted)
        for key, claim in suspended.items():
            if key in adopted:
                self._emit(run_event(What.RUN_RESUMED, claim, node_id, "the ledger answers, and it is still ours"))
            else:
                for runner in self._runners:
                    runner.stop(*key, StopReason.LOST)


def run_event(what: What, claim: Claim, node_id: str, reason: str) -> Event:
    """Return an event about a run."""
    return Event(
        what,
        job=claim.job,
        run_id=claim.run_id,
        attempt=claim.attempt,
        token=claim.token,
        node=node_id,
        reason=reason,
    )


def _key(claim: Claim) -> Key:
    return claim.run_id, claim.token
