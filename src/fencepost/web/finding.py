"""The find box of runs: ``job:settle state:dead param.customer:7 since:24h``. Reads what was typed.

`fencepost.app.searching` looks for it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.core.duration import is_duration, typed_seconds, whole_us
from fencepost.core.nearest import suggestion
from fencepost.core.states import RunState, WaitsFor
from fencepost.core.tick import instant, microseconds, outside_calendar
from fencepost.errors import InvalidDuration, InvalidParameters

PAGE = 50  # runs: what one page reads and draws; a link leads to older ones
_LONGEST_NAME = 200  # characters of a parameter's name; those that jobs declare for search have 60 at most
_FIELDS = {
    "job": "job",
    "state": "states",
    "waits": "waits_for",
    "schedule": "schedule",
    "queue": "queue",
    "node": "node",
    "by": "requested_by",
    "key": "exclusive_key",
    "retry-of": "retry_of",
    "since": "since",
    "until": "until",
    "id": "ids",
}
_PARAMETER = "param."
QUALIFIERS = (*_FIELDS, f"{_PARAMETER}NAME")


@dataclass(frozen=True, slots=True)
class Find:
    """What was asked for: `text` as it was typed, `wanted` as `find_runs` takes it."""

    text: str
    wanted: Mapping[str, Any]


def read_find(text: str, *, now: datetime) -> Find:
    """Read what was typed, or refuse it with a sentence that names the word."""
    wanted: dict[str, Any] = {}
    for word in _words(text):
        name, colon, value = word.partition(":")
        if not colon:
            name, value = ("id", word) if word.isascii() and word.isdigit() else ("job", word)
        if name.startswith(_PARAMETER):
            _take_parameter(wanted, name.removeprefix(_PARAMETER), value)
            continue
        if name.lower() not in _FIELDS:
            raise InvalidParameters(f"there is no {name!r} to look for; {suggestion(name, QUALIFIERS)}")
        _take(wanted, name.lower(), value, now)
    return Find(text.strip(), wanted)


def _words(text: str) -> list[str]:
    if len(text) > 1_000:
        raise InvalidParameters("that is too long to look for: 1,000 characters at most")
    try:
        return shlex.split(text)
    except ValueError:
        raise InvalidParameters("a quotation mark has no partner") from None


def _take_parameter(wanted: dict[str, Any], name: str, value: str) -> None:
    if not name.isidentifier() or len(name) > _LONGEST_NAME:
        raise InvalidParameters(f"{_PARAMETER}{name[:40]}: needs the name of a parameter, as in {_PARAMETER}customer:7")
    if wanted.setdefault("params", {}).setdefault(name, value) != value:
        raise InvalidParameters(f"{_PARAMETER}{name}: a parameter of a run has one value, and two are looked for")


def _take(wanted: dict[str, Any], name: str, value: str, now: datetime) -> None:
    if not value:
        raise InvalidParameters(f"{name}: needs a value, as in {name}:settle")
    field = _FIELDS[name]
    match name:
        case "state":
            wanted[field] = (*wanted.get(field, ()), *map(_state, value.split(",")))
        case "waits":
            if value not in tuple(WaitsFor):
                raise InvalidParameters(f"nothing waits for {value!r}; {suggestion(value, tuple(WaitsFor))}")
            wanted[field] = value
            wanted.setdefault("states", (RunState.WAITING.value,))
        case "since" | "until":
            wanted[field] = read_instant(value, now=now, what=name)
        case "id":
            wanted[field] = (*wanted.get(field, ()), whole(value, what="id"))
        case "retry-of":
            wanted[field] = whole(value, what="retry-of")
        case _:
            wanted[field] = value


def _state(word: str) -> str:
    lowered = word.strip().lower()
    if lowered not in tuple(RunState):
        raise InvalidParameters(f"there is no state {word!r}; {suggestion(lowered, tuple(RunState))}")
    return lowered


def whole(text: str, *, what: str) -> int:
    """Read a whole number that a database can have, or refuse it."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < 2**63):  # 2**63 has 19 digits
        raise InvalidParameters(f"{what}: {text[:40]!r} is not a number of something on record")
    return int(text)


def read_instant(text: str, *, now: datetime, what: str) -> datetime:
    """Read an instant: ``24h`` for so long ago, or a time with its zone."""
    stripped = text.strip()
    if stripped.lower() == "now":
        return now
    at_us = _age_us(stripped, now=now, what=what) if is_duration(stripped) else _time_us(stripped, what=what)
    if wrong := outside_calendar(at_us):
        raise InvalidParameters(f"{what}: {stripped[:40]!r} {wrong}")
    return instant(at_us)


def _age_us(text: str, *, now: datetime, what: str) -> int:
    try:
        return microseconds(now) - whole_us(typed_seconds(text, what=what))
    except InvalidDuration as error:
        raise InvalidParameters(str(error)) from None


def _time_us(stripped: str, *, what: str) -> int:
    try:
        read = datetime.fromisoformat(stripped)
    except ValueError:
        raise InvalidParameters(f"{what}: {stripped[:40]!r} is not a time; write 24h, or 2026-03-29T01:00Z") from None
    if read.tzinfo is None:
        raise InvalidParameters(f"{what}: {stripped[:40]!r} has no time zone; write {stripped[:40]}Z for UTC")
    return microseconds(read)
