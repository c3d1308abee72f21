"""Which values of secrets a worker has told its supervisor, so that the supervisor never forgets one that is needed.

Both keep the same list: the last values that were told, in order. A worker tells a value again when it is used and has
come into the older half. So whatever a run of it uses stays in the supervisor's list, unless that one run uses a
hundred values. The supervisor has a list for each pipe of a worker, because it may have read one pipe further than
the other.
"""

from __future__ import annotations

from fencepost.core.masked_values import HeldValue

_KEPT = 200  # twice what one run may use, so that none of its values is forgotten while it needs them
_TOLD_AGAIN = _KEPT // 2


class ToldValues:
    """The values that were told last."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[int, HeldValue | None]] = {}  # with the number of each
        self._count = 0

    def is_recent(self, value: str) -> bool:
        """Whether the supervisor keeps the value for long enough without being told again."""
        number, _ = self._values.get(value, (-_KEPT, None))
        return self._count - number <= _TOLD_AGAIN

    def add(self, value: str, held: HeldValue | None = None) -> None:
        """Note that a value was told. What is held is let go when the value leaves the list."""
        self._values.pop(value, None)
        self._count += 1
        self._values[value] = (self._count, held)
        if len(self._values) > _KEPT:
            del self._values[next(iter(self._values))]
