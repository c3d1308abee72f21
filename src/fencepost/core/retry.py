"""Decides what follows a failed or lost attempt: another attempt and when, or none and why.

There are two separate counts:

- An attempt that *failed* (the job raised an error, or timed out) counts against `retries`. The back-off grows with
  every failure.
- An attempt that was *lost* (its node died, its worker was killed, its lease was lost) need not be the job's fault, and
  counts only against `crash_limit`. The limit exists because a job that kills its process would otherwise kill one
  node after the other.

**Promises.** A retry never starts before its back-off is over: jitter only adds to it. The functions are
deterministic; the random number is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.core.duration import Duration, seconds, spelled
from fencepost.core.nearest import suggestion
from fencepost.errors import InvalidPolicy

if TYPE_CHECKING:
    from fencepost.core.policy import Policy

LONGEST_DELAY_S = 366 * 86400.0  # a year: a longer one is a mistake
_DEFAULT_CAP_S = 600.0  # ten minutes: after an outage, runs must not wait much longer than the outage lasted
_HELP = 'write it as "10s" (doubling up to ten minutes), "10s..5m", or {"base": "10s", "factor": 3, "cap": "5m"}'


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next attempt: `base_s` first, then `factor` times as long each time, up to `cap_s`.

    Up to `jitter` times the delay is added, so that runs that failed together are not retried together.
    """

    base_s: float
    cap_s: float
    factor: float = 2.0
    jitter: float = 0.25

    @staticmethod
    def of(value: Backoff | Duration | Mapping[str, Duration]) -> Backoff:
        """Parse a back-off as users write it.

        >>> Backoff.of("10s..5m")
        Backoff(base_s=10.0, cap_s=300.0, factor=2.0, jitter=0.25)
        """
        backoff = value if isinstance(value, Backoff) else _read(value)
        backoff._validate()
        return backoff

    def delay_s(self, failures: int, random: float) -> float:
        """Return the delay after the `failures`-th failure in a row (from 1); `random` is in [0, 1)."""
        return min(self._ideal_s(failures) * (1.0 + self.jitter * random), LONGEST_DELAY_S)

    def to_json(self) -> dict[str, float]:
        """Return the back-off as JSON, which `of` can read."""
        return {"base": self.base_s, "cap": self.cap_s, "factor": self.factor, "jitter": self.jitter}

    def __str__(self) -> str:
        return f"{spelled(self.base_s)}..{spelled(self.cap_s)}"

    def _ideal_s(self, failures: int) -> float:
        try:
            return min(self.base_s * self.factor ** max(failures - 1, 0), self.cap_s)
        except OverflowError:
            return self.cap_s

    def _validate(self) -> None:
        if not 0 <= self.base_s <= self.cap_s <= LONGEST_DELAY_S:
            raise InvalidPolicy(
                f"backoff {self}: the first delay must be at most the last, "
                f"and the last at most {spelled(LONGEST_DELAY_S)}"
            )
        if not 1 <= self.factor <= 100:
            raise InvalidPolicy(f"backoff factor {self.factor:g} must be between 1 and 100")
        if not 0 <= self.jitter <= 1:
            raise InvalidPolicy(f"backoff jitter {self.jitter:g} must be between 0 and 1")


@dataclass(frozen=True, slots=True)
class RetryIn:
    """Retry after this delay."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not retry."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rerun:
    """The attempt was lost; another node may run it at once."""


@dataclass(frozen=True, slots=True)
class GiveUpLost:
    """The attempt was lost, and the run ends."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class HoldForPerson:
    """The attempt was lost; the run waits until an operator decides."""

    reason: str
    code: str = "crashed"


def after_failure(
    policy: Policy, *, attempts_failed: int, random: float, retry_after_s: float | None = None
) -> RetryIn | GiveUp:
    """Decide after a failed attempt. `attempts_failed` includes it; `retry_after_s` is the delay that the job set."""
    if attempts_failed > policy.retries:
        return GiveUp(_no_retries_left(policy.retries))
    if retry_after_s is not None:
        return RetryIn(min(max(retry_after_s, 0.0), LONGEST_DELAY_S))
    return RetryIn(policy.backoff.delay_s(attempts_failed, random))


def after_loss(policy: Policy, *, crashes: int) -> Rerun | GiveUpLost | HoldForPerson:
    """Decide after a lost attempt. `crashes` includes this one."""
    if policy.on_crash == "hold":
        return HoldForPerson("its node or worker was lost, and on_crash is hold: a person has to release or cancel it")
    if policy.on_crash == "fail":
        return GiveUpLost("crashed", "its node or worker was lost, and on_crash is fail")
    if crashes >= policy.crash_limit:
        return GiveUpLost(
            "crash_limit", f"its node or worker was lost {crashes} times; crash_limit is {policy.crash_limit}"
        )
    return Rerun()


def after_interruption(policy: Policy) -> Rerun | GiveUpLost | HoldForPerson:
    """Decide after an attempt that an orderly shutdown interrupted: as after a loss, but it counts against no limit."""
    if policy.on_crash == "hold":
        return HoldForPerson("its node was shut down, and on_crash is hold: a person has to release or cancel it")
    if policy.on_crash == "fail":
        return GiveUpLost("interrupted", "its node was shut down, and on_crash is fail")
    return Rerun()


def _no_retries_left(retries: int) -> str:
    return "its policy has no retries" if retries == 0 else f"all {retries + 1} attempts failed"


def _read(value: object) -> Backoff:
    if isinstance(value, Mapping):
        return _read_parts(value)
    first, dots, last = value.partition("..") if isinstance(value, str) else (value, "", "")
    base_s = seconds(first, what="backoff")  # type: ignore[arg-type]  # `seconds` refuses other types
    return Backoff(base_s, seconds(last, what="backoff") if dots else max(base_s, _DEFAULT_CAP_S))


def _read_parts(parts: Mapping[str, Duration]) -> Backoff:
    for name in parts:
        if name not in ("base", "cap", "factor", "jitter"):
            raise InvalidPolicy(
                f"backoff has no {name!r}; {suggestion(str(name), ('base', 'cap', 'factor', 'jitter'))}"
            )
    if "base" not in parts:
        raise InvalidPolicy(f"backoff needs a base; {_HELP}")
    base_s = seconds(parts["base"], what="backoff base")
    return Backoff(
        base_s,
        seconds(parts["cap"], what="backoff cap") if "cap" in parts else max(base_s, _DEFAULT_CAP_S),
        _number(parts.get("factor", 2.0), "factor"),
        _number(parts.get("jitter", 0.25), "jitter"),
    )


def _number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidPolicy(f"backoff {what} {value!r} must be a number")
    return float(value)
