"""Numbers that callers give: ids and the limits of pages. They are checked here, before a database sees them.

Databases differ in what they do with a number that they cannot use: SQLite takes a negative limit for no limit, and its
driver raises `OverflowError` for more than 64 bits.
"""

from __future__ import annotations

from fencepost.errors import InvalidParameters, NoSuchRun

LARGEST_ID = 2**63 - 1  # ids are signed 64-bit integers in every database


def page_limit(limit: object) -> int:
    """Return how many rows a page may have, or refuse what is not a count."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise InvalidParameters(f"limit={limit!r} is not possible: give a whole number, 0 or more")
    return min(limit, LARGEST_ID)


def is_id(number: int) -> bool:
    """Whether a row can have this id."""
    return 0 < number <= LARGEST_ID


def existing_run_id(run_id: int) -> int:
    """Return the id, or raise `NoSuchRun` if no run can have it."""
    if not is_id(run_id):
        raise NoSuchRun(run_id)
    return run_id


def page_edge(number: int | None) -> int | None:
    """Return the id at which a page begins; a number beyond all ids becomes the nearest one."""
    return None if number is None else min(max(number, 0), LARGEST_ID)
