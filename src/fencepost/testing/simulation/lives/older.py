"""Nodes of the version before: what they write into databases of effects is named as that version named it.

They are played by the code of today, which records an older version and uses the older names alone. So today's nodes
beside them take them for what they say, and both have to keep each other's stale writers out. How an older version
plans and claims is not played here: `make chaos-upgrade` has real nodes of it.
"""

from __future__ import annotations

import math

from fencepost.ledger.ledger import Ledger
from fencepost.ledger.naming import Naming
from fencepost.schema.revisions import recorded

OLDER = recorded("simulated", "0003")
"""What a node of that version records of itself."""


class Nameless(Naming):
    """Names that do not tell one ledger from another."""

    __slots__ = ()

    def fence(self, key: str) -> str:
        return key

    def run_fence(self, run_id: int) -> str:
        return f"run:{run_id}"

    def instance(self, name: str) -> str:
        return name


class OlderLedger(Ledger):
    """A ledger as a process of that version knows it."""

    @property
    def known_naming(self) -> tuple[float, Naming]:
        """Names are made in the old way, whatever the ledger has."""
        return math.inf, Nameless("")

    @known_naming.setter
    def known_naming(self, found: object) -> None:
        pass
