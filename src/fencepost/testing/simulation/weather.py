"""What goes wrong right now: who is cut off from what, and which call is the next to fail, and how.

A *shot* hits one call of one node to one store:

===========  ==========================================================================================
before       it fails, and did not happen
after        it happens, and its answer is lost
late         it fails by its timeout, and happens all the same, a little later
slow         it takes long; if longer than its timeout, as `after`
stall        right before it is sent, the whole process stops for a while
===========  ==========================================================================================
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

LEDGER, LEASES, GATE = "ledger", "leases", "gate"
EFFECTS = "effects"  # what jobs write in transactions of their own, to the ledger's database or elsewhere
ELSEWHERE = "elsewhere"  # another database, which bulk work reads from and writes to
BEFORE, AFTER, LATE, SLOW, STALL = "before", "after", "late", "slow", "stall"
BEGIN, COMMIT = "begin", "commit"


@dataclass(frozen=True, slots=True)
class Shot:
    """How one call fails. `at`: it waits for a COMMIT, where an unknown outcome hurts most, or for a BEGIN."""

    how: str
    length_s: float = 0.0
    at: str = ""


class Weather:
    """Outages and shots. A slot is the place of a node, whichever process is in it; None stands for all."""

    def __init__(self) -> None:
        self._away: dict[tuple[int | None, str], int] = {}
        self._shots: dict[tuple[int, str], deque[Shot]] = {}

    def cut(self, slot: int | None, store: str) -> None:
        """Let no call through."""
        self._away[slot, store] = self._away.get((slot, store), 0) + 1

    def mend(self, slot: int | None, store: str) -> None:
        """Let calls through again, unless another cut lasts."""
        left = self._away.get((slot, store), 0) - 1
        if left > 0:
            self._away[slot, store] = left
        else:
            self._away.pop((slot, store), None)

    def is_away(self, slot: int, store: str) -> bool:
        """Whether a call would not get through now."""
        return bool(self._away) and ((None, store) in self._away or (slot, store) in self._away)

    def aim(self, slot: int, store: str, shot: Shot) -> None:
        """Hit the next call."""
        self._shots.setdefault((slot, store), deque()).append(shot)

    def shot(self, slot: int, store: str, at: str = "") -> Shot | None:
        """Return what hits this call; `at` says that it is a BEGIN or a COMMIT."""
        if not self._shots:
            return None
        waiting = self._shots.get((slot, store))
        if not waiting or waiting[0].at not in ("", at):
            return None
        return waiting.popleft()

    def clear(self) -> None:
        """Let the sun shine."""
        self._away.clear()
        self._shots.clear()
