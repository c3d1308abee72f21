"""Converts values of key columns, and items, to JSON and back without loss.

A checkpoint contains the last key that was processed, and a dead letter the item that failed. Both are read by people,
and later by the same code, which compares them with values from the database. So a key must keep its type.

>>> packed((7, datetime(2026, 1, 1, tzinfo=UTC)))
[7, {"~": "datetime", "v": "2026-01-01T00:00:00+00:00"}]
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID  # noqa: TID251 - only the type; the Runtime generates ids

_MARK, _VALUE = "~", "v"
_PLAIN = (str, int, bool, type(None))

_WRITE: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (datetime, "datetime", datetime.isoformat),  # before date, its base class
    (date, "date", date.isoformat),
    (time, "time", time.isoformat),
    (timedelta, "timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    (Decimal, "decimal", str),
    (UUID, "uuid", str),
    (bytes, "bytes", lambda value: base64.b64encode(value).decode()),
    (bytearray, "bytes", lambda value: base64.b64encode(value).decode()),
    (memoryview, "bytes", lambda value: base64.b64encode(value).decode()),
    (float, "float", repr),  # JSON has no infinity, and parsers differ in the last digit
)
_READ: Mapping[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "decimal": Decimal,
    "uuid": UUID,
    "bytes": base64.b64decode,
    "float": float,
    "tuple": tuple,
}


def packed(value: Any) -> Any:
    """Return `value` as JSON values that `unpacked` can read; `TypeError` if that is not possible."""
    if isinstance(value, _PLAIN) and type(value) in _PLAIN:
        return value
    if isinstance(value, list | tuple):
        return [packed(each) for each in value]
    if isinstance(value, Mapping):
        return {_MARK: "mapping", _VALUE: [[packed(name), packed(each)] for name, each in value.items()]}
    for kind, name, write in _WRITE:
        if isinstance(value, kind):
            return {_MARK: name, _VALUE: write(value)}
    if isinstance(value, Enum):
        return packed(value.value)
    if isinstance(value, str | int):  # a subclass
        return str(value) if isinstance(value, str) else int(value)
    raise TypeError(f"a {type(value).__name__} cannot be stored in a checkpoint or a dead letter")


def unpacked(value: Any) -> Any:
    """Return the value that was passed to `packed`; tuples become lists."""
    if isinstance(value, list):
        return [unpacked(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get(_MARK) == "mapping":
        return {unpacked(name): unpacked(each) for name, each in value[_VALUE]}
    try:
        return _READ[value[_MARK]](value[_VALUE])
    except KeyError:
        raise ValueError(f"{json.dumps(value)[:100]} was written by a later release of Fencepost") from None
