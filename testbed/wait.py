"""Waiting for something to become true, with a deadline, instead of sleeping and hoping."""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

POLL_S = 0.01
LONGEST_PAUSE_S = 0.5


def until(
    condition: Callable[[], Result],
    deadline_s: float = 30.0,
    *,
    what: str = "",
    ignoring: tuple[type[Exception], ...] = (),
) -> Result:
    """Call ``condition`` every 10 ms until it answers something truthy, and return that.

    One that takes long is called more rarely: it would take the processor from what it waits for.
    Exceptions listed in ``ignoring`` count as "not yet". The condition is always tried once more after the deadline,
    so a slow machine that slept through it does not fail a condition that holds. Raises ``TimeoutError``, chained to
    the last ignored exception.
    """
    give_up_at = time.monotonic() + deadline_s
    while True:
        asked_at = time.monotonic()
        reason: Exception | None = None
        try:
            if result := condition():
                return result
        except ignoring as error:
            reason = error
        if asked_at >= give_up_at:
            raise TimeoutError(f"{what or _name(condition)}: not within {deadline_s:g} s") from reason
        time.sleep(min(max(POLL_S, 4 * (time.monotonic() - asked_at)), LONGEST_PAUSE_S))


def _name(condition: Callable[[], object]) -> str:
    return getattr(condition, "__qualname__", repr(condition))
