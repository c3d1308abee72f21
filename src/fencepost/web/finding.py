"""The find box of runs: ``job:settle state:dead since:24h``. Reads it, spells it, and looks through history in bounds.

What an index answers is answered over all history. Anything else is looked for among the newest runs, a stretch of ids
after the other, until a page is full, time is up or enough was read; then the page says how far it came.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fencepost.app.records import RunRecord
from fencepost.core.duration import seconds
from fencepost.core.nearest import suggestion
from fencepost.core.states import RunState, WaitsFor
from fencepost.errors import FencepostError, InvalidDuration, InvalidParameters

PAGE = 50
MOST_READ = 100_000  # runs that one request looks through
LONGEST_S = 0.15
_FIRST_STRETCH, _LONGEST_STRETCH = 500, 8_000
_LIVE = frozenset({RunState.WAITING, RunState.QUEUED, RunState.RUNNING})
_FIELDS = {
    "job": "job",
    "state": "states",
    "waits": "waits_for",
    "schedule": "schedule",
    "queue": "queue",
    "node": "node",
    "by": "requested_by",
    "key": "exclusive_key",
    "retry-of": "retry_of",
    "since": "since",
    "until": "until",
    "id": "ids",
}
QUALIFIERS = tuple(_FIELDS)
_INDEXED = frozenset({"job", "schedule", "retry_of", "ids", "since", "until"})  # alone or together with live states


@dataclass(frozen=True, slots=True)
class Find:
    """What was asked for: `text` as it was typed, `wanted` as `runs` takes it."""

    text: str
    wanted: Mapping[str, Any]

    @property
    def is_indexed(self) -> bool:
        """Whether an index leads to what is asked for, so that little else is read."""
        states = set(self.wanted.get("states", ()))
        if states and states <= _LIVE:
            return True  # of what has not ended there is little, compared with history
        if states == {RunState.DEAD}:
            return set(self.wanted) <= {"states", "since", "until"}
        return not states and set(self.wanted) <= _INDEXED

    @property
    def job(self) -> str | None:
        """The job that is asked for, if it is one."""
        return self.wanted.get("job")

    @property
    def states(self) -> Sequence[str]:
        """The states that are asked for."""
        return tuple(self.wanted.get("states", ()))


@dataclass(frozen=True, slots=True)
class RunsFound:
    """A page of runs, newest first. `next_before` is where the next page begins; None if there is none.

    `looked_back_to`: the search ended early, after having looked through `looked_through` runs back to this id.
    """

    runs: Sequence[RunRecord]
    next_before: int | None
    looked_through: int = 0
    looked_back_to: int | None = None


def read_find(text: str, *, now: datetime) -> Find:
    """Read what was typed, or refuse it with a sentence that names the word."""
    wanted: dict[str, Any] = {}
    for word in _words(text):
        name, colon, value = word.partition(":")
        if not colon:
            name, value = ("id", word) if word.isascii() and word.isdigit() else ("job", word)
        if name.lower() not in _FIELDS:
            raise InvalidParameters(f"there is no {name!r} to look for; {suggestion(name, QUALIFIERS)}")
        _take(wanted, name.lower(), value, now)
    return Find(text.strip(), wanted)


def _words(text: str) -> list[str]:
    if len(text) > 1_000:
        raise InvalidParameters("that is too long to look for: 1,000 characters at most")
    try:
        return shlex.split(text)
    except ValueError:
        raise InvalidParameters("a quotation mark has no partner") from None


def _take(wanted: dict[str, Any], name: str, value: str, now: datetime) -> None:
    if not value:
        raise InvalidParameters(f"{name}: needs a value, as in {name}:settle")
    field = _FIELDS[name]
    match name:
        case "state":
            wanted[field] = (*wanted.get(field, ()), *map(_state, value.split(",")))
        case "waits":
            if value not in tuple(WaitsFor):
                raise InvalidParameters(f"nothing waits for {value!r}; {suggestion(value, tuple(WaitsFor))}")
            wanted[field] = value
            wanted.setdefault("states", (RunState.WAITING.value,))
        case "since" | "until":
            wanted[field] = read_instant(value, now=now, what=name)
        case "id":
            wanted[field] = (*wanted.get(field, ()), whole(value, what="id"))
        case "retry-of":
            wanted[field] = whole(value, what="retry-of")
        case _:
            wanted[field] = value


def _state(word: str) -> str:
    lowered = word.strip().lower()
    if lowered not in tuple(RunState):
        raise InvalidParameters(f"there is no state {word!r}; {suggestion(lowered, tuple(RunState))}")
    return lowered


def whole(text: str, *, what: str) -> int:
    """Read a whole number that a database can have, or refuse it."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < 2**63):
        raise InvalidParameters(f"{what}: {text[:40]!r} is not a number of something on record")
    return int(text)


def read_instant(text: str, *, now: datetime, what: str) -> datetime:
    """Read an instant: ``24h`` for so long ago, or a time with its zone."""
    stripped = text.strip()
    if stripped.lower() == "now":
        return now
    try:
        return now - timedelta(seconds=seconds(stripped, what=what))
    except InvalidDuration:
        pass
    except (OverflowError, FencepostError):
        raise InvalidParameters(f"{what}: {text[:40]!r} is too long ago") from None
    try:
        read = datetime.fromisoformat(stripped)
    except ValueError:
        raise InvalidParameters(f"{what}: {text[:40]!r} is not a time; write 24h, or 2026-03-29T01:00Z") from None
    if read.tzinfo is None:
        raise InvalidParameters(f"{what}: {text[:40]!r} has no time zone; write {stripped[:40]}Z for UTC")
    return read


Ask = Callable[..., list[RunRecord]]


def find_runs(ask: Ask, find: Find, *, before_id: int | None, size: int, clock: Callable[[], float]) -> RunsFound:
    """Return a page of runs. `ask` is `Authorized.runs`; `clock` is monotonic."""
    if find.is_indexed:
        rows = ask(**find.wanted, before_id=before_id, limit=size + 1)
        page = rows[:size]
        return RunsFound(page, page[-1].id if len(rows) > size else None)
    return _Search(ask, find, size, clock).run(before_id)


class _Search:
    """A search without an index: stretches of ids, from the newest back."""

    def __init__(self, ask: Ask, find: Find, size: int, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._find = find
        self._size = size
        self._clock = clock

    def run(self, before_id: int | None) -> RunsFound:
        until = self._clock() + LONGEST_S
        top = self._top() if before_id is None else before_id
        floor = self._floor()
        start, stretch = top, _FIRST_STRETCH
        found: list[RunRecord] = []
        while len(found) <= self._size and top > floor:
            if start - top >= MOST_READ or self._clock() > until:
                break
            bottom = max(floor, top - stretch)
            found += reversed(self._within(bottom, top))
            top, stretch = bottom, min(2 * stretch, _LONGEST_STRETCH)
        if len(found) > self._size:
            return RunsFound(found[: self._size], found[self._size - 1].id)
        if top <= floor:
            return RunsFound(found, None)
        return RunsFound(found, top, start - top, top)

    def _within(self, bottom: int, top: int) -> list[RunRecord]:
        """Return the matching runs with ids from `bottom` to before `top`, oldest first."""
        wanted = {name: value for name, value in self._find.wanted.items() if name not in ("since", "until")}
        found = self._ask(**wanted, after_id=bottom - 1, before_id=top, limit=top - bottom)
        since, until = self._find.wanted.get("since"), self._find.wanted.get("until")
        return [
            each
            for each in found
            if (since is None or each.created_at >= since) and (until is None or each.created_at < until)
        ]

    def _top(self) -> int:
        newest = self._ask(limit=1, until=self._find.wanted.get("until"))
        return newest[0].id + 1 if newest else 0

    def _floor(self) -> int:
        """Return the first id that matters."""
        oldest = self._ask(after_id=0, limit=1, since=self._find.wanted.get("since"))
        return oldest[0].id if oldest else 1
