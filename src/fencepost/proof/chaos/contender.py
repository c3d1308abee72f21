"""A process that takes locks, holds each for a while, writes behind a fence, and releases it, until it is ended.

It records every call to the lease store and every write.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import SQLAlchemyError

from fencepost.errors import FencepostError, LeaseLost
from fencepost.leases.lease import Lease
from fencepost.leases.locks import Locks
from fencepost.leases.schemes import store_from_url
from fencepost.ledger.urls import LedgerUrl
from fencepost.proof.chaos.effects import ChaosTables
from fencepost.proof.chaos.lines import Recorder, recorder_in
from fencepost.proof.chaos.plan import LOCKS
from fencepost.proof.chaos.recording import RecordingStore
from fencepost.proof.chaos.variables import FOLDER, LEDGER, LOCKS_URL, NAME, TTL
from fencepost.proof.history import EntryKind
from fencepost.threaded import ThreadedRuntime

_WAIT_S = 20.0  # then the refusal is recorded, and the lock is asked for anew
_SHORTEST_S, _LONGEST_S = 0.1, 1.2  # of a hold: locks change hands often, and some are renewed (after 1 s by default)
_WRITES = 2  # in one hold: a fault may come between them, and then the second has to be refused


class LockContender:
    """One process with a task for each lock."""

    def __init__(
        self, runtime: ThreadedRuntime, recorder: Recorder, *, locks_url: str, ledger: str, ttl_s: float
    ) -> None:
        self._runtime = runtime
        self._recorder = recorder
        self._ttl_s = ttl_s
        place = LedgerUrl.parse(ledger)
        self._prefix, self._schema = place.prefix, place.schema
        self._effects = ChaosTables(place)
        self._engine: Engine = create_engine(place.sqlalchemy(), pool_pre_ping=True, pool_size=len(LOCKS))
        self._store = RecordingStore(store_from_url(locks_url, runtime), recorder)
        self._locks = Locks(self._store, runtime=runtime, holder=recorder.node)

    def run(self) -> None:
        """Contend until the process is ended, or until a task fails unexpectedly."""
        while not self._has_started():
            self._runtime.sleep(0.3)
        print(f"{self._recorder.node} takes part", flush=True)  # noqa: T201 - chaos reads its log
        tasks = [self._runtime.spawn(f"contend-{name}", partial(self._contend, name)) for name in LOCKS]
        while all(task.is_alive() for task in tasks):
            self._runtime.sleep(0.2)

    def _has_started(self) -> bool:
        try:
            self._locks.start()
        except FencepostError:  # the network is down; it is tried again
            return False
        return True

    def _contend(self, name: str) -> None:
        while True:
            try:
                with self._locks.lock(name, ttl=self._ttl_s, wait=_WAIT_S) as lease:
                    self._hold(lease)
            except FencepostError:
                self._runtime.sleep(0.05)  # held, lost or unknown: the recorder has it
            self._runtime.sleep(0.05 * self._runtime.random())  # let another contender take it

    def _hold(self, lease: Lease) -> None:
        share_s = (_SHORTEST_S + (_LONGEST_S - _SHORTEST_S) * self._runtime.random()) / (_WRITES + 1)
        for number in range(_WRITES):
            self._runtime.sleep(share_s)
            self._write(lease, f"{lease.grant_id}:{number}")
        self._runtime.sleep(share_s)

    def _write(self, lease: Lease, work: str) -> None:
        """Write behind the fence. A missing answer is not a failure; a refusal ends the hold."""
        fields = {"name": lease.name, "token": lease.token, "grant": lease.grant_id, "detail": {"key": work}}
        call = self._recorder.invoke("write", **fields)
        try:
            with lease.fence(self._engine, prefix=self._prefix, schema=self._schema) as tx:
                self._effects.write(tx, lease.fencing, work)
        except LeaseLost:
            self._recorder.end(call, EntryKind.REFUSED, "write", **fields)
            raise
        except (FencepostError, SQLAlchemyError):  # also that a lost connection has no transaction any more
            self._recorder.end(call, EntryKind.UNKNOWN, "write", **fields)
        else:
            self._recorder.end(call, EntryKind.OK, "write", **fields)


def main() -> None:
    """Contend, as the environment says."""
    runtime = ThreadedRuntime()
    recorder = recorder_in(Path(os.environ[FOLDER]), os.environ[NAME], runtime)
    LockContender(
        runtime,
        recorder,
        locks_url=os.environ[LOCKS_URL],
        ledger=os.environ[LEDGER],
        ttl_s=float(os.environ[TTL]),
    ).run()


if __name__ == "__main__":
    main()
