"""What all records share: values with datetimes, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from fencepost.core.tick import instant

NodeNames = Mapping[str, str]
"""Names of nodes, by their ids."""


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """A record as a value and as JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return {field.name: as_json(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class WindowRecord(LedgerRecord):
    """The time window of a run. `start` is None where it has no lower bound."""

    start: datetime | None
    end: datetime


def spelled(at: datetime) -> str:
    """Format an instant in UTC for JSON: at full precision, and ending in Z."""
    return at.isoformat().replace("+00:00", "Z")


def as_json(value: Any) -> Any:
    if isinstance(value, LedgerRecord):
        return value.to_json()
    if isinstance(value, datetime):
        return spelled(value)
    if isinstance(value, StrEnum):
        return str(value)
    return [as_json(each) for each in value] if isinstance(value, tuple) else value


def at_or_none(at_us: int | None) -> datetime | None:
    return None if at_us is None else instant(at_us)


def window_of(start_us: int | None, end_us: int | None) -> WindowRecord | None:
    return None if end_us is None else WindowRecord(at_or_none(start_us), instant(end_us))


def seconds_of(duration_us: int | None) -> float | None:
    return None if duration_us is None else duration_us / 1_000_000


def read_json(text: str | None) -> Any:
    """Parse stored JSON. Return text that is not JSON, such as a manual edit of the table, as it is."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
