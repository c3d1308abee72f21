"""The acts that entries of the audit name, and which of these words belong together.

What was done stands there as the journal has it ("run retried"), and so does the beginning of an act of several
transactions. A try that was refused stands there as the act ("retry"), as did such beginnings in earlier releases, and
as does that of an act on a lock. Entries are in a chain of hashes, so the words that were written stay; who asks for an
act finds both forms.
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.core.noted import DONE_BY_PEOPLE, Noted
from fencepost.core.rights import HumanAct

LOG_IN, LOG_OUT = "log in", "log out"
SEVERAL = "several acts"  # refused tries of a minute that are one entry together
CROSS_SITE, OTHER_HOST, REPEATED = "cross-site request", "request for another host", "repeated headers"

DONE_AS: Mapping[HumanAct, tuple[Noted, ...]] = {
    HumanAct.TRIGGER: (Noted.RUN_TRIGGERED,),
    HumanAct.RETRY: (Noted.RUN_RETRIED,),
    HumanAct.CANCEL: (Noted.RUN_CANCELLED, Noted.CANCEL_REQUESTED),
    HumanAct.RELEASE_RUN: (Noted.RUN_RELEASED,),
    HumanAct.REPROCESS: (Noted.RUN_RETRIED,),
    HumanAct.BACKFILL: (Noted.BACKFILL_REQUESTED,),
    HumanAct.PAUSE_SCHEDULE: (Noted.SCHEDULE_PAUSED,),
    HumanAct.RESUME_SCHEDULE: (Noted.SCHEDULE_RESUMED,),
    HumanAct.PUT_SCHEDULE: (Noted.SCHEDULE_MADE, Noted.SCHEDULE_CHANGED),
    HumanAct.DELETE_SCHEDULE: (Noted.SCHEDULE_DELETED,),
    HumanAct.ACKNOWLEDGE: (Noted.ACKNOWLEDGED, Noted.UNACKNOWLEDGED),
    HumanAct.REPLAY_LETTERS: (Noted.RUN_TRIGGERED,),
    HumanAct.DROP_LETTERS: (Noted.LETTERS_DROPPED,),
    HumanAct.REPEAT_BULK: (Noted.RUN_RETRIED,),
    HumanAct.FORGET_BULK: (Noted.BULK_FORGOTTEN,),
    HumanAct.FORGET_JOB: (Noted.JOB_FORGOTTEN,),
    HumanAct.RENAME_JOB: (Noted.JOB_RENAMED,),
    HumanAct.PAUSE_ALL: (Noted.ALL_PAUSED, Noted.QUEUE_PAUSED),
    HumanAct.RESUME_ALL: (Noted.ALL_RESUMED, Noted.QUEUE_RESUMED),
    HumanAct.DRAIN_NODE: (Noted.NODE_DRAINED,),
    HumanAct.RELEASE_LOCK: (Noted.LOCK_RELEASED, Noted.LOCK_RESET),
    HumanAct.ACCEPT_LEDGER: (Noted.LEDGER_ACCEPTED, Noted.LEDGER_COPIED),
}
"""What an act is called once it was done. Other acts have one word for both."""

KNOWN_WORDS = sorted(
    {*map(str, HumanAct), *map(str, DONE_BY_PEOPLE), LOG_IN, LOG_OUT, SEVERAL, CROSS_SITE, OTHER_HOST, REPEATED}
)
"""All words that this release writes. A later one may write others."""


def written_as(word: str) -> list[str]:
    """Return the words under which entries of an act stand.

    >>> written_as("retry"), written_as("run retried")
    (['retry', 'run retried'], ['run retried'])
    """
    act = next((each for each in HumanAct if each.value == word), None)
    return [word, *(str(each) for each in DONE_AS.get(act, ()))] if act is not None else [word]
