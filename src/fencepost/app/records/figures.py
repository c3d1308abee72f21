"""Figures of a job: outcomes and run times, in total and by hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from fencepost.app.records.record import LedgerRecord
from fencepost.core.figures import usual_quantiles


@dataclass(frozen=True, slots=True)
class OutcomesRecord(LedgerRecord):
    """How many attempts ended how. `skipped` and `misfired` are also runs without an attempt.

    `dead` are runs that were given up; their last attempts count under their own words as well.
    """

    succeeded: int
    failed: int
    timed_out: int
    lost: int
    interrupted: int
    cancelled: int
    skipped: int
    misfired: int
    dead: int

    @staticmethod
    def of(outcomes: Mapping[str, int]) -> OutcomesRecord:
        """Read what was counted."""
        return OutcomesRecord(*[outcomes.get(word, 0) for word in _WORDS])

    @property
    def bad(self) -> int:
        """How many attempts failed or took longer than their timeout."""
        return self.failed + self.timed_out

    @property
    def other(self) -> int:
        """How many neither succeeded nor failed nor were lost."""
        return self.interrupted + self.cancelled + self.skipped + self.misfired


_WORDS = tuple(field.name for field in fields(OutcomesRecord))


@dataclass(frozen=True, slots=True)
class RunTimesRecord(LedgerRecord):
    """How long attempts took that succeeded, failed or timed out: how many, and times that 50, 95, 99 % did not exceed.

    The times differ from the true ones by 5 % at most. They are None if there was no such attempt.
    """

    count: int
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None

    @staticmethod
    def of(run_times: Mapping[int, int]) -> RunTimesRecord:
        """Read what was counted."""
        return RunTimesRecord(sum(run_times.values()), *(_rounded(each) for each in usual_quantiles(run_times)))


@dataclass(frozen=True, slots=True)
class HourRecord(LedgerRecord):
    """The figures of one hour by the ledger's clock, from `at` on. `run_times` is None unless one job was asked for."""

    at: datetime
    outcomes: OutcomesRecord
    run_times: RunTimesRecord | None


@dataclass(frozen=True, slots=True)
class FiguresRecord(LedgerRecord):
    """The figures of a job since an hour began, in total and for each hour in which something ended, in their order.

    `not_counting`: how many living nodes have the job and are of an older release, which counts nothing.
    """

    job: str
    since_at: datetime
    until_at: datetime
    outcomes: OutcomesRecord
    run_times: RunTimesRecord
    not_counting: int
    hours: Sequence[HourRecord]


def _rounded(seconds: float | None) -> float | None:
    """Return a time with the digits that mean something."""
    return None if seconds is None else float(f"{seconds:.3g}")
