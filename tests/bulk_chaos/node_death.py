"""A node dies in the middle of eight partitions, while the other two have a worker to spare for each of its own.

Where no worker is free, a partition waits until one is: that is the course of `course.py`, with eight partitions on six
workers. Here it is the takeover alone that takes time.
"""

from __future__ import annotations

import time
from pathlib import Path

from fencepost.proof.chaos.processes import workers_of
from fencepost.testing import until
from tests.bulk_chaos import application, takeovers
from tests.bulk_chaos.cluster import Kill, started
from tests.bulk_chaos.places import Place, fill
from tests.bulk_chaos.records import Records
from tests.bulk_chaos.takeovers import Takeover
from tests.cluster.nodes import NodeProcess, command

ROWS, CHUNK, ROW_S = 80_000, 50, 0.002
NODES, WORKERS = 3, 4
_WITHIN_S = 60.0
_SINCE_S = 0.5


def killed(place: Place, folder: Path, *, ttl_s: float) -> tuple[Kill, list[Takeover]]:
    """Kill the node with the most partitions in its hands; return how long each of them stood still."""
    fill(place, ROWS)
    records = Records(folder)
    records.pace(ROW_S)
    with started(place, folder=folder, chunk=CHUNK, nodes=NODES, workers=WORKERS, ttl_s=ttl_s, more={}) as cluster:
        command(place.ledger, "trigger", application.JOB)
        until(lambda: len(_busy(records)) >= application.PARTITIONS, _WITHIN_S, "all partitions are under way")
        busy = _busy(records)
        victim = max(cluster.nodes, key=lambda node: len(_hands(node) & busy))
        mine = len(_hands(victim) & busy)
        kill = cluster.kill_supervisor(victim, back_after_s=1e9)
        found = _Found(place, records, kill)
        until(lambda: len(found.look()) >= mine, ttl_s + _WITHIN_S, "every partition goes on")
        cluster.refuse_ended()
        return kill, found.look()


class _Found:
    """What is known by now of the partitions that stood still."""

    def __init__(self, place: Place, records: Records, kill: Kill) -> None:
        self._place = place
        self._records = records
        self._kill = kill
        self._looked_at_s = 0.0
        self._takeovers: list[Takeover] = []

    def look(self) -> list[Takeover]:
        if time.monotonic() - self._looked_at_s > _SINCE_S:
            with self._place.looked_at() as connection:
                chunks, bounds = takeovers.chunks(connection), takeovers.bounds(connection)
            self._takeovers = list(takeovers.takeovers([self._kill], self._records.all(), chunks, bounds))
            self._looked_at_s = time.monotonic()
        return self._takeovers


def _busy(records: Records) -> set[int]:
    """Return the processes that called process() a moment ago."""
    since_ns = time.time_ns() - int(_SINCE_S * 1e9)
    return {calls.pid for calls in records.all() if calls.at_ns and calls.at_ns[-1] > since_ns}


def _hands(node: NodeProcess) -> set[int]:
    return set(workers_of(node.pid))
