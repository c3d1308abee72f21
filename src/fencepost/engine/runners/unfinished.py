"""The claims of a runner that have no outcome yet, and the outcomes that wait to be collected.

**Invariant.** A claim is added once and removed once, by a single `dict.pop`, and the thread that removed it reports
its outcome. So a run that ends at the moment when it is stopped, times out or is returned has exactly one outcome, and
no lock is needed.

**Notification.** `on_outcome` is called once, and not again before the outcomes were collected.
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
    """The unfinished claims of one runner. Its innermost loop calls the C methods of `held` and `outcomes` directly."""

    __slots__ = ("_is_notified", "_on_outcome", "held", "outcomes")

    def __init__(self) -> None:
        self.held: dict[Key, Claim] = {}
        self.outcomes: deque[Outcome] = deque()
        self._is_notified = False
        self._on_outcome: Callable[[], None] = lambda: None

    def start(self, on_outcome: Callable[[], None]) -> None:
        """Call `on_outcome` from now on."""
        self._on_outcome = on_outcome

    def enter(self, claims: Sequence[Claim]) -> None:
        """Add these claims."""
        self.held.update(zip(map(_key_of, claims), claims, strict=True))

    def settle(self, outcome: Outcome) -> bool:
        """Report an outcome. Return False if the claim already has one."""
        if self.held.pop((outcome.run_id, outcome.token), None) is None:
            return False
        self.outcomes.append(outcome)
        return True

    def notify(self) -> None:
        """Call `on_outcome` if there are outcomes and it was not called for them yet."""
        if self.outcomes and not self._is_notified:
            self._is_notified = True
            self._on_outcome()

    def collect(self) -> list[Outcome]:
        """Return the outcomes since the last call."""
        self._is_notified = False  # first: an outcome that arrives from here on notifies again, at worst needlessly
        outcomes = self.outcomes
        return [outcomes.popleft() for _ in range(len(outcomes))]
