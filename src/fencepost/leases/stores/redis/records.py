"""Keys and records: the key of a lock, and the meaning of the fields of its hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.core.grants import LeaseRecord
from fencepost.errors import InvalidUrl

_SPECIAL = str.maketrans({character: f"\\{character}" for character in r"\*?[]^"})


@dataclass(frozen=True, slots=True)
class RedisKeys:
    """Keys have the form ``fencepost:{name}``; the braces separate them from those of the prefix ``fencepost:x``."""

    prefix: str

    def __post_init__(self) -> None:
        if not self.prefix or not self.prefix.isprintable() or {"{", "}", " "} & set(self.prefix):
            raise InvalidUrl(f"prefix {self.prefix!r} must be printable text without spaces and braces")

    def of(self, name: str) -> str:
        """Return the key of a lock."""
        return f"{self.prefix}:{{{name}}}"

    def name_in(self, key: str) -> str:
        """Return the name of the lock that has this key."""
        return key[len(self.prefix) + 2 : -1]

    @property
    def pattern(self) -> str:
        """The pattern for SCAN."""
        return f"{self.prefix.translate(_SPECIAL)}:{{*}}"


def record_from(name: str, fields: Sequence[bytes | None], now_us: int) -> LeaseRecord:
    """Convert the result of ``read.lua`` to a record. Holder and grant are set only while they are live."""
    token, expires_at_us, kept_until_us, last_tick_us = (None if field is None else int(field) for field in fields[:4])
    is_held = expires_at_us is not None and expires_at_us > now_us
    free_at_us = max(expires_at_us or 0, kept_until_us or 0)
    holder, grant_id, session_id, acquired_at_us = fields[4:] if is_held else (None, None, None, None)
    return LeaseRecord(
        name=name,
        token=token or 0,
        holder=_text(holder),
        grant_id=_text(grant_id),
        session_id=_text(session_id),
        acquired_at_us=None if acquired_at_us is None else int(acquired_at_us),
        free_in_s=(free_at_us - now_us) / 1e6 if free_at_us > now_us else None,
        last_tick_us=last_tick_us,
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
