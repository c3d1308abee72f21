"""Paths in ZooKeeper, and the JSON content of the nodes."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from fencepost.core.grants import Grant
from fencepost.core.tick import Tick
from fencepost.errors import StoreUnavailable


class ZooKeeperPaths:
    """The nodes of the store. The node of a name is its percent-encoding, including dots and slashes."""

    def __init__(self, root: str) -> None:
        self.leases = f"{root}/leases"
        self.sessions = f"{root}/sessions"

    def record(self, name: str) -> str:
        """Return the path of a name's record."""
        return f"{self.leases}/{quote(name, safe='').replace('.', '%2E')}"

    def holder(self, name: str) -> str:
        """Return the path of a name's holder."""
        return f"{self.record(name)}/holder"

    def era(self, name: str, era: str) -> str:
        """Return the path of the node that exists as long as the record does."""
        return f"{self.record(name)}/era-{era}"

    def session(self, session_id: str) -> str:
        """Return the path of a session's own node."""
        return f"{self.sessions}/{session_id}"

    @staticmethod
    def name(node: str) -> str:
        """Return the name of a record's node."""
        return unquote(node)


class ZooKeeperRecord(NamedTuple):
    """A record at a version. If it was never granted, `token` is a lower bound from the time of its creation."""

    era: str
    version: int
    token: int
    last_tick_us: int | None
    kept_until_us: int
    is_granted: bool

    def has_done(self, tick: Tick | None) -> bool:
        """Whether `tick` is not later than the last one done."""
        return tick is not None and self.last_tick_us is not None and tick.at_us <= self.last_tick_us

    def to_json(self) -> bytes:
        """Encode the content of the node."""
        fields = {
            "era": self.era,
            "token": self.token,
            "last_tick_us": self.last_tick_us,
            "kept_until_us": self.kept_until_us,
        }
        return json.dumps(fields).encode()


class ZooKeeperHold(NamedTuple):
    """The content of the holder's node."""

    grant_id: str
    token: int
    holder: str
    session_id: str
    ttl_s: float
    acquired_at_us: int


class ZooKeeperNameState(NamedTuple):
    """The state of a name at one moment: its holder, and the record, if there is one."""

    hold: ZooKeeperHold | None
    known: ZooKeeperRecord | None


def new_record(era: str) -> bytes:
    """Encode a record that was never granted."""
    return json.dumps({"era": era}).encode()


def to_known(content: bytes, stat: Any) -> ZooKeeperRecord:
    """Decode a record.

    A record is created empty. Earlier tokens were issued before its creation, so by the same clock they are below the
    millisecond after it: that is the lower bound for its first token.
    """
    fields = _fields(content, "era")
    tick = fields.get("last_tick_us")
    return ZooKeeperRecord(
        era=str(fields["era"]),
        version=int(stat.version),
        token=int(fields.get("token", (stat.ctime + 1) * 1000 - 1)),
        last_tick_us=None if tick is None else int(tick),
        kept_until_us=int(fields.get("kept_until_us", 0)),
        is_granted="token" in fields,
    )


def hold_of(grant: Grant, acquired_at_us: int) -> bytes:
    """Encode the content of the holder's node while `grant` is current."""
    session = grant.session
    hold = ZooKeeperHold(grant.grant_id, grant.token, session.holder, session.id, session.ttl_s, acquired_at_us)
    return json.dumps(hold._asdict()).encode()


def to_hold(content: bytes) -> ZooKeeperHold:
    """Decode the content of a holder's node."""
    fields = _fields(content, "token")
    return ZooKeeperHold(
        grant_id=str(fields.get("grant_id", "")),
        token=int(fields["token"]),
        holder=str(fields.get("holder", "")),
        session_id=str(fields.get("session_id", "")),
        ttl_s=float(fields.get("ttl_s", 0.0)),
        acquired_at_us=int(fields.get("acquired_at_us", 0)),
    )


def _fields(content: bytes, needed: str) -> dict[str, Any]:
    try:
        fields = json.loads(content)
        _ = fields[needed]
    except (ValueError, KeyError, TypeError):
        raise StoreUnavailable("the content of a ZooKeeper node was not written by Fencepost") from None
    return dict(fields)
