"""The options of `Locks.lock`, as types for functions that pass them on, and checks that reject wrong ones early."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TypedDict, get_args

from fencepost.core.duration import Duration
from fencepost.core.nearest import suggestion
from fencepost.core.tick import Tick
from fencepost.core.words import OnSkipWord
from fencepost.errors import ConfigurationError

Due = datetime | str | Tick
"""A due time. The text ``auto:CRON`` means the latest due time of a cron expression."""


_SKIPS: tuple[OnSkipWord, ...] = get_args(OnSkipWord)


class _Wishes(TypedDict, total=False):
    ttl: Duration
    wait: Duration
    at_least: Duration
    tz: str | None
    at_most_once: bool
    floor: int
    margin: Duration | None
    renew_every: Duration | None
    call_timeout: Duration | None
    retry_every: Duration | None
    term_grace: Duration | None
    kill: Duration | None


class LockWishes(_Wishes, total=False):
    """The options of `Locks.lock`, which documents them."""

    tick: Due | None


class ExclusiveOptions(_Wishes, total=False):
    """The options of `Locks.exclusive`: those of `Locks.lock`, but the tick may depend on the call."""

    tick: Due | Callable[..., Due | None] | None


def refuse_unknown(names: Iterable[str], *, of: str) -> None:
    """Raise a `TypeError` for the first of `names` that is not an option."""
    known = (*ExclusiveOptions.__annotations__, "on_skip")
    for name in names:
        if name not in known:
            raise TypeError(f"{of} has no option {name!r}; {suggestion(name, known)}")


def refuse_misspelt_skip(on_skip: object) -> None:
    """Refuse a misspelling of one of the two words, which would otherwise be returned as a value."""
    if isinstance(on_skip, str) and on_skip not in _SKIPS and (near := difflib.get_close_matches(on_skip, _SKIPS, n=1)):
        raise ConfigurationError(
            f"on_skip={on_skip!r} would be the result of every skipped call; did you mean {near[0]!r}?"
        )


def refuse_vain_zone(tick: object, tz: str | None) -> None:
    """Refuse a time zone without ``auto:CRON``. If `tick` is a function, its result is checked when it is called."""
    if tz is not None and not callable(tick) and not (isinstance(tick, str) and tick.startswith("auto:")):
        raise ConfigurationError(f"tz {tz!r} applies only to a tick of the form auto:CRON; leave it out")
