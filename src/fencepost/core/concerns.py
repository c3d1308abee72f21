"""What needs a person: its kinds, and how an occurrence of one is named so that it can be acknowledged. Pure.

The id of an occurrence is ``<subject>@<since µs>.<number>``: the job, schedule or node that it is about, when it began,
and the run, attempt or line of the journal. So the next occurrence has another id, and is not known to anybody yet.

Some kinds are shown once per job, however many runs there are. The id is that of the latest. An acknowledgement is
kept for each of those that the row stood for, and is of these alone: another one that began before them may be shown
for the first time afterwards. Only those of `BY_ORDER` are too many for that.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import NamedTuple

LONGEST_ID = 160  # the width of the column in which acknowledgements have it
HASHED = "#"  # stands before the hash of a subject that is too long; no name has it
_HASH = 40  # hexadecimal digits, 160 bits: no two subjects have the same


class ConcernKind(StrEnum):
    """What is wrong. The words never change, because acknowledgements are kept under them."""

    LEDGER_HELD = "ledger-held"
    NO_NODE = "no-node"
    PAUSED = "paused"
    NOT_PLANNED = "not-planned"
    JOB_WITHOUT_NODE = "job-without-node"
    HELD = "held"
    SLA_MISSED = "sla-missed"
    GIVEN_UP = "given-up"
    LATE = "late"
    NEAR_TIMEOUT = "near-timeout"
    NODE_LATE = "node-late"
    NODE_DRAINS = "node-drains"
    SCHEDULE_PAUSED = "schedule-paused"
    NODE_DIED = "node-died"
    REFUSED_WRITE = "refused-write"
    CLOCK_LEAPT = "clock-leapt"


WORST_FIRST = tuple(ConcernKind)
"""The order in which they are shown: first what keeps everything from running, last what is only to be known."""

ARE_BAD = frozenset(WORST_FIRST[: WORST_FIRST.index(ConcernKind.LATE)])
"""What does harm now. The others are warnings."""

BY_ORDER = frozenset({ConcernKind.LATE})
"""Of which only some are looked at: who acknowledges one knows of all that could have begun before it."""


class Occurrence(NamedTuple):
    """When something began, and its number among those that began at the same time. They are ordered by both."""

    since_us: int
    number: int


def concern_id(subject: str, occurrence: Occurrence) -> str:
    """Return the id; a subject that is too long is replaced by its beginning and a hash."""
    end = f"@{occurrence.since_us}.{occurrence.number}"
    room = LONGEST_ID - len(end)
    if len(subject) > room:
        digest = hashlib.sha256(subject.encode()).hexdigest()[:_HASH]
        subject = f"{subject[: room - _HASH - 1]}{HASHED}{digest}"
    return subject + end


def parsed_id(id_: str) -> tuple[str, Occurrence] | None:
    """Return the subject and the occurrence of an id; None if it has another form, of a newer version."""
    subject, _, end = id_.rpartition("@")
    since, _, number = end.partition(".")
    if not (_is_number(since) and _is_number(number)):
        return None
    return subject, Occurrence(int(since), int(number))


def covers(acknowledged_id: str, id_: str) -> bool:
    """Whether the second has the same subject, and is no later occurrence: so one of `BY_ORDER` is known."""
    known, asked = parsed_id(acknowledged_id), parsed_id(id_)
    if known is None or asked is None:
        return acknowledged_id == id_
    return known[0] == asked[0] and asked[1] <= known[1]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19
