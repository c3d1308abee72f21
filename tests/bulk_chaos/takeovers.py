"""How long the partitions of a killed node stood still: from the kill to the next chunk that another process landed.

A chunk is dated when its transaction begins to write, by the clock that the kills are dated by; it commits some
milliseconds later. Partitions of which nothing was left are none of this; neither are those that nobody was at work on.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from tests.bulk_chaos import application, material
from tests.bulk_chaos.cluster import Kill
from tests.bulk_chaos.records import Calls
from tests.bulk_chaos.recount import CHECKPOINTS


class Chunk(NamedTuple):
    """A chunk as it landed."""

    at_s: float
    pid: int
    first: int
    last: int


class Takeover(NamedTuple):
    """A partition that stood still."""

    kill: Kill
    partition: int
    took_s: float


def declared_after_s(kills: Iterable[Kill], attempts: Iterable[dict[str, Any]]) -> Iterator[float]:
    """Return how long it took after a supervisor's death until the ledger had each of its attempts as lost."""
    lost = [
        (each["node_name"] or "", datetime.fromisoformat(each["ended_at"]).timestamp())
        for each in attempts
        if each["outcome"] == "lost"
    ]
    for kill in kills:
        if kill.node:
            yield from (at_s - kill.at_s for name, at_s in lost if f":{kill.node}:" in name and at_s > kill.at_s)


def chunks(connection: Connection) -> list[Chunk]:
    """Return all chunks that landed, in their order."""
    query = f"SELECT landed_at, worker, MIN(id), MAX(id) FROM {material.EFFECTS} GROUP BY landed_at, worker"
    return sorted(Chunk(at / 1e6, pid, first, last) for at, pid, first, last in connection.execute(text(query)))


def bounds(connection: Connection) -> list[int]:
    """Return the last key of each partition but the last, as the plan has them."""
    query = text(f"SELECT position FROM {CHECKPOINTS} WHERE name LIKE :name AND name NOT LIKE :partition")
    values = {"name": f"bulk:{application.JOB}@%", "partition": "bulk:%#%"}
    plan = json.loads(connection.execute(query, values).scalar_one())
    return [int(each["upto"][0]) for each in plan["slices"] if "upto" in each]


def takeovers(
    kills: Iterable[Kill], calls: Iterable[Calls], landed: Iterable[Chunk], uppers: list[int]
) -> Iterator[Takeover]:
    """Return what stood still after each kill."""
    workers = list(calls)
    by_partition: dict[int, list[Chunk]] = defaultdict(list)
    for chunk in landed:
        by_partition[bisect_left(uppers, chunk.last)].append(chunk)
    for kill in kills:
        for worker in workers:
            key = worker.last_before(kill.at_s) if worker.pid in kill.pids else None
            if key is None:
                continue
            partition = bisect_left(uppers, key)
            following = [each for each in by_partition[partition] if each.at_s > kill.at_s and each.pid != worker.pid]
            if following:
                yield Takeover(kill, partition, following[0].at_s - kill.at_s)
