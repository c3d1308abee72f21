"""Keys and JSON values in etcd, both in base64, as the gateway requires."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

from fencepost.core.grants import Grant
from fencepost.core.tick import Tick
from fencepost.errors import StoreUnavailable


class Record(NamedTuple):
    """The permanent record of a name: the last token, the last tick done, and the last grant."""

    token: int
    last_tick_us: int | None
    holder: str
    grant_id: str
    acquired_at_us: int


class EtcdHold(NamedTuple):
    """The value of a holder key. Without a `grant_id` the name is not held, but kept closed for a while.

    In etcd the grant id comes first, then a space, then the rest as JSON. So etcd can compare the grant id alone,
    which is all that is known of an acquisition with an unknown outcome.
    """

    grant_id: str
    token: int
    holder: str | None
    session_id: str | None
    ttl_s: float


class EtcdRecord(NamedTuple):
    """The record at a revision of its key. If there is no record, `revision` is 0 and `token` comes from the clock."""

    revision: int
    token: int
    record: Record | None

    def has_done(self, tick: Tick | None) -> bool:
        """Whether `tick` is not later than the last one done."""
        return tick is not None and self.last_tick_us is not None and tick.at_us <= self.last_tick_us

    @property
    def last_tick_us(self) -> int | None:
        """The last tick done."""
        return self.record.last_tick_us if self.record else None


class EtcdNameState(NamedTuple):
    """The state of a name at one moment: its holder, the etcd lease, the revision of the holder key, and the record."""

    hold: EtcdHold | None
    lease_id: str
    hold_revision: int
    known: EtcdRecord


class EtcdKeys:
    """The keys of the store."""

    def __init__(self, prefix: str) -> None:
        self.records = f"{prefix}/lease/"
        self.holders = f"{prefix}/holder/"

    def record(self, name: str) -> str:
        """Return the key of a name's record."""
        return encoded(self.records + name)

    def holder(self, name: str) -> str:
        """Return the key of a name's holder."""
        return encoded(self.holders + name)


def encoded(text: str) -> str:
    """Encode for the gateway."""
    return b64encode(text.encode()).decode()


def decoded(text: str) -> str:
    """Decode a text from the gateway."""
    return b64decode(text).decode()


def after(key: str) -> str:
    """Return the end of the range of all keys with the prefix `key`."""
    return encoded(key[:-1] + chr(ord(key[-1]) + 1))


def hold_of(grant: Grant) -> EtcdHold:
    """Return the value of the holder key while `grant` is current."""
    return EtcdHold(grant.grant_id, grant.token, grant.session.holder, grant.session.id, grant.session.ttl_s)


def record_value(record: Record) -> str:
    """Encode a record."""
    return encoded(json.dumps(record._asdict()))


def hold_value(hold: EtcdHold) -> str:
    """Encode the value of a holder key."""
    fields = hold._asdict()
    return encoded(f"{fields.pop('grant_id')} {json.dumps(fields)}")


def grant_id_in(kv: Mapping[str, Any]) -> str:
    """Return the grant id in a holder key's value."""
    return b64decode(kv.get("value", "")).partition(b" ")[0].decode(errors="replace")


def to_record(kv: Mapping[str, Any]) -> Record:
    """Decode a record."""
    fields = _fields(kv, b64decode(kv.get("value", "")))
    tick = fields.get("last_tick_us")
    return Record(
        token=int(fields["token"]),
        last_tick_us=None if tick is None else int(tick),
        holder=str(fields.get("holder", "")),
        grant_id=str(fields.get("grant_id", "")),
        acquired_at_us=int(fields.get("acquired_at_us", 0)),
    )


def to_hold(kv: Mapping[str, Any]) -> EtcdHold:
    """Decode the value of a holder key."""
    fields = _fields(kv, b64decode(kv.get("value", "")).partition(b" ")[2])
    return EtcdHold(
        grant_id=grant_id_in(kv),
        token=int(fields["token"]),
        holder=fields.get("holder"),
        session_id=fields.get("session_id"),
        ttl_s=float(fields.get("ttl_s", 0.0)),
    )


def _fields(kv: Mapping[str, Any], text: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(text)
        int(fields["token"])
    except (ValueError, KeyError, TypeError):
        raise StoreUnavailable(f"the value of etcd's key {decoded(kv['key'])!r} is not Fencepost's") from None
    return dict(fields)
