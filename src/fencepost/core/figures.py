"""Figures of a job: how its attempts ended and how long they took, hour by hour. Pure; figures can be added up.

**Outcomes.** Every attempt that ended counts once, by one word: ``succeeded``, ``failed``, ``timed_out``, ``lost``,
``interrupted``, ``cancelled``, or ``skipped`` if the job itself raised `Skip`. A run that ends without an attempt
counts as ``skipped`` or ``misfired``. A run that is given up counts as ``dead``, too, besides its last attempt.

**Run times** are those of attempts that ended by themselves or by their timeout (`TIMED`): what was cut short says
nothing about how long the job takes. They are counted in buckets that grow by a tenth: bucket 0 has what took up to
100 µs, and bucket *n* what took up to 100 µs · 1.1053ⁿ (`GROWTH`). A quantile is the middle of its bucket, so it
differs from the true one by 5 % at most. Buckets end at `LAST_BUCKET`, some 33 years.

**Stored** as JSON: ``{"failed":1,"succeeded":12}`` and ``{"70":3,"71":9}``. Words and buckets that this release does
not know are passed over, as is what somebody has damaged.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from math import ceil
from types import MappingProxyType
from typing import NamedTuple

HOUR_US = 3_600_000_000
ATTEMPT_WORDS = ("succeeded", "failed", "timed_out", "lost", "interrupted", "cancelled", "skipped")
WORDS = (*ATTEMPT_WORDS, "misfired", "dead")
TIMED = frozenset({"succeeded", "failed", "timed_out"})

ERROR = 0.05  # the largest relative error of a quantile
GROWTH = (1 + ERROR) / (1 - ERROR)
LAST_BUCKET = 300  # the largest that is stored or read; what took longer counts there
_FIRST_US = 100.0  # the end of the first bucket: shorter run times are not told apart
_ENDS_US = [_FIRST_US * GROWTH**bucket for bucket in range(LAST_BUCKET)]  # of each bucket but the last


class Quantiles(NamedTuple):
    """Run times of which a half, 95 % and 99 % were not longer; None if no run was timed."""

    p50_s: float | None
    p95_s: float | None
    p99_s: float | None


class Figures(NamedTuple):
    """What was counted: outcomes by word, run times by bucket."""

    outcomes: Counter[str]
    run_times: Counter[int]

    @staticmethod
    def none() -> Figures:
        """Return figures to count in."""
        return Figures(Counter(), Counter())

    @staticmethod
    def read(outcomes: str, run_times: str) -> Figures:
        """Return what is stored, as far as it can be understood."""
        return Figures(Counter(read_outcomes(outcomes)), Counter(read_run_times(run_times)))

    def add(self, other: Figures) -> None:
        """Add other figures to these."""
        self.outcomes.update(other.outcomes)
        self.run_times.update(other.run_times)

    def stored(self) -> tuple[str, str]:
        """Return both as they are stored."""
        return _json(self.outcomes), _json({str(bucket): self.run_times[bucket] for bucket in sorted(self.run_times)})


bucket_of: Callable[[int], int] = partial(bisect_left, _ENDS_US)
"""Returns the bucket of a run time in µs. Called for every attempt, so it is no function of ours."""


def middle_s(bucket: int) -> float:
    """Return the run time that stands for a bucket, in seconds."""
    return _FIRST_US * GROWTH**bucket * 2 / (GROWTH + 1) / 1_000_000


def usual_quantiles(run_times: Mapping[int, int]) -> Quantiles:
    """Return p50, p95 and p99."""
    return Quantiles(*quantiles(run_times, (0.5, 0.95, 0.99)))


def quantiles(run_times: Mapping[int, int], shares: Sequence[float]) -> list[float | None]:
    """Return, for each share in rising order, the run time that this share of the runs did not exceed."""
    whole = sum(run_times.values())
    if not whole:
        return [None] * len(shares)
    ranks, found, below = [ceil(share * whole) for share in shares], list[float | None](), 0
    for bucket in sorted(run_times):
        below += run_times[bucket]
        while len(found) < len(ranks) and below >= ranks[len(found)]:
            found.append(middle_s(bucket))
    return found


def word_of(state: str, outcome: str) -> str:
    """Return the word under which an attempt counts, by the new state of its run and its own outcome."""
    return state if state == "skipped" else outcome


def hour_of(at_us: int) -> int:
    """Return when the hour of an instant began."""
    return at_us - at_us % HOUR_US


def total(every: Iterable[Figures]) -> Figures:
    """Return the sum of figures."""
    whole = Figures.none()
    for each in every:
        whole.add(each)
    return whole


_KNOWN = frozenset(WORDS)
_BUCKETS = {str(bucket): bucket for bucket in range(LAST_BUCKET + 1)}


@lru_cache(maxsize=4096)
def read_outcomes(text: str) -> Mapping[str, int]:
    """Return stored outcomes, as far as they can be understood. Kept: those of most hours are the same."""
    return MappingProxyType({word: count for word, count in _counts(text).items() if word in _KNOWN})


def read_run_times(text: str) -> dict[int, int]:
    """Return stored run times, as far as they can be understood."""
    return {_BUCKETS[bucket]: count for bucket, count in _counts(text).items() if bucket in _BUCKETS}


def _counts(text: str) -> dict[str, int]:
    try:
        read = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(read, dict):
        return {}
    return {name: count for name, count in read.items() if type(count) is int and count > 0}


def _json(counts: Mapping[str, int]) -> str:
    return json.dumps(counts, separators=(",", ":"))
