"""Calls that wait, beside the jobs of a node in the same process."""

from fencepost.ledger.database import POOL_SIZE
from fencepost.web.threads import MOST_AT_ONCE


def test_pages_leave_connections_of_the_ledger_to_jobs():
    assert 1 < MOST_AT_ONCE < POOL_SIZE
