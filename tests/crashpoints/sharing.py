"""What one process of several plays: some paths on one database, or the messages between processes."""

from __future__ import annotations

import logging

from tests.crashpoints.child import Exits
from tests.crashpoints.grounds import Ground, ground
from tests.crashpoints.messages import supervisor_tally, worker_tally
from tests.crashpoints.paths import PATHS
from tests.crashpoints.playing import Tally, tallied
from tests.crashpoints.world import publish

MESSAGES = "messages"
_NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mysql": "MariaDB"}

Row = tuple[str, str, Tally]


def share(kind: str, names: list[str]) -> list[Row]:
    """Play these paths, or messages, on a ground of their own."""
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)  # it tells of connections that we cut
    exits = Exits()
    try:
        with ground("sqlite" if kind == MESSAGES else kind, publish) as made:
            if kind == MESSAGES:
                return [row for name in names for row in _messages(made, name, exits)]
            return [(name, _NAMES[kind], tallied(made, PATHS[name], exits)) for name in names]
    finally:
        exits.close()


def _messages(made: Ground, name: str, exits: Exits) -> list[Row]:
    return [
        (f"messages, {name}", "worker", worker_tally(made, name)),
        (f"messages, {name}", "supervisor", supervisor_tally(made, name, exits)),
    ]
