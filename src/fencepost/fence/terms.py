"""What a fenced transaction has to keep to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fencepost.core.runtime import Runtime
from fencepost.fence.sqlite_limit import LIMIT_S


@dataclass(frozen=True, slots=True)
class Terms:
    """What a transaction has to keep to.

    `check_trust` raises if whoever writes may not go on. `finish`, if there is one, ends the run inside the
    transaction, on what the user was given, and says whether it was ours. `refused` puts on record that a write was
    refused.
    """

    runtime: Runtime
    isolation: str
    ttl_s: float
    check_trust: Callable[[], None]
    refused: Callable[[str], None]
    finish: Callable[[Any], bool] | None = None
    sqlite_limit_s: float = LIMIT_S
