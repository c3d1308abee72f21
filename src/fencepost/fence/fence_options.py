"""The options of a fenced transaction."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from fencepost.core.runtime import Runtime
from fencepost.fence.sources.sqlite_limit import LIMIT_S


@dataclass(frozen=True, slots=True)
class FenceOptions:
    """The options of a fenced transaction.

    `check_trust` raises if the writer may not continue. `refused` records that a write was refused. `found_at` stores
    when (monotonic) the writer last found its fence to be its own, by place and table, and again with the search path
    where there is one. `finish`, if given, ends the run inside the transaction, on the connection that the user has,
    and returns whether the run was ours.
    """

    runtime: Runtime
    isolation: str
    ttl_s: float
    check_trust: Callable[[], None]
    refused: Callable[[str], None]
    found_at: dict[Hashable, float] = field(default_factory=dict)
    finish: Callable[[Any], bool] | None = None
    sqlite_limit_s: float = LIMIT_S
