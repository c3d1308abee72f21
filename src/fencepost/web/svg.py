"""Charts as SVG, made by the server. They hold no text but titles; what they show is in a table beside them, too.

Sizes are attributes and colours are classes: the pages' content policy allows no inline style.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from fencepost.app.records import ClockChangeRecord

WIDTH = 1000  # units, which the browser stretches to the page: one is a thousandth of the time shown
_THINNEST = 3.0  # so that what took no time can be seen


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A stretch of time in a chart: `kind` is the class that colours it, `title` what it says when pointed at."""

    start: datetime
    end: datetime
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Axis:
    """The stretch of time that a chart shows."""

    start: datetime
    end: datetime

    @staticmethod
    def around(instants: Iterable[datetime | None]) -> Axis | None:
        """Return the axis that holds these instants; None if there are none."""
        known = [each for each in instants if each is not None]
        return Axis(min(known), max(known)) if known else None

    def place(self, at: datetime) -> float:
        """Return where an instant is, from 0 to `WIDTH`."""
        whole = (self.end - self.start).total_seconds()
        if whole <= 0:
            return 0.0
        share = (at - self.start).total_seconds() / whole
        return max(0.0, min(1.0, share)) * WIDTH


def bars(axis: Axis, spans: Sequence[TimeSpan], marks: Sequence[TimeSpan] = (), *, height: int = 14) -> Markup:
    """Draw stretches on one line of the axis, and marks as thin lines over it."""
    drawn = [_bar(axis, each, height) for each in spans] + [_mark(axis, each, height) for each in marks]
    return Markup(
        '<svg class="bars" viewBox="0 0 {} {}" preserveAspectRatio="none" width="100%" height="{}" role="img" '
        'aria-label="{}">{}</svg>'
    ).format(WIDTH, height, height, "; ".join(each.title for each in (*spans, *marks)), Markup("").join(drawn))


def _bar(axis: Axis, span: TimeSpan, height: int) -> Markup:
    left, right = axis.place(span.start), axis.place(span.end)
    wide = max(right - left, _THINNEST)
    left = min(left, WIDTH - wide)
    inset = 5 if span.kind in ("wait", "backoff") else 1  # units: waiting is drawn thinner than work
    return Markup('<rect class="span {}" x="{:.1f}" y="{}" width="{:.1f}" height="{}"><title>{}</title></rect>').format(
        span.kind, left, inset, wide, height - 2 * inset, span.title
    )


def _mark(axis: Axis, mark: TimeSpan, height: int) -> Markup:
    left = min(axis.place(mark.start), WIDTH - 4.0)
    return Markup('<rect class="mark {}" x="{:.1f}" y="0" width="4" height="{}"><title>{}</title></rect>').format(
        mark.kind, left, height, mark.title
    )


def ratio(share: float, *, title: str) -> Markup:
    """Draw how much of a whole is used: beyond two thirds it warns, beyond nine tenths it alarms."""
    bounded = max(0.0, min(share, 1.0))
    # As Now counts: a run near its timeout (`_NEAR`), a node late with its renewal (`_LATE_RENEWAL`).
    kind = "bad" if share >= 0.9 else "warn" if share >= 0.66 else "good"
    return Markup(
        '<svg class="ratio" viewBox="0 0 100 8" preserveAspectRatio="none" width="90" height="8" role="img" '
        'aria-label="{}"><title>{}</title><rect class="track" width="100" height="8"/>'
        '<rect class="fill {}" width="{:.1f}" height="8"/></svg>'
    ).format(title, title, kind, bounded * 100)


def strip(outcomes: Sequence[tuple[str, str]]) -> Markup:
    """Draw what became of the latest runs, one small bar each, the oldest first: pairs of a state and a title."""
    drawn = [
        Markup('<rect class="state-{}" x="{}" width="4" height="16"><title>{}</title></rect>').format(
            state, 5 * at, title
        )
        for at, (state, title) in enumerate(outcomes)
    ]
    wide = max(5 * len(outcomes) - 1, 1)
    return Markup(
        '<svg class="strip" viewBox="0 0 {} 16" width="{}" height="16" role="img" aria-label="{}">{}</svg>'
    ).format(wide, wide, f"the latest {len(outcomes)} runs", Markup("").join(drawn))


@dataclass(frozen=True, slots=True)
class Stack:
    """One bar of several colours, from the bottom up: pairs of a class and a count. `title` says the same."""

    parts: tuple[tuple[str, int], ...]
    title: str

    @property
    def whole(self) -> int:
        """The sum of the counts."""
        return sum(count for _, count in self.parts)


_STACK_STEP, _STACK_WIDE = 5, 4  # units from one bar to the next, and of a bar: a gap of one remains
_LOWEST = 2.0  # so that one failure among thousands can be seen


def stacks(drawn: Sequence[Stack], *, title: str, height: int = 20) -> Markup:
    """Draw bars side by side, as high as their counts are in proportion to the highest. It has one title."""
    most = max((each.whole for each in drawn), default=0) or 1
    paths: dict[str, list[str]] = {}
    for place, each in enumerate(drawn):
        for kind, path in _stacked(each, place, most, height):
            paths.setdefault(kind, []).append(path)
    inside = Markup("").join(
        Markup('<path class="stack {}" d="{}"/>').format(kind, "".join(found)) for kind, found in paths.items()
    )
    return _stack_chart(len(drawn), height, title, inside, fixed=True)


def titled_stacks(drawn: Sequence[Stack], *, title: str, height: int = 120) -> Markup:
    """Draw the same as wide as the page, each bar with a title of its own."""
    most = max((each.whole for each in drawn), default=0) or 1
    bars_ = [
        Markup("<g><title>{}</title>{}</g>").format(
            each.title,
            Markup("").join(
                Markup('<path class="stack {}" d="{}"/>').format(kind, path)
                for kind, path in _stacked(each, place, most, height)
            ),
        )
        for place, each in enumerate(drawn)
        if each.whole
    ]
    return _stack_chart(len(drawn), height, title, Markup("").join(bars_), fixed=False)


def _stacked(stack: Stack, place: int, most: int, height: int) -> list[tuple[str, str]]:
    """Return the parts of a bar as paths. What is small is drawn higher than it is, and the largest part lower."""
    heights = {kind: max(count / most * height, _LOWEST) for kind, count in stack.parts if count}
    if (over := sum(heights.values()) - height) > 0:
        largest = max(heights, key=lambda kind: heights[kind])
        heights[largest] = max(heights[largest] - over, _LOWEST)
    found, bottom = [], float(height)
    for kind, high in heights.items():
        bottom -= high
        found.append((kind, f"M{place * _STACK_STEP} {bottom:.1f}h{_STACK_WIDE}v{high:.1f}h-{_STACK_WIDE}z"))
    return found


def _stack_chart(count: int, height: int, title: str, inside: Markup, *, fixed: bool) -> Markup:
    wide = max(count * _STACK_STEP - 1, 1)
    return Markup(
        '<svg class="stacks" viewBox="0 0 {} {}" width="{}" height="{}" preserveAspectRatio="none" role="img" '
        'aria-label="{}"><title>{}</title><path class="ground" d="M0 {}h{}v1h-{}z"/>{}</svg>'
    ).format(wide, height, wide if fixed else "100%", height, title, title, height - 1, wide, wide, inside)


def clock_change(change: ClockChangeRecord) -> Markup:
    """Draw a change of the clocks: the times around it that are due as full dots, others as empty ones."""
    dues = [each.due_at for each in change.around if each.due_at is not None]
    axis = Axis.around([change.at, *dues])
    if axis is None or axis.start == axis.end:
        return Markup("")
    # The axis of 1,000 units becomes 560 of the 600 that are drawn, with a margin of 20 on either side.
    dots = [
        Markup('<circle class="due" cx="{:.1f}" cy="16" r="5"><title>{}</title></circle>').format(
            20 + axis.place(each.due_at) * 0.56, f"{each.local} {each.note or ''}".strip()
        )
        for each in change.around
        if each.due_at is not None
    ]
    at = 20 + axis.place(change.at) * 0.56
    label = f"{len(dots)} due times around the change"
    return Markup(
        '<svg class="clock" viewBox="0 0 600 32" width="100%" height="32" preserveAspectRatio="xMinYMid" role="img" '
        'aria-label="{}">'
        '<line class="axis" x1="10" y1="16" x2="590" y2="16"/><line class="change {}" x1="{:.1f}" y1="2" x2="{:.1f}" '
        'y2="30"><title>{}</title></line>{}</svg>'
    ).format(label, change.kind, at, at, f"{change.local_before} becomes {change.local_after}", Markup("").join(dots))
