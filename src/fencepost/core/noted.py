"""The words of the journal: everything that is ever written to its column `what`.

What nodes notice has the word of its event (`fencepost.core.events.What`); what people and deploys do has words of its
own. Search the journal by them: ``fencepost journal --what "sla missed"``. Words are kept for good, since entries with
them are.
"""

from __future__ import annotations

from enum import StrEnum

from fencepost.core.events import What


class Noted(StrEnum):
    """What an entry of the journal says happened."""

    # What people and deploys did.
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

    # What nodes noticed.
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
