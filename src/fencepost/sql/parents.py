"""What a forked child has inherited and must leave to its parent: connections to servers.

Closing one would say goodbye to the server in the parent's name. So they are kept, unused, until the process ends.
SQLite's are closed, in a way of their own: see `fencepost.sql.forked_sqlite`.
"""

from __future__ import annotations

from collections.abc import Iterable

_PARENTS: list[object] = []


def leave_to_parent(opened: Iterable[object]) -> None:
    """Keep, in a forked child, what the parent has open, so that nothing closes it here."""
    _PARENTS.extend(opened)
