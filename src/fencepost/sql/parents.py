"""Keeps inherited connections to servers open in a forked child, because they belong to the parent.

Closing one would end the parent's session at the server. So they are kept, unused, until the process ends. Connections
to SQLite are closed: see `fencepost.sql.forked_sqlite`.
"""

from __future__ import annotations

from collections.abc import Iterable

_PARENTS: list[object] = []


def leave_to_parent(opened: Iterable[object]) -> None:
    """In a forked child: keep references to the parent's connections, so that they are not closed."""
    _PARENTS.extend(opened)
