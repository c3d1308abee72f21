"""How many connections an engine gives out at once. A partition takes two: one that it reads by, and one for chunks.

Where both come from one engine that has a single one, or where many threads hold them all by reading, nobody could
write: each would wait for the pool's timeout, again and again, and the job would look as if it were at work.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.pool import QueuePool, StaticPool

from fencepost.errors import InvalidBulk


def refuse_too_few_connections(source: Any, target: Any) -> None:
    """Refuse to read and to write by one engine that gives out a single connection at once."""
    if source is target and _most(source) == 1:
        raise InvalidBulk(
            f"the engine {source!r} gives out one connection at once, and a bulk job reads by one while it writes by "
            "another; make it with create_engine(…, pool_size=2) or more and without StaticPool, or read by an engine "
            "of its own: source=…"
        )


def threads_for(source: Any, target: Any, *, wanted: int) -> int:
    """Return how many threads may read and write at the same time, so that none waits for a connection for long."""
    most = _most(target if source is None else source)
    if most is None:
        return wanted
    return max(1, min(wanted, (most + 1) // 2 if source is target else most))


def _most(engine: Any) -> int | None:
    """Return how many connections an engine gives out at once; None if there is no end, or nobody knows."""
    pool = getattr(engine, "pool", None)
    if isinstance(pool, StaticPool):
        return 1
    if not isinstance(pool, QueuePool) or pool.size() == 0 or pool._max_overflow < 0:
        return None
    return pool.size() + pool._max_overflow
