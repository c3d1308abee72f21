"""The claims that a runner owes an outcome for, and the outcomes that wait to be collected.

**Invariant.** A claim is entered once and taken out once, by a single `dict.pop`, and whoever took it out reports it.
So a run that ends in the same moment as it is stopped, times out or is handed back has exactly one outcome, and no run
pays for a lock.

**Telling.** Whoever collects is told once, and not again before it has collected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter

from fencepost.core.runs import Claim
from fencepost.engine.runners.outcome import Outcome

Key = tuple[int, int]

_key_of: Callable[[Claim], Key] = attrgetter("run_id", "token")


class Unfinished:
    """Accounts of one runner. `held` and `outcomes` are public for its innermost loop, which calls their C methods."""

    __slots__ = ("_is_told", "_on_outcome", "held", "outcomes")

    def __init__(self) -> None:
        self.held: dict[Key, Claim] = {}
        self.outcomes: deque[Outcome] = deque()
        self._is_told = False
        self._on_outcome: Callable[[], None] = lambda: None

    def start(self, on_outcome: Callable[[], None]) -> None:
        """Call `on_outcome` from now on."""
        self._on_outcome = on_outcome

    def enter(self, claims: Sequence[Claim]) -> None:
        """Owe an outcome for each of these."""
        self.held.update(zip(map(_key_of, claims), claims, strict=True))

    def settle(self, outcome: Outcome) -> bool:
        """Report an outcome, unless another was before it."""
        if self.held.pop((outcome.run_id, outcome.token), None) is None:
            return False
        self.outcomes.append(outcome)
        return True

    def tell(self) -> None:
        """Say that there is something to collect, if nobody has."""
        if self.outcomes and not self._is_told:
            self._is_told = True
            self._on_outcome()

    def collect(self) -> list[Outcome]:
        """Return what ended since the last call."""
        self._is_told = False  # first: what arrives from here on is told again, at worst for nothing
        outcomes = self.outcomes
        return [outcomes.popleft() for _ in range(len(outcomes))]
