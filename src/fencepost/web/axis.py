"""The attempts of a run on one axis of time: waits, back-offs, attempts, and marks for what went wrong between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fencepost.app.records import AttemptRecord, JournalRecord, RunRecord
from fencepost.core.noted import Noted
from fencepost.web.svg import Axis, TimeSpan
from fencepost.web.zones import duration

_MOST = 30  # the latest attempts, a line of the chart each; the page says how many it leaves out
_MARKS = {Noted.REFUSED_WRITE: "refused", Noted.RUN_LOST: "lost"}


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """One attempt, as a line of the chart. `attempt` is None for the one that runs now, or is waited for."""

    number: int
    outcome: str
    node: str
    token: int | None
    started_at: datetime | None
    took: str
    error: str
    spans: tuple[TimeSpan, ...]
    marks: tuple[TimeSpan, ...] = ()  # what was noted of its token


@dataclass(frozen=True, slots=True)
class RefusedWrite:
    """A write that came after its attempt had lost the run. `number` is None if no attempt on record had the token."""

    at: datetime
    number: int | None
    token: int | None


@dataclass(frozen=True, slots=True)
class AttemptChart:
    """All lines of a run, its axis, and the writes that were refused. `left_off`: how many attempts are not shown."""

    axis: Axis
    lines: Sequence[AttemptLine]
    refused: Sequence[RefusedWrite]
    left_off: int


def attempt_chart(
    run: RunRecord, attempts: Sequence[AttemptRecord], journal: Sequence[JournalRecord], now: datetime
) -> AttemptChart | None:
    """Return the chart of a run; None if nothing can be said of time yet."""
    shown = attempts[-_MOST:]
    until = run.ended_at or now
    begins = [_begin(each) for each in shown]
    axis = Axis.around([_since(run, attempts, shown), until, *begins, *(each.ended_at for each in shown)])
    if axis is None:
        return None
    lines, free_from = [], _since(run, attempts, shown)
    for each in shown:
        lines.append(_ended(each, free_from, is_first=each.number == 1))
        free_from = each.ended_at
    if run.ended_at is None:
        lines.append(_open(run, free_from, now, len(attempts)))
    noted = sorted((each for each in journal if each.what in _MARKS), key=lambda each: each.at)
    lines = [
        replace(line, marks=tuple(_mark(each) for each in noted if each.token == line.token is not None))
        for line in lines
    ]
    numbers = {each.token: each.number for each in attempts}
    refused = [
        RefusedWrite(each.at, numbers.get(each.token or 0), each.token)
        for each in noted
        if each.what == Noted.REFUSED_WRITE
    ]
    return AttemptChart(axis, lines, refused, len(attempts) - len(shown))


def _since(run: RunRecord, attempts: Sequence[AttemptRecord], shown: Sequence[AttemptRecord]) -> datetime:
    """Return where the axis begins: when it could have begun, or with the first attempt that is shown."""
    if len(shown) < len(attempts):
        return _begin(shown[0])
    first = _begin(shown[0]) if shown else (run.started_at or run.available_at)
    due = run.due_at or run.created_at
    return min(due, first)


def _begin(attempt: AttemptRecord) -> datetime:
    return attempt.started_at or attempt.ended_at


def _ended(attempt: AttemptRecord, free_from: datetime, *, is_first: bool) -> AttemptLine:
    begin = _begin(attempt)
    took = duration(attempt.took_s if attempt.took_s is not None else (attempt.ended_at - begin))
    outcome = attempt.outcome.replace("_", " ")
    spans = [*_gap(free_from, begin, is_first=is_first)]
    spans.append(TimeSpan(begin, attempt.ended_at, attempt.outcome, f"attempt {attempt.number} {outcome} after {took}"))
    error = ": ".join(filter(None, (attempt.error_code, attempt.error)))
    node = attempt.node_name or attempt.node or ""
    return AttemptLine(attempt.number, outcome, node, attempt.token, attempt.started_at, took, error, tuple(spans))


def _open(run: RunRecord, free_from: datetime, now: datetime, ended: int) -> AttemptLine:
    if run.state == "running" and run.started_at is not None:
        taken = duration(now - run.started_at)
        spans = [*_gap(free_from, run.started_at, is_first=not ended)]
        spans.append(TimeSpan(run.started_at, now, "running", f"attempt {run.attempts} has run for {taken}"))
        node = run.node_name or run.node or ""
        return AttemptLine(run.attempts, "running", node, run.token, run.started_at, f"{taken}…", "", tuple(spans))
    waits = tuple(_gap(free_from, now, is_first=not ended))
    return AttemptLine(ended + 1, run.state, "", None, None, "", run.why or "", waits)


def _gap(start: datetime, end: datetime, *, is_first: bool) -> list[TimeSpan]:
    if end <= start:
        return []
    words = f"waited for {duration(end - start)}" if is_first else f"back-off and wait: {duration(end - start)}"
    return [TimeSpan(start, end, "wait" if is_first else "backoff", words)]


def _mark(entry: JournalRecord) -> TimeSpan:
    token = f", token {entry.token}" if entry.token else ""
    return TimeSpan(entry.at, entry.at, _MARKS[Noted(entry.what)], f"{entry.what}{token}")
