"""Records of a ledger for people and programs: runs, attempts, jobs, schedules, nodes, locks, letters, the journal.

Each is a frozen value, and `to_json` returns the same as JSON: fields have the same names and order in both. The
command line and every other view of a ledger print these, so the names are stable:

- instants are aware datetimes in UTC, in JSON texts such as ``2026-03-29T01:00:00Z``; their names end in ``_at``, or
  are ``at`` alone where there is one. A window is the one exception: it has a `start` and an `end`, as a run has it.
- durations are seconds as numbers; their names end in ``_s``.
- runs, letters and lines of the journal are numbered (`id`, `run_id`). Jobs and schedules have names, nodes have ids
  that are texts, and a name for people.
- states, outcomes and types are the words of the documentation.

A policy has the words of ``@app.job(…)``, a schedule's `spec` and a job's `signature` are as the ledger keeps them.
"""

from __future__ import annotations

from fencepost.app.records.bulk import (
    BulkAgainRecord,
    BulkForgottenRecord,
    BulkRecord,
    BulkStepRecord,
    CountsRecord,
    PartitionRecord,
)
from fencepost.app.records.figures import FiguresRecord, HourRecord, OutcomesRecord, RunTimesRecord
from fencepost.app.records.found import RunsFound
from fencepost.app.records.jobs import DueRecord, JobRecord, ScheduleRecord
from fencepost.app.records.ledgers import DecisionRecord, RenamedJobRecord, StandingRecord
from fencepost.app.records.logs import LogRecord
from fencepost.app.records.nodes import JournalRecord, LetterRecord, LockRecord, NodeRecord, PastLockRecord
from fencepost.app.records.outlooks import ClockChangeRecord, MomentRecord, OutlookRecord
from fencepost.app.records.pauses import PauseRecord, ResumedRecord
from fencepost.app.records.record import LedgerRecord, NodeNames, WindowRecord, spelled
from fencepost.app.records.runs import AttemptRecord, PartRecord, RunRecord, WhyRecord

__all__ = [
    "AttemptRecord",
    "BulkAgainRecord",
    "BulkForgottenRecord",
    "BulkRecord",
    "BulkStepRecord",
    "ClockChangeRecord",
    "CountsRecord",
    "DecisionRecord",
    "DueRecord",
    "FiguresRecord",
    "HourRecord",
    "JobRecord",
    "JournalRecord",
    "LedgerRecord",
    "LetterRecord",
    "LockRecord",
    "LogRecord",
    "MomentRecord",
    "NodeNames",
    "NodeRecord",
    "OutcomesRecord",
    "OutlookRecord",
    "PartRecord",
    "PartitionRecord",
    "PastLockRecord",
    "PauseRecord",
    "RenamedJobRecord",
    "ResumedRecord",
    "RunRecord",
    "RunTimesRecord",
    "RunsFound",
    "ScheduleRecord",
    "StandingRecord",
    "WhyRecord",
    "WindowRecord",
    "spelled",
]
