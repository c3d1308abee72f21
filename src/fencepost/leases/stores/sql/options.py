"""The URL options that all SQL stores share."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.core.duration import seconds
from fencepost.core.urls import StoreUrl, identifier

SHARED_OPTIONS = frozenset({"prefix", "history"})
_DEFAULT_HISTORY = "90d"


@dataclass(frozen=True, slots=True)
class LeaseTables:
    """The names of the three tables, safe to use in SQL, and how long history is kept."""

    session: str
    lease: str
    history: str
    index: str  # the prefix of index names
    history_us: int

    @staticmethod
    def of(url: StoreUrl) -> LeaseTables:
        """Parse ``prefix=``, ``schema=`` and ``history=``. Identifiers are restricted so that they need no quotes."""
        prefix = identifier(url.options.get("prefix", "fencepost_"), what="prefix")
        schema = url.options.get("schema")
        place = f"{identifier(schema, what='schema')}." if schema else ""
        history_s = seconds(url.options.get("history", _DEFAULT_HISTORY), what="history")
        return LeaseTables(
            session=f"{place}{prefix}session",
            lease=f"{place}{prefix}lease",
            history=f"{place}{prefix}lease_history",
            index=f"{prefix}lease",
            history_us=int(history_s * 1_000_000),
        )
