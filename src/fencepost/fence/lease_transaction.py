"""`lease.fence(connection)`: the fenced transaction of a lock, with a fence row under the lock's name."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from fencepost.core.fencing import FencingToken
from fencepost.core.runtime import Runtime
from fencepost.core.urls import identifier
from fencepost.fence.fence_options import FenceOptions
from fencepost.fence.fence_row import fence_row
from fencepost.fence.sources import source_of
from fencepost.fence.transaction import FencedTransaction
from fencepost.fence.writer import TablePlace


@dataclass(frozen=True, slots=True)
class LeaseFence:
    """A lease's token for fences in databases, and where and when they were last found to be its own."""

    fencing: FencingToken
    runtime: Runtime
    ttl_s: Callable[[], float]
    check_trust: Callable[[], None]
    refused: Callable[[str], None]
    found_at: dict[Hashable, float] = field(default_factory=dict)

    def transaction(self, source: Any, *, isolation: str, prefix: str, schema: str | None) -> FencedTransaction:
        """Return a transaction on `source` that has not begun yet."""
        tables = TablePlace(
            identifier(prefix, what="prefix"), identifier(schema, what="schema") if schema is not None else None
        )
        row = fence_row(self.fencing, tables, what=f"lock {self.fencing.key!r}")
        terms = FenceOptions(
            runtime=self.runtime,
            isolation=isolation,
            ttl_s=self.ttl_s(),
            check_trust=self.check_trust,
            refused=self.refused,
            found_at=self.found_at,
        )
        return FencedTransaction(source_of(source), lambda _: row, terms)
