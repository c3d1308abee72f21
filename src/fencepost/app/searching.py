"""Finding runs in history, in bounds: no question takes so long that there is no answer.

What an index answers is answered over all history: a job, a schedule, ids, what has not ended, and declared search keys
(``@app.job(search=…)``). Anything else is looked for among the newest runs, a stretch of ids after the other, until a
page is full, `LONGEST_S` are over or `MOST_READ` runs were looked through. Then the answer says how far it came, and
where to go on.

**Not promised.** That a page is full: one without any run may have a next page.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Protocol, TypedDict

from fencepost.app.records import RunRecord, RunsFound
from fencepost.core.states import RunState
from fencepost.core.tick import instant
from fencepost.errors import InvalidParameters, LedgerUnavailable
from fencepost.ledger.history import RunFilter

MOST_READ = 100_000  # runs that one search looks through
LONGEST_S = 0.15  # as docs/performance.md says; the next page goes on from there
MOST_PARAMETERS = 10  # as many as a job can declare for search (`core.search_keys.MOST_NAMES`)
LONGEST_VALUE = 1_000  # characters of a parameter that is searched for
_FIRST_STRETCH, _LONGEST_STRETCH = 500, 8_000  # ids in one question: few may fill the page; then twice as many
_MOST_KEYS = 1_000  # ids in one statement
_LIVE = frozenset({RunState.WAITING, RunState.QUEUED, RunState.RUNNING})


class RunWishes(TypedDict, total=False):
    """What runs are looked for by, besides their parameters. None does not filter."""

    job: str | None
    states: Collection[str]
    waits_for: str | None
    schedule: str | None
    queue: str | None
    node: str | None
    requested_by: str | None
    retry_of: int | None
    exclusive_key: str | None
    since: datetime | str | None
    until: datetime | str | None
    ids: Collection[int] | None


class RunSearch(RunWishes, total=False):
    """The same, and texts by the names of parameters: ``{"customer": "7"}``."""

    params: Mapping[str, str] | None


class Ask(Protocol):
    """Asks for a page of runs, newest first; with `after_id` oldest first."""

    def __call__(
        self, wanted: RunFilter, *, before_id: int | None = None, after_id: int | None = None, limit: int
    ) -> list[RunRecord]: ...


KeyedIds = Callable[[int | None, int], list[int]]
"""Returns up to so many ids of runs with a search key, before an id, newest first."""


def checked_params(params: Mapping[str, str] | None) -> dict[str, str]:
    """Return the parameters that are looked for, or refuse them."""
    given = dict(params or {})
    if len(given) > MOST_PARAMETERS:
        raise InvalidParameters(f"at most {MOST_PARAMETERS} parameters can be looked for at once")
    for name, text in given.items():
        if not name.isidentifier() or len(text) > LONGEST_VALUE:
            raise InvalidParameters(
                f"parameter {name[:60]!r}: give its name, and a text of at most {LONGEST_VALUE} characters"
            )
    return given


def is_indexed(wanted: RunFilter) -> bool:
    """Whether an index leads to what is asked for, so that little else is read."""
    if wanted.ids is not None or wanted.retry_of is not None:
        return True
    states = set(wanted.states)
    if states and states <= _LIVE:
        return True  # of what has not ended there is little, compared with history
    others = ("waits_for", "queue", "node", "requested_by", "exclusive_key", "params")
    if any(getattr(wanted, name) is not None for name in others):
        return False
    if states == {RunState.DEAD}:
        return wanted.job is None and wanted.schedule is None
    return not states


def find_runs(
    ask: Ask,
    wanted: RunFilter,
    *,
    size: int,
    clock: Callable[[], float],
    before_id: int | None = None,
    after_id: int | None = None,
    keyed: KeyedIds | None = None,
) -> RunsFound:
    """Return a page of runs: newest first before `before_id`, or oldest first after `after_id`.

    `keyed` leads to the runs with a declared search key. `clock` is monotonic.
    """
    search = _Search(ask, wanted, size, clock)
    if keyed is not None and after_id is None:
        return search.by_key(keyed, before_id)
    if not is_indexed(wanted):
        return search.falling(before_id) if after_id is None else search.rising(after_id, before_id)
    rows = ask(wanted, before_id=before_id, after_id=after_id, limit=size + 1)
    page = rows[:size]
    edge = page[-1].id if len(rows) > size and page else None
    return RunsFound(page, next_before=edge) if after_id is None else RunsFound(page, next_after=edge)


class _Search:
    """One search, in bounds."""

    def __init__(self, ask: Ask, wanted: RunFilter, size: int, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._wanted = wanted
        self._in_stretch = replace(wanted, since_us=None, until_us=None)  # else each stretch would look for their ids
        self._size = size
        self._clock = clock
        self._until = clock() + LONGEST_S
        self._found: list[RunRecord] = []
        self._read = 0

    def falling(self, before_id: int | None) -> RunsFound:
        """Look from the newest run, or from an id, back."""
        floor, top, stretch = self._floor(), self._top() if before_id is None else before_id, _FIRST_STRETCH
        while top > floor and self._goes_on():
            bottom = max(floor, top - stretch)
            if not self._look(bottom, top, is_rising=False):
                break
            top, stretch = self._before_gap(bottom), min(2 * stretch, _LONGEST_STRETCH)
        if len(self._found) > self._size:
            return RunsFound(self._found[: self._size], next_before=self._found[self._size - 1].id)
        return self._ended(None if top <= floor else top)

    def rising(self, after_id: int, before_id: int | None) -> RunsFound:
        """Look from an id on, towards the newest run."""
        top, stretch = self._top() if before_id is None else before_id, _FIRST_STRETCH
        bottom = max(after_id + 1, self._floor())
        while bottom < top and self._goes_on():
            end = min(top, bottom + stretch)
            if not self._look(bottom, end, is_rising=True):
                break
            bottom, stretch = self._after_gap(end, top), min(2 * stretch, _LONGEST_STRETCH)
        if len(self._found) > self._size:
            return RunsFound(self._found[: self._size], next_after=self._found[self._size - 1].id)
        found = self._ended(None if bottom >= top else bottom)
        return found if found.next_before is None else replace(found, next_before=None, next_after=bottom - 1)

    def by_key(self, keyed: KeyedIds, before_id: int | None) -> RunsFound:
        """Look at the runs with a search key, and at no others."""
        edge, stretch = before_id, self._size + 1
        while self._goes_on():
            ids = keyed(edge, stretch)
            chosen = ids if self._wanted.ids is None else sorted(set(ids) & set(self._wanted.ids))
            if chosen:
                self._found += self._ask(replace(self._wanted, ids=chosen), limit=len(chosen))
            self._read += len(ids)
            if len(ids) < stretch:
                edge = None
                break
            edge, stretch = ids[-1], min(2 * stretch, _MOST_KEYS)
        if len(self._found) > self._size:
            return RunsFound(self._found[: self._size], next_before=self._found[self._size - 1].id)
        return self._ended(edge)

    def _goes_on(self) -> bool:
        if not self._read:  # each search gets a little further, however slow the ledger is
            return True
        return len(self._found) <= self._size and self._read < MOST_READ and self._clock() <= self._until

    def _look(self, bottom: int, top: int, *, is_rising: bool) -> bool:
        """Look through the ids from `bottom` to before `top`; return False if the ledger did not answer in time."""
        try:
            found = self._ask(self._in_stretch, after_id=bottom - 1, before_id=top, limit=top - bottom)
        except LedgerUnavailable:
            if not self._read:
                raise
            return False  # what was found so far is an answer, too
        since, until = self._wanted.since_us, self._wanted.until_us
        found = [
            each
            for each in found
            if (since is None or each.created_at >= instant(since))
            and (until is None or each.created_at < instant(until))
        ]
        self._found += found if is_rising else reversed(found)
        self._read += top - bottom
        return True

    def _ended(self, edge: int | None) -> RunsFound:
        """Return a page that is not full, because there is no more, or because the search ended at `edge`."""
        if edge is None:
            return RunsFound(self._found)
        there = self._ask(RunFilter(jobs=self._wanted.jobs), after_id=edge - 1, limit=1)
        at = there[0].created_at if there else None
        return RunsFound(
            self._found, next_before=edge, looked_through=self._read, looked_back_to=edge, looked_back_at=at
        )

    def _before_gap(self, top: int) -> int:
        """Return where the next stretch ends: a ledger that was restored has left out a million ids."""
        try:
            below = self._ask(RunFilter(jobs=self._wanted.jobs), before_id=top, limit=1)
        except LedgerUnavailable:  # the next look ends the search
            return top
        return below[0].id + 1 if below else 0

    def _after_gap(self, bottom: int, top: int) -> int:
        """Return where the next stretch begins: at `top` if there is nothing more."""
        try:
            above = self._ask(RunFilter(jobs=self._wanted.jobs), after_id=bottom - 1, limit=1)
        except LedgerUnavailable:
            return bottom
        return min(above[0].id, top) if above else top

    def _top(self) -> int:
        newest = self._ask(RunFilter(jobs=self._wanted.jobs, until_us=self._wanted.until_us), limit=1)
        return newest[0].id + 1 if newest else 0

    def _floor(self) -> int:
        """Return the first id that matters."""
        oldest = self._ask(RunFilter(jobs=self._wanted.jobs, since_us=self._wanted.since_us), after_id=0, limit=1)
        return oldest[0].id if oldest else 1
