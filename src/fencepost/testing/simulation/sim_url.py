"""URLs of simulated files, of which many are opened by the same name."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path

from fencepost.core.urls import sqlite_path
from fencepost.ledger.urls import LedgerUrl


@dataclass(frozen=True)
class SimUrl(LedgerUrl):
    """The URL of a simulated file, which is not a symbolic link: its path is resolved once."""

    @cached_property
    def path(self) -> Path:
        return sqlite_path(self.store.path.removeprefix("/"))


@lru_cache(maxsize=64)
def sim_url(text: str) -> SimUrl:
    """Read a URL."""
    read = LedgerUrl.parse(text)
    return SimUrl(**{each.name: getattr(read, each.name) for each in fields(read)})
