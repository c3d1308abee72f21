"""Misfiring what was planned and then not claimed: ticks that are too late for a job that wants no late ones.

Late ticks are decided when they are planned. But a tick is planned a little ahead, and then every node may go down; the
day after, it is still queued. A node asks for this when it joins, before its first claim. A tick that another node
claims in the same moment is that node's.

Only ticks, and only those whose time has come and gone: what somebody asked for (a back-fill, a retry) is never too
late, and a tick that its schedule's jitter puts off is not late before it was put off for too long.
"""

from __future__ import annotations

from fencepost.ledger.desk import Desk
from fencepost.ledger.dialects.dialect import Cursor
from fencepost.ledger.dialects.hot import hot_words

_MISFIRE = """
UPDATE {run} SET state = 'misfired', waits_for = NULL, ended_at = %s, why = %s
WHERE state = 'queued' AND attempts = 0 AND {was:job} = %s AND origin_key LIKE 'tick:%%' AND available_at < %s
"""


def misfire_late(desk: Desk, *, job: str, grace_us: int, why: str) -> int:
    """Record queued ticks of `job` that nobody has begun within the grace as misfired; return how many."""
    hot = hot_words(desk)

    def work(cursor: Cursor) -> int:
        now_us = hot.now_us(cursor)
        return hot.change(cursor, _MISFIRE, now_us, why, job, now_us - grace_us)

    return desk.write(work)
