"""Which actors faults spare, and when.

One node and one contender at a time are spared. So there is always an actor that could take over,
and how long that takes can be measured. Their turns are long against the ttl, and the next one has no fault for some
time before its turn begins: a node that lost contact with the ledger declares no node dead for a whole ttl.
"""

from __future__ import annotations

from collections.abc import Sequence

_TURN_TTLS = 5.0  # long enough for several takeovers, each of about a ttl
_BEFORE_TTLS = 1.5  # the whole ttl in which such a node declares none dead, and half of one to spare


class Sparing:
    """The turns of some actors, by name; monotonic readings."""

    def __init__(self, names: Sequence[str], *, ttl_s: float, begins_at: float) -> None:
        self._names = list(names)
        self._turn_s = _TURN_TTLS * ttl_s
        self._before_s = _BEFORE_TTLS * ttl_s
        self._begins_at = begins_at

    def is_free(self, name: str, now: float, until: float) -> bool:
        """Whether `name` may have a fault from now until then."""
        turn = int(max(now - self._begins_at, 0.0) / self._turn_s)
        if self._names[turn % len(self._names)] == name:
            return False
        ahead = (self._names.index(name) - turn) % len(self._names)
        return until + self._before_s <= self._begins_at + (turn + ahead) * self._turn_s
