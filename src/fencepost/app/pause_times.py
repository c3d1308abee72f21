"""When a pause ends: at a time, or after a duration, by the ledger's clock."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from fencepost.core.duration import Duration, seconds
from fencepost.core.tick import spelled_us
from fencepost.engine.requesting import instant_us
from fencepost.errors import InvalidParameters

if TYPE_CHECKING:
    from fencepost.ledger.ledger import Ledger

LONGEST_S = 10 * 366 * 86_400.0
"""A pause with an end lasts ten years at most: a longer one is a mistake, and has to do without an end."""


def pause_end_us(ledger: Ledger, *, until: datetime | str | None, duration: Duration | None) -> int | None:
    """Return the end of a pause that begins now; None if it has none. Refuse an end that has passed."""
    if until is None and duration is None:
        return None
    if until is not None and duration is not None:
        raise InvalidParameters("give the end of a pause as a time or as a duration, not both")
    now_us = ledger.now_us()
    longest_us = round(LONGEST_S * 1_000_000)
    if duration is not None:
        for_s = seconds(duration, what="duration")
        end_us = now_us + (longest_us + 1 if for_s > LONGEST_S else round(for_s * 1_000_000))
    else:
        end_us = instant_us(until, what="until")  # type: ignore[arg-type] # one of them is given
    if end_us <= now_us:
        raise InvalidParameters(
            f"a pause has to end later than now, which is {spelled_us(now_us)} by the ledger's clock"
        )
    if end_us > now_us + longest_us:
        raise InvalidParameters("a pause with an end lasts ten years at most; leave the end out")
    return end_us
