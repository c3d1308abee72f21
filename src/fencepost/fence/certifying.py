"""Detects multi-primary clusters, such as Galera, whose nodes compare written rows at commit.

There, a row lock exists on one node only, and another node may raise the fence at the same time. So a fenced
transaction writes the row of its fence instead. If two nodes write it, the cluster lets one of them commit.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from fencepost.fence.sources.source import Source

_ASK = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'group_replication_group_name', "
    "'group_replication_single_primary_mode')"
)
_MOST_REMEMBERED = 1000  # limits memory where a process uses ever new databases; asking again costs one statement
_engines: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
_names: dict[Hashable, bool] = {}


def compares_writes(source: Source) -> bool:
    """Whether the database is such a cluster. Queried once for each database that this process uses."""
    place = source.place
    if place is None:
        return _asked(source)
    known = _names if isinstance(place, tuple) else _engines
    if place not in known:
        if len(_names) >= _MOST_REMEMBERED:
            _names.clear()
        known[place] = _asked(source)
    return known[place]


def _asked(source: Source) -> bool:
    found = {_text(name).lower(): _text(value) for name, value in source.target.execute(_ASK).rows}
    is_group = bool(found.get("group_replication_group_name"))
    return found.get("wsrep_on") == "ON" or (
        is_group and found.get("group_replication_single_primary_mode", "ON") == "OFF"
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
