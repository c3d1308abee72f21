"""The kinds of journal entries: all values of the column `what`.

An entry about something that a node noticed has the name of the event (`fencepost.core.events.What`). Actions of
operators and deploys have their own names. Search the journal by them: ``fencepost journal --what "sla missed"``. A
name is never removed, because existing entries use it.
"""

from __future__ import annotations

import unicodedata
from enum import StrEnum

from fencepost.core.events import What


class Noted(StrEnum):
    """The kind of a journal entry."""

    # Actions of operators and deploys.
    SCHEDULE_MADE = "schedule made"
    SCHEDULE_CHANGED = "schedule changed"
    SCHEDULE_DELETED = "schedule deleted"
    SCHEDULE_PAUSED = "schedule paused"
    SCHEDULE_RESUMED = "schedule resumed"
    RUN_TRIGGERED = "run triggered"
    BACKFILL_REQUESTED = "backfill requested"
    RUN_CANCELLED = What.RUN_CANCELLED.value
    CANCEL_REQUESTED = "cancel requested"
    RUN_RETRIED = "run retried"
    RUN_RELEASED = "run released"
    LETTERS_DROPPED = "dead letters dropped"
    BULK_FORGOTTEN = "bulk forgotten"
    LEDGER_ACCEPTED = "ledger accepted"
    LEDGER_COPIED = "ledger copied"
    JOB_FORGOTTEN = "job forgotten"
    JOB_RENAMED = "job renamed"
    ALL_PAUSED = "everything paused"
    ALL_RESUMED = "everything resumed"
    QUEUE_PAUSED = "queue paused"
    QUEUE_RESUMED = "queue resumed"
    NODE_DRAINED = "node asked to drain"
    LOCK_RELEASED = "lock released"
    LOCK_RESET = "lock token reset"
    ACKNOWLEDGED = "acknowledged"
    UNACKNOWLEDGED = "acknowledgement withdrawn"

    # Noticed by nodes.
    NODE_DIED = What.NODE_DIED.value
    RUN_LOST = What.RUN_LOST.value
    RUN_REFUSED = What.RUN_REFUSED.value
    RUN_RESUMED = What.RUN_RESUMED.value
    SLA_MISSED = What.SLA_MISSED.value
    REFUSED_WRITE = What.REFUSED_WRITE.value
    UNKEYED_WRITE = "write without a key"
    JOB_WITHOUT_NODE = What.JOB_WITHOUT_NODE.value
    LEDGER_HELD = What.LEDGER_HELD.value
    LEDGER_ADVANCED = What.LEDGER_ADVANCED.value
    CLOCK_LEAPT = What.CLOCK_LEAPT.value


DONE_BY_PEOPLE = frozenset(
    {
        Noted.SCHEDULE_MADE,
        Noted.SCHEDULE_CHANGED,
        Noted.SCHEDULE_DELETED,
        Noted.SCHEDULE_PAUSED,
        Noted.SCHEDULE_RESUMED,
        Noted.RUN_TRIGGERED,
        Noted.BACKFILL_REQUESTED,
        Noted.RUN_CANCELLED,
        Noted.CANCEL_REQUESTED,
        Noted.RUN_RETRIED,
        Noted.RUN_RELEASED,
        Noted.LETTERS_DROPPED,
        Noted.BULK_FORGOTTEN,
        Noted.LEDGER_ACCEPTED,
        Noted.LEDGER_COPIED,
        Noted.JOB_FORGOTTEN,
        Noted.JOB_RENAMED,
        Noted.ALL_PAUSED,
        Noted.ALL_RESUMED,
        Noted.QUEUE_PAUSED,
        Noted.QUEUE_RESUMED,
        Noted.NODE_DRAINED,
        Noted.LOCK_RELEASED,
        Noted.LOCK_RESET,
        Noted.ACKNOWLEDGED,
        Noted.UNACKNOWLEDGED,
    }
)
"""What goes into the audit, too, where the entry says who did it."""

LONGEST_REASON = 1_000
"""Characters. A reason is shown in tables, and that of a pause on every page: what is longer belongs elsewhere."""

_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # letters and symbols that look like a space
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zs", "Zl", "Zp", "Mn", "Me", "Mc"})  # marks only change the character before


def says_something(text: str | None) -> bool:
    """Return whether a reason, or a name, has a character that can be seen."""
    return any(unicodedata.category(each) not in _UNSEEN and each not in _BLANK for each in text or "")
