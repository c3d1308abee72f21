"""What a fenced transaction has to keep to."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from fencepost.core.runtime import Runtime
from fencepost.fence.sources.sqlite_limit import LIMIT_S


@dataclass(frozen=True, slots=True)
class FenceOptions:
    """What a transaction has to keep to.

    `check_trust` raises if whoever writes may not go on. `refused` puts on record that a write was refused. `found_at`
    remembers, for whoever writes, where its fence was last found to be its own (the place and the table, and once more
    with the path of names, where there is one), and when (monotonic). `finish`, if there is one, ends the
    run inside the transaction, on what the user was given, and says whether it was ours.
    """

    runtime: Runtime
    isolation: str
    ttl_s: float
    check_trust: Callable[[], None]
    refused: Callable[[str], None]
    found_at: dict[Hashable, float] = field(default_factory=dict)
    finish: Callable[[Any], bool] | None = None
    sqlite_limit_s: float = LIMIT_S
