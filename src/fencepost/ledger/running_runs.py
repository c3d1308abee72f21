"""What a run that executes asks and writes of itself: whether it still has its token, and its progress."""

from __future__ import annotations

from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.dialects.statements import clean, statements_for

_CHECK = "SELECT 1 FROM {run} r WHERE r.id = %s AND r.token = %s AND r.state = 'running'"


def check(connection: LedgerConnection, *, run_id: int, token: int) -> bool:
    """Return whether a run is still running under this token."""
    statements = statements_for(connection)
    return bool(connection.read(lambda cursor: statements.rows(cursor, _CHECK, run_id, token)))


_PROGRESS = """
UPDATE {run} SET progress = %s, progress_note = %s WHERE id = %s AND token = %s AND state = 'running'
"""


def progress(
    connection: LedgerConnection, *, run_id: int, token: int, fraction: float, note: str | None = None
) -> bool:
    """Store the progress of a run; return False if it is no longer running under this token."""
    statements = statements_for(connection)

    def write(cursor: Cursor) -> int:
        return statements.change(cursor, _PROGRESS, fraction, clean(note), run_id, token)

    return connection.write(write) == 1
