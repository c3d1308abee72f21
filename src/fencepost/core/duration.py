"""Durations as users write them: ``"30s"``, ``"5m"``, ``"1h30m"``, ``timedelta`` or a number of seconds."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from fencepost.errors import InvalidDuration

Duration = str | int | float | timedelta

_LONGEST_US = 10_000 * 366 * 86_400 * 1_000_000  # 10,000 years: with now, they fit the 64 bits of a column

_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern}\s*)+")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_TYPED = "write it as 30s, 500ms, 5m, 1h30m or 30d"
_HELP = 'write it as "30s", "500ms", "5m", "1h30m", "30d", or as a number of seconds'


def seconds(value: Duration, *, what: str = "duration") -> float:
    """Return `value` in seconds, or raise `InvalidDuration`. The message names the option, `what`."""
    if isinstance(value, bool):
        raise InvalidDuration(f"{what} {value!r} is not a valid duration; {_HELP}")
    if isinstance(value, timedelta):
        result = value.total_seconds()
    elif isinstance(value, int | float):
        result = _number(value)
    else:
        result = _parse(value, what)
    if not math.isfinite(result) or result < 0:
        raise InvalidDuration(f"{what} {_shown(value)} must be zero or more, and finite")
    return result


def whole_us(duration_s: float) -> int:
    """Return a duration in microseconds, to be added to an instant; a longer one than anybody means as 10,000 years."""
    return round(min(duration_s * 1_000_000, _LONGEST_US))


def _shown(value: Duration) -> str:
    """Format a value that is refused; a whole number can have more digits than Python converts."""
    return f"{_number(value):g}" if isinstance(value, int) else repr(value)[:60]


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return math.inf


def _parse(text: object, what: str) -> float:
    stripped = text.strip().lower() if isinstance(text, str) else ""
    if _NUMBER.fullmatch(stripped):
        return float(stripped)
    if not _WHOLE.fullmatch(stripped):
        raise InvalidDuration(f"{what} {text!r} is not a valid duration; {_HELP}")
    return sum(float(number) * _UNIT_S[unit] for number, unit in _PART.findall(stripped))


def typed_seconds(text: str, *, what: str) -> float:
    """Return in seconds what a person has typed. Unlike in code and settings, a number needs its unit."""
    stripped = text.strip().lower()
    if is_plain_number(stripped):
        units = [f"{stripped}{unit}" for unit in ("s", "m", "h", "d")]
        raise InvalidDuration(f"{what} {text!r} has no unit: write {', '.join(units[:-1])} or {units[-1]}")
    if not is_duration(stripped):
        raise InvalidDuration(f"{what} {text!r} is not a valid duration; {_TYPED}")
    return seconds(stripped, what=what)


def is_duration(text: str) -> bool:
    """Whether this is spelled as a duration, with or without its unit."""
    stripped = text.strip().lower()
    return any(spelling.fullmatch(stripped) is not None for spelling in (_NUMBER, _WHOLE))


def is_plain_number(text: str) -> bool:
    """Whether this is a number other than 0, without a unit."""
    return _NUMBER.fullmatch(text) is not None and float(text) > 0


def typed_duration(text: str, *, what: str) -> str | None:
    """Return what a person has typed, as it is, if it is a duration; None if it is empty."""
    if not text:
        return None
    typed_seconds(text, what=what)
    return text


def spelled(duration_s: float) -> str:
    """Format a number of seconds as users write it: 90 → ``1m30s``, 0.25 → ``250ms``."""
    if duration_s < 1:
        return f"{duration_s * 1000:g}ms"
    if duration_s != int(duration_s):
        return f"{duration_s:g}s"
    rest, parts = int(duration_s), []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
