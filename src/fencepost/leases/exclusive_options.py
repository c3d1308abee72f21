"""What may be asked of a lock, as `Locks.lock` takes it, for those who pass it on; and what is refused at once."""

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
"""A due time; as a text also ``auto:CRON``, the latest one of a cron expression."""


_SKIPS: tuple[OnSkipWord, ...] = get_args(OnSkipWord)


class ExclusiveOptions(TypedDict, total=False):
    """The options of `Locks.exclusive`; what each means is with `Locks.lock`."""

    ttl: Duration
    wait: Duration
    at_least: Duration
    tick: Due | Callable[..., Due | None] | None
    tz: str | None
    at_most_once: bool
    floor: int
    margin: Duration
    renew_every: Duration
    call_timeout: Duration
    retry_every: Duration
    term_grace: Duration
    kill: Duration


def refuse_unknown(names: Iterable[str], *, of: str) -> None:
    """Raise a `TypeError` for the first of `names` that is no wish."""
    known = (*ExclusiveOptions.__annotations__, "on_skip")
    for name in names:
        if name not in known:
            raise TypeError(f"{of} has no option {name!r}; {suggestion(name, known)}")


def refuse_misspelt_skip(on_skip: object) -> None:
    """Refuse what is nearly one of the two words: it would be returned as a value."""
    if isinstance(on_skip, str) and on_skip not in _SKIPS and (near := difflib.get_close_matches(on_skip, _SKIPS, n=1)):
        raise ConfigurationError(
            f"on_skip={on_skip!r} would be returned by every call that is skipped; did you mean {near[0]!r}?"
        )


def refuse_vain_zone(tick: object, tz: str | None) -> None:
    """Refuse a time zone that nothing is counted in. What a function returns is seen when it is called."""
    if tz is not None and not callable(tick) and not (isinstance(tick, str) and tick.startswith("auto:")):
        raise ConfigurationError(f"tz {tz!r} is the time zone of a tick auto:CRON, and there is none; leave it out")
