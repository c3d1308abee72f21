"""Policies: how a job is run. Five batch types have different defaults, and a job can override each of them.

================  =======  =======  ===============  =====  =======  ============
type              timeout  retries  isolation        chunk  overlap  back-off
================  =======  =======  ===============  =====  =======  ============
scheduled         30 min   1        read committed   500    forbid   30 s..10 min
event             5 min    5        read committed   200    allow    1 s..1 min
manual            2 h      0        repeatable read  1000   allow    10 s..5 min
bulk              6 h      2        repeatable read  2000   forbid   1 min..30 min
near-real-time    2 min    3        read committed   100    forbid   1 s..15 s
================  =======  =======  ===============  =====  =======  ============

`effects` declares how the job's effects land once. It decides what happens to a run while its node does not know
whether it still has the right to run it:

- ``unfenced`` (default): its writes are not checked, so the run is stopped.
- ``fenced``: every write carries its token and is refused if it is stale, so the run is suspended and may continue.
- ``idempotent``: two runs at once do no harm. No exclusive key is taken unless `overlap` or `exclusive` asks for one.
  The run is stopped, because nothing else would stop it, and repeating it does no harm.

**Promises.** Every policy is valid: `Policy.of` refuses unknown names and impossible values with a message. Options
that a newer release stored and this release does not know are ignored.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from string import Formatter
from typing import Any, TypeVar, get_args

from fencepost.core.duration import seconds, spelled
from fencepost.core.identity import canonical_json, job_name, queue_name
from fencepost.core.misfire import Misfire
from fencepost.core.nearest import suggestion
from fencepost.core.retry import Backoff
from fencepost.core.search_keys import LONGEST_NAME, MOST_NAMES
from fencepost.core.words import EffectsWord, IsolationWord, OnCrashWord, OverlapWord, ReasonWord, TypeWord
from fencepost.errors import InvalidPolicy

LONGEST_TIMEOUT_S = 366 * 86400.0  # a year: a longer one is a mistake
LONGEST_EXCLUSIVE = 191  # characters that every ledger can index
E = TypeVar("E", bound=StrEnum)


class BatchType(StrEnum):
    """The batch type of a job, which sets its defaults."""

    SCHEDULED = "scheduled"
    EVENT = "event"
    MANUAL = "manual"
    BULK = "bulk"
    NEAR_REAL_TIME = "near-real-time"


class Isolation(StrEnum):
    """The isolation level of `run.transaction()`."""

    READ_COMMITTED = "read committed"
    REPEATABLE_READ = "repeatable read"
    SERIALIZABLE = "serializable"


class Overlap(StrEnum):
    """What happens to a run while another run has its exclusive key."""

    FORBID = "forbid"
    QUEUE = "queue"
    REPLACE = "replace"
    ALLOW = "allow"


class OnCrash(StrEnum):
    """What happens to a run whose node or worker was lost."""

    RERUN = "rerun"
    FAIL = "fail"
    HOLD = "hold"


class Reason(StrEnum):
    """Whether a person has to say why for each act on the job."""

    OPTIONAL = "optional"
    ALWAYS = "always"


class Effects(StrEnum):
    """How the job's effects land once."""

    UNFENCED = "unfenced"
    FENCED = "fenced"
    IDEMPOTENT = "idempotent"


@dataclass(frozen=True, slots=True)
class Policy:
    """How a job is run. Create it with `Policy.of`, which validates."""

    type: BatchType
    timeout_s: float
    retries: int  # how many attempts after the first failure
    isolation: Isolation
    chunk: int
    overlap: Overlap
    backoff: Backoff
    sla_s: float | None = None  # from its due time, or from the request, to its end
    misfire: str = "once"
    grace_s: float | None = None
    on_crash: OnCrash = OnCrash.RERUN
    crash_limit: int = 3  # give up after this many lost attempts
    exclusive: str | None = None  # a template such as "account:{account}"
    priority: int = 0
    queue: str = "default"
    effects: Effects = Effects.UNFENCED
    formerly: tuple[str, ...] = ()  # earlier names of the job, the first name first
    reason: Reason = Reason.OPTIONAL  # of acts of people
    search: tuple[str, ...] = ()  # parameters by which its runs are found: see `fencepost.core.search_keys`

    @staticmethod
    def of(type: str = "scheduled", **changes: Any) -> Policy:
        """Apply `changes`, as users write them, to the defaults of a batch type; None means the default.

        >>> Policy.of("bulk", timeout="10m", backoff="10s..5m").timeout_s
        600.0
        """
        batch = _batch_type(type, "type")
        values: dict[str, Any] = {**_DEFAULTS[batch], "type": batch}
        for name, value in changes.items():
            if name not in _READERS:
                raise InvalidPolicy(f"a policy has no {name!r}; {suggestion(name, ('type', *_READERS))}")
            if value is not None:
                field, read = _READERS[name]
                values[field] = read(value, name)
        if values.get("effects") is Effects.IDEMPOTENT and changes.get("overlap") is None:
            values["overlap"] = Overlap.ALLOW
        return Policy(**values)

    @property
    def stops_in_doubt(self) -> bool:
        """Whether a run is stopped, not suspended, while its node does not know whether it may continue."""
        return self.effects is not Effects.FENCED

    def known_as(self, name: str) -> str:
        """Return the name that schedules, keys and checkpoints of the job `name` use: the first that it had."""
        return self.formerly[0] if self.formerly else name

    def to_json(self) -> str:
        """Return the policy as JSON, for the ledger: every value, in the spelling of `of`, in a fixed order."""
        values = {name: getattr(self, field) for name, (field, _) in _READERS.items()}
        for name in ("formerly", "search"):  # few jobs have them
            if not values[name]:
                del values[name]
        if self.reason is Reason.OPTIONAL:
            del values["reason"]
        return canonical_json({**values, "type": self.type, "backoff": self.backoff.to_json()})

    @staticmethod
    def from_json(text: str) -> Policy:
        """Read the output of `to_json`. Names that this release does not know are ignored."""
        return _from_json(text)


def template_parameters(template: str) -> tuple[str, ...]:
    """Return the names of the parameters that an `exclusive` template uses."""
    return tuple(name for _, name, _, _ in Formatter().parse(template) if name is not None)


@functools.lru_cache(maxsize=1024)
def _from_json(text: str) -> Policy:
    try:
        stored = json.loads(text)
        known = {name: value for name, value in stored.items() if name in _READERS}
        return Policy.of(stored.get("type", BatchType.SCHEDULED), **known)
    except (AttributeError, ValueError) as error:
        raise InvalidPolicy(f"a stored policy cannot be read: {error}") from error


Reader = Callable[[Any, str], Any]


def _choice(kind: type[E], words: Any) -> Callable[[object, str], E]:
    """Return a function that parses one of `words`, a Literal type of the public API, as a member of `kind`."""
    members = {_folded(member): member for member in kind}
    choices = {_folded(word): members[_folded(word)] for word in get_args(words)}

    def read(value: object, name: str) -> E:
        found = choices.get(_folded(value)) if isinstance(value, str) else None
        if found is None:
            raise InvalidPolicy(f"{name} {value!r} is unknown; {suggestion(str(value), kind)}")
        return found

    return read


def isolation_of(word: str) -> Isolation:
    """Parse an isolation level as users write it, such as ``REPEATABLE READ``, or raise `InvalidPolicy`."""
    return _isolation(word, "isolation")


def _folded(word: str) -> str:
    return re.sub(r"[\s_-]+", " ", word.strip().lower())


def _whole(least: int, most: int) -> Reader:
    def read(value: Any, name: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InvalidPolicy(f"{name} {value!r} must be a whole number from {least} to {most}")
        return value

    return read


def _positive(value: Any, name: str) -> float:
    duration_s = seconds(value, what=name)
    if not 0 < duration_s <= LONGEST_TIMEOUT_S:
        raise InvalidPolicy(f"{name} {value!r} must be more than zero and at most {spelled(LONGEST_TIMEOUT_S)}")
    return duration_s


def _any_duration(value: Any, name: str) -> float:
    return seconds(value, what=name)


def _backoff(value: Any, _: str) -> Backoff:
    return Backoff.of(value)


def _formerly(value: Any, name: str) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else value
    are_names = isinstance(names, list | tuple) and all(isinstance(each, str) for each in names)
    if not are_names or len(set(names)) != len(names):
        raise InvalidPolicy(f"{name} {value!r} must be an earlier name of the job, or a list of different ones")
    return tuple(job_name(each) for each in names)


def _search(value: Any, name: str) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else value
    are_names = isinstance(names, list | tuple) and all(isinstance(each, str) and each.isidentifier() for each in names)
    if not are_names or len(set(names)) != len(names) or len(names) > MOST_NAMES:
        raise InvalidPolicy(f"{name} {value!r} must be a list of at most {MOST_NAMES} parameters of the job")
    if too_long := [each for each in names if len(each) > LONGEST_NAME]:
        raise InvalidPolicy(f"{name} {too_long[0]!r} is too long: at most {LONGEST_NAME} characters")
    return tuple(names)


def _queue(value: Any, _: str) -> str:
    return queue_name(value)


def _misfire(value: Any, _: str) -> str:
    return Misfire.of(value).word


def _exclusive(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_EXCLUSIVE:
        raise InvalidPolicy(f"{name} {value!r} must be a text of 1 to {LONGEST_EXCLUSIVE} characters")
    try:
        parts = list(Formatter().parse(value))
    except ValueError as error:
        raise InvalidPolicy(f"{name} {value!r} is not a valid template: {error}; write {{{{ for a brace") from None
    for _, field, spec, conversion in parts:
        if field is not None and (not field.isidentifier() or spec or conversion):
            raise InvalidPolicy(
                f"{name} {value!r}: {{{field}}} is not the name of a parameter; write it as in account:{{account}}"
            )
    return value


_batch_type = _choice(BatchType, TypeWord)
_isolation = _choice(Isolation, IsolationWord)

_READERS: Mapping[str, tuple[str, Reader]] = {
    "timeout": ("timeout_s", _positive),
    "retries": ("retries", _whole(0, 10_000)),
    "isolation": ("isolation", _isolation),
    "chunk": ("chunk", _whole(1, 1_000_000)),
    "overlap": ("overlap", _choice(Overlap, OverlapWord)),
    "backoff": ("backoff", _backoff),
    "sla": ("sla_s", _positive),
    "misfire": ("misfire", _misfire),
    "grace": ("grace_s", _any_duration),
    "on_crash": ("on_crash", _choice(OnCrash, OnCrashWord)),
    "crash_limit": ("crash_limit", _whole(1, 1000)),
    "exclusive": ("exclusive", _exclusive),
    "priority": ("priority", _whole(-1000, 1000)),
    "queue": ("queue", _queue),
    "effects": ("effects", _choice(Effects, EffectsWord)),
    "formerly": ("formerly", _formerly),
    "reason": ("reason", _choice(Reason, ReasonWord)),
    "search": ("search", _search),
}


def _defaults(
    timeout: str, retries: int, isolation: Isolation, *, chunk: int, overlap: Overlap, backoff: str
) -> dict[str, Any]:
    return {
        "timeout_s": seconds(timeout),
        "retries": retries,
        "isolation": isolation,
        "chunk": chunk,
        "overlap": overlap,
        "backoff": Backoff.of(backoff),
    }


_COMMITTED, _REPEATABLE = Isolation.READ_COMMITTED, Isolation.REPEATABLE_READ
_FORBID, _ALLOW = Overlap.FORBID, Overlap.ALLOW

_DEFAULTS: Mapping[BatchType, Mapping[str, Any]] = {
    BatchType.SCHEDULED: _defaults("30m", 1, _COMMITTED, chunk=500, overlap=_FORBID, backoff="30s..10m"),
    BatchType.EVENT: _defaults("5m", 5, _COMMITTED, chunk=200, overlap=_ALLOW, backoff="1s..1m"),
    BatchType.MANUAL: _defaults("2h", 0, _REPEATABLE, chunk=1000, overlap=_ALLOW, backoff="10s..5m"),
    BatchType.BULK: _defaults("6h", 2, _REPEATABLE, chunk=2000, overlap=_FORBID, backoff="1m..30m"),
    BatchType.NEAR_REAL_TIME: _defaults("2m", 3, _COMMITTED, chunk=100, overlap=_FORBID, backoff="1s..15s"),
}
