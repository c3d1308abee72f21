"""What a store remembers of names, so that it can take one in a single request."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class KnownNames(dict[str, T]):
    """The last record seen of each name, of a bounded number of names. It may be out of date."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def remember(self, name: str, record: T | None) -> None:
        """Note what was seen of a name; nothing is known of it if that is None."""
        if record is None:
            self.pop(name, None)
            return
        if len(self) >= self._limit:
            self.clear()  # each forgotten name costs one round trip more, once
        self[name] = record
