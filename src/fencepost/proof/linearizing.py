"""Checks whether overlapping calls have an order that explains all answers (linearizability).

This is the search of Wing and Gong, with memoization. Each answered call takes effect at one moment between its request
and its answer. The order is built from the left: the next call may be any that was sent before every other open call
was answered. A combination of completed calls and state is tried only once, so the time is proportional to the length
of a history with few concurrent calls.

`at` is the earliest time that the order so far allows. A step may choose a later one, up to `until`, when the first
open call is answered. Calls without an answer are not part of the search. The model lets them take effect when that
explains something.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fencepost.proof.calls import NEVER, Call

S = TypeVar("S", bound=Hashable)
Step = Callable[[S, Call, float, float], Iterator[tuple[S, float]]]
MOST_STEPS = 400_000  # places in memory; a history that needs more is reported as undecided, not as right


@dataclass(frozen=True, slots=True)
class StuckOrder(Generic[S]):
    """The best order found: how many calls it explains, the state after them, and the next call, which does not fit.

    `is_decided` is False if the search was stopped early.
    """

    explained: int
    state: S
    call: Call
    is_decided: bool = True


def explain(calls: Sequence[Call], first: S, step: Step[S], *, most_steps: int = MOST_STEPS) -> StuckOrder[S] | None:
    """Return None if some order explains all calls, otherwise the best partial order."""
    return _Search(sorted(calls, key=lambda call: (call.sent_at, call.ended_at)), step, most_steps).run(first)


class _Search(Generic[S]):
    """One search. At each place, all calls before `base`, and those in `mask` (counted from `base`), are done."""

    def __init__(self, calls: list[Call], step: Step[S], most_steps: int) -> None:
        self._calls = calls
        self._step = step
        self._most_steps = most_steps

    def run(self, first: S) -> StuckOrder[S] | None:
        begin = (0, 0, first, 0.0 if not self._calls else self._calls[0].sent_at)
        seen = {begin}
        stack = [begin]
        best = (-1, begin)
        while stack:
            place = stack.pop()
            base, mask, _, _ = place
            if base == len(self._calls):
                return None
            best = max(best, (base + mask.bit_count(), place), key=lambda each: each[0])
            if len(seen) > self._most_steps:
                return self._stuck(best, is_decided=False)
            for found in self._next(place):
                if found not in seen:
                    seen.add(found)
                    stack.append(found)
        return self._stuck(best, is_decided=True)

    def _stuck(self, best: tuple[int, tuple[int, int, S, float]], *, is_decided: bool) -> StuckOrder[S]:
        explained, (base, mask, state, _) = best
        urgent = min(self._open(base, mask), key=lambda number: self._calls[number].ended_at)
        return StuckOrder(explained, state, self._calls[urgent], is_decided)

    def _next(self, place: tuple[int, int, S, float]) -> Iterator[tuple[int, int, S, float]]:
        """Return the next places. The call that was sent first comes last, so that it is tried first."""
        base, mask, state, at = place
        numbers = self._open(base, mask)
        until = min(self._calls[number].ended_at for number in numbers)
        for number in reversed(numbers):
            call = self._calls[number]
            earliest = max(at, call.sent_at)
            if earliest > until:
                continue
            for after, then in self._step(state, call, earliest, until):
                yield *_done(base, mask, number), after, then

    def _open(self, base: int, mask: int) -> list[int]:
        """Return the calls that may come next: those sent before every other open call was answered."""
        found: list[int] = []
        first_end = NEVER
        for number in range(base, len(self._calls)):
            if mask >> (number - base) & 1:
                continue
            call = self._calls[number]
            if call.sent_at > first_end:
                break
            found.append(number)
            first_end = min(first_end, call.ended_at)
        return found


def _done(base: int, mask: int, number: int) -> tuple[int, int]:
    mask |= 1 << (number - base)
    while mask & 1:
        base, mask = base + 1, mask >> 1
    return base, mask
