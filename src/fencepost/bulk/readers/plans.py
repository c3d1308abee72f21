"""Warns of a query whose every page would read the whole table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.bulk.reader import Surroundings
    from fencepost.bulk.readers.keyset import Keyset


def warn_of_slow_plan(reader: Keyset, surroundings: Surroundings) -> None:
    """Look at the plan of a page, and warn if it is a sequential scan."""
