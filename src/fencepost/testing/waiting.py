"""Waiting for something to become true, with a deadline, instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T | None], deadline_s: float, what: str) -> T:
    """Return the first true answer of `condition`; fail with `what` after `deadline_s`."""
    give_up_at = time.monotonic() + deadline_s
    while True:
        is_last_try = time.monotonic() >= give_up_at
        if result := condition():
            return result
        if is_last_try:
            raise AssertionError(f"not within {deadline_s:g} s: {what}")
        time.sleep(0.01)
