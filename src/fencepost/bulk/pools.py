"""How many connections an engine's pool has. A partition needs two: one to read, and one to write chunks.

If both come from an engine with a single connection, or if many threads use all connections for reading, no thread
could write. Each would wait for the pool's timeout again and again, and the job would only seem to be working.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.pool import QueuePool, StaticPool

from fencepost.errors import InvalidBulk


def refuse_too_few_connections(source: Any, target: Any) -> None:
    """Refuse to read and write through one engine that has a single connection."""
    if source is target and _most(source) == 1:
        raise InvalidBulk(
            f"the pool of the engine {source!r} has only one connection, and a bulk job needs one to read and another "
            "to write; use create_engine(…, pool_size=2) or more and no StaticPool, or read through another engine: "
            "source=…"
        )


def threads_for(source: Any, target: Any, *, wanted: int) -> int:
    """Return how many threads may read and write at the same time without waiting long for a connection."""
    most = _most(target if source is None else source)
    if most is None:
        return wanted
    return max(1, min(wanted, (most + 1) // 2 if source is target else most))


def _most(engine: Any) -> int | None:
    """Return how many connections an engine's pool allows; None if it is unlimited or unknown."""
    pool = getattr(engine, "pool", None)
    if isinstance(pool, StaticPool):
        return 1
    if not isinstance(pool, QueuePool) or pool.size() == 0 or pool._max_overflow < 0:
        return None
    return pool.size() + pool._max_overflow
