"""Whether calls that overlap can be put into one order that explains all answers.

The search is that of Wing and Gong, with memory. Each answered call takes effect at one moment between when it was sent
and when it was answered. The order is built from the left: next may come any call that was sent before every other open
one was answered. What was tried once (the same calls done, the same state) is not tried again, so histories with few
calls at a time take time in proportion to their length.

Time runs along: `at` is the earliest moment that the order so far allows, and a step may ask for a later one, up to
`until`, when the first open call is answered. Calls that were never answered are not among them; the model lets them
take effect when that explains something.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fencepost.proof.calls import NEVER, Call

S = TypeVar("S", bound=Hashable)
Step = Callable[[S, Call, float, float], Iterator[tuple[S, float]]]
MOST_STEPS = 400_000


@dataclass(frozen=True, slots=True)
class StuckOrder(Generic[S]):
    """The best order found: how many calls it explains, the state then, and the call that must come next and cannot.

    `is_decided` is False if the search was given up.
    """

    explained: int
    state: S
    call: Call
    is_decided: bool = True


def explain(calls: Sequence[Call], first: S, step: Step[S], *, most_steps: int = MOST_STEPS) -> StuckOrder[S] | None:
    """Return None if some order explains all calls, else how far the best one comes."""
    return _Search(sorted(calls, key=lambda call: (call.sent_at, call.ended_at)), step, most_steps).run(first)


class _Search(Generic[S]):
    """One search. A place in it is: all calls before `base` and those in `mask` (from `base` on) are done."""

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
        """Return the places one step on; the call that was sent first comes last, so that it is tried first."""
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
        """Return the calls that may come next: sent before every other open one was answered."""
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
