"""Functions whose annotations are texts, one of them imported for type checkers alone."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elsewhere import Run, Unknown  # type: ignore[import-not-found]


def settle(execution: Run, day: date, days: int = 1, other: Unknown | None = None) -> None: ...


class Shop:
    def close(self, day: date) -> None: ...

    def __call__(self, day: date) -> None: ...
