"""Schedules as people write them in one line: a cron expression, or ``every 5m``."""

from __future__ import annotations

from fencepost.core.duration import typed_seconds
from fencepost.core.schedules.cron import Cron, cron, dst_word
from fencepost.core.schedules.every import Every, every


def written(text: str, *, tz: str, dst: str = "auto") -> Cron | Every | None:
    """Read an expression; None if the text is the name of a schedule or job."""
    stripped = text.strip()
    if stripped.lower().startswith("every "):
        return every(typed_seconds(stripped[len("every ") :], what="every"), tz=tz)
    return cron(stripped, tz=tz, dst=dst_word(dst)) if " " in stripped or stripped.startswith("@") else None
