"""An edit of a schedule as it is typed, and the due times that it would add and take away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fencepost.core.duration import typed_seconds
from fencepost.core.schedule import Schedule, cron, every
from fencepost.core.schedules.cron import dst_word
from fencepost.core.schedules.fields import LONGEST
from fencepost.core.tick import instant
from fencepost.errors import InvalidParameters, InvalidSchedule

DAYS = 30  # how far ahead an edit is compared: what it changes only later is not shown
_MOST = 500  # due times of each schedule: one that is due every second has 2,592,000 in these days
_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Edit:
    """A schedule as it was typed, and what that means."""

    when: str
    tz: str
    dst: str
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class DueChanges:
    """The due times of the next 30 days that an edit adds and takes away. `is_cut`: there are more than compared."""

    gained: Sequence[datetime]
    lost: Sequence[datetime]
    kept: int
    is_cut: bool


def read_edit(given: Mapping[str, str]) -> Edit:
    """Read a schedule: a cron expression, or ``every 5m``."""
    when, tz, dst = (
        given.get("when", "").strip(),
        given.get("zone", "").strip() or "UTC",
        given.get("dst", "") or "auto",
    )
    if len(when) > LONGEST:
        raise InvalidParameters(f"a schedule has at most {LONGEST} characters")
    if when.lower().startswith("every "):
        return Edit(when, tz, dst, every(typed_seconds(when[len("every ") :], what="every"), tz=tz))
    if not when:
        raise InvalidSchedule("say when: a cron expression, or every 5m")
    return Edit(when, tz, dst, cron(when, tz=tz, dst=dst_word(dst)))


def due_changes(old: Schedule, new: Schedule, *, now_us: int) -> DueChanges:
    """Compare two schedules over the next 30 days, up to a bound."""
    until_us = now_us + DAYS * _DAY_US
    before = old.dues(now_us, until_us, _MOST + 1)
    after = new.dues(now_us, until_us, _MOST + 1)
    is_cut = len(before) > _MOST or len(after) > _MOST
    if is_cut:  # only up to where both are known
        until_us = min([each[_MOST] for each in (before, after) if len(each) > _MOST])
    olds = {each for each in before if each < until_us or not is_cut}
    news = {each for each in after if each < until_us or not is_cut}
    return DueChanges(
        [instant(each) for each in sorted(news - olds)],
        [instant(each) for each in sorted(olds - news)],
        len(olds & news),
        is_cut,
    )
