"""Schedules as people write them in one line: a cron expression, or ``every 5m``."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.core.duration import is_duration, is_plain_number, typed_seconds
from fencepost.core.nearest import nearest
from fencepost.core.schedules.cron import Cron, cron, dst_word
from fencepost.core.schedules.every import Every, every
from fencepost.errors import InvalidSchedule

_UNKNOWN = "is neither a schedule, a job, nor a cron expression"


def written(text: str, *, tz: str, dst: str = "auto") -> Cron | Every | None:
    """Read an expression; None if the text is the name of a schedule or job."""
    stripped = text.strip()
    if stripped.lower().startswith("every "):
        return every(typed_seconds(stripped[len("every ") :], what="every"), tz=tz)
    if (meant := _every_meant(stripped)) is not None:
        raise InvalidSchedule(f"{text!r} {_UNKNOWN}; did you mean {meant!r}?")
    return cron(stripped, tz=tz, dst=dst_word(dst)) if " " in stripped or stripped.startswith("@") else None


def no_outlook(text: str, jobs: Iterable[str], schedules: Iterable[str]) -> str:
    """Say that a text names nothing that has due times, and what may have been meant."""
    names = [*jobs, *schedules]
    if text in names:
        return f"job {text!r} has no schedule: it runs on request only"
    unknown = f"{text!r} {_UNKNOWN}"
    if _is_interval(text):
        return f"{unknown}; for an interval write 'every {text.strip()}'"
    near = nearest(text, names)
    return unknown if near is None else f"{unknown}; did you mean {near!r}?"


def as_code(text: str) -> str | None:
    """Return the call that makes the schedule that a text may stand for; None if it stands for none."""
    if (interval := text.strip().lower().removeprefix("every ").strip()) and _is_interval(interval):
        return f"every({interval!r})"
    try:
        cron(text)
    except InvalidSchedule:
        return None
    return f"cron({text!r})"


def _is_interval(text: str) -> bool:
    return is_duration(text) and not is_plain_number(text.strip())


def _every_meant(text: str) -> str | None:
    """Return ``every 5m`` for ``evry 5m``."""
    first, _, interval = text.strip().partition(" ")
    return f"every {interval.strip()}" if _is_interval(interval) and nearest(first.lower(), ["every"]) else None
