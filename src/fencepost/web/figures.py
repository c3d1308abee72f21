"""Figures of jobs as pages show them: bars of outcomes over time, and what they say in words.

Every bar is also in a table or a sentence. The hours are those of UTC: nodes count by the hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING

from fencepost.app.records import HourRecord, OutcomesRecord
from fencepost.web import svg
from fencepost.web.zones import duration

if TYPE_CHECKING:
    from markupsafe import Markup

    from fencepost.app.records import FiguresRecord

DAY, WEEK, ALL = 24, 7 * 24, 35 * 24  # hours; the ledger keeps figures for 35 days (`KEPT_US`)
STRETCHES = {"24h": (DAY, 1), "7d": (WEEK, 1), "35d": (ALL, 24)}
"""What the page of a job can show: hours, and how many of them are one bar."""
_WORDS = ("succeeded", "failed", "timed_out", "lost", "interrupted", "cancelled", "skipped", "misfired", "dead")
_COUNTS = attrgetter(*_WORDS)
_NOTHING = dict.fromkeys(_WORDS, 0)
_KINDS = (("good", ("succeeded",)), ("rest", ("interrupted", "cancelled", "skipped")), ("warn", ("lost", "misfired")),
          ("bad", ("failed", "timed_out")))  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobFigures:
    """The figures of a job on the page of all jobs."""

    day: Markup
    week: Markup
    day_words: str
    week_words: str
    times: str
    share: float | None
    share_words: str
    is_late: bool
    not_counting: int


def job_figures(found: FiguresRecord, *, timeout_s: float | None, sla_s: float | None) -> JobFigures:
    """Return what the page of all jobs shows of the figures of a week."""
    day = bars_of(found.hours, until=found.until_at, hours=DAY, width=1)
    week = bars_of(found.hours, until=found.until_at, hours=WEEK, width=6)  # 28 bars instead of 168
    day_words, week_words = (in_words(_sum([tuple(each.counts.values()) for each in bars])) for bars in (day, week))
    times = found.run_times
    share = times.p99_s / timeout_s if times.p99_s is not None and timeout_s else None
    return JobFigures(
        day=svg.stacks([each.parts for each in day], title=f"the last 24 hours: {day_words}"),
        week=svg.stacks([each.parts for each in week], title=f"the last 7 days: {week_words}"),
        day_words=day_words,
        week_words=week_words,
        times=" / ".join(duration(each) for each in (times.p50_s, times.p95_s, times.p99_s) if each is not None),
        share=share,
        share_words="" if share is None else f"p99 is {share:.0%} of the timeout of {duration(timeout_s)}",
        is_late=bool(sla_s and times.p95_s is not None and times.p95_s > sla_s),
        not_counting=found.not_counting,
    )


@dataclass(frozen=True, slots=True)
class OutcomeBar:
    """One or more hours: when they began, and how many there are of each outcome."""

    at: datetime
    counts: dict[str, int]

    @property
    def parts(self) -> svg.Stack:
        """The counts by colour, from the bottom up."""
        return svg.Stack(tuple((kind, sum(map(self.counts.__getitem__, words))) for kind, words in _KINDS), "")

    @property
    def stack(self) -> svg.Stack:
        """The same with a title."""
        return replace(self.parts, title=f"{self.at:%d %b %H:%M}Z: {in_words(self.counts)}")


def bars_of(found: Sequence[HourRecord], *, until: datetime, hours: int, width: int) -> list[OutcomeBar]:
    """Return the bars of the last `hours`, `width` hours each, the oldest first; the last one has the present hour."""
    end = until.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    begin = end - timedelta(hours=hours)
    bars: list[list[tuple[int, ...]]] = [[] for _ in range(hours // width)]
    for each in found:
        place = (each.at - begin) // timedelta(hours=width)
        if 0 <= place < len(bars):
            bars[place].append(_COUNTS(each.outcomes))
    return [OutcomeBar(begin + timedelta(hours=at * width), _sum(each)) for at, each in enumerate(bars)]


def in_words(counts: dict[str, int] | OutcomesRecord) -> str:
    """Say what was counted: ``412 succeeded, 3 failed, 1 given up``."""
    known = counts if isinstance(counts, dict) else {word: getattr(counts, word) for word in _WORDS}
    said = [f"{known[word]:,} {word.replace('_', ' ')}" for word in _WORDS if known[word] and word != "dead"]
    given_up = [f"{known['dead']:,} given up"] if known["dead"] else []
    return ", ".join(said + given_up) or "nothing ended"


def _sum(counts: Sequence[tuple[int, ...]]) -> dict[str, int]:
    return dict(zip(_WORDS, map(sum, zip(*counts, strict=True)), strict=True)) if counts else dict(_NOTHING)
