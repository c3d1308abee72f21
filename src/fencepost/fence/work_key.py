"""Work keys: a string that names a piece of work and what it is done for. Every process makes the same string.

**Promises.** Different parts give different keys: separators inside parts are escaped. Equal values give the same key,
however they are written: ``42`` and ``"42"``, ``Decimal("1.0")`` and ``Decimal("1.00")``, one instant in two time
zones, an accented letter as one character or as two. Every key fits into 191 characters.
"""

from __future__ import annotations

import functools
import unicodedata
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING

from fencepost.core.identity import fitted
from fencepost.errors import InvalidName

if TYPE_CHECKING:
    from uuid import UUID  # noqa: TID251 - only the type, no random numbers

_TAKEN = "use str, int, Decimal, date, aware datetime, UUID or Enum"


def work_key(*parts: str | int | Decimal | date | UUID | Enum) -> str:
    r"""Return the key of a piece of work, for `once` and `idempotent`.

    >>> from datetime import date
    >>> work_key("settle", 42, date(2026, 1, 31))
    'settle:42:2026-01-31'
    >>> work_key("settle", "4:2")
    'settle:4\\:2'
    """
    if not parts:
        raise InvalidName('a work key needs at least one part, as in work_key("settle", order_id, date)')
    return fitted(":".join(_escaped(_written(part)) for part in parts))


@functools.singledispatch
def _written(part: object) -> str:
    if is_uuid(part):
        return str(part)
    raise InvalidName(f"a {type(part).__name__} cannot be part of a key; {_TAKEN}")


@_written.register
def _(part: str) -> str:
    return unicodedata.normalize("NFC", part)


@_written.register
def _(part: int) -> str:
    return str(int(part))


@_written.register
def _(part: date) -> str:
    return part.isoformat()


@_written.register
def _(part: Enum) -> str:
    return _written(part.value)


@_written.register
def _(part: float) -> str:
    raise InvalidName(f"{part!r} is a float, and a nearly equal float would give another key; use Decimal, int or str")


@_written.register
def _(part: bool) -> str:
    raise InvalidName(f"{part!r} means nothing in a key; use a word for it")


@_written.register
def of_decimal(number: Decimal) -> str:
    """Return the same string for all equal numbers."""
    if not number.is_finite():
        raise InvalidName(f"{number} cannot be part of a key; use a finite number")
    plain = f"{number:f}"
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return "0" if plain in ("-0", "") else plain


@_written.register
def _of_instant(at: datetime) -> str:
    if at.tzinfo is None or at.utcoffset() is None:
        raise InvalidName(
            f"datetime {at} has no time zone, so it could mean different instants; add the time zone, or use the date"
        )
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def is_uuid(part: object) -> bool:
    """Whether it is a UUID. The module `uuid` also generates random numbers, so it is not imported here."""
    return any(kind.__module__ == "uuid" and kind.__name__ == "UUID" for kind in type(part).__mro__)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace(":", "\\:")
