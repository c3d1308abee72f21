"""Locks and sessions as Lease objects: their names, labels, annotations. Without input or output.

A lock is one Lease, named ``<prefix>-<slug>-<hash>``: the slug is readable, and the hash of the exact name makes it
unique. It outlives the hold, because it contains the last token. A session is one Lease, ``<prefix>-session-<id>``, and
ends when it is deleted. Both have the label ``fencepost.dev/id``, so that one watch can follow only a lock and its
holder's session.

``spec`` is filled as ``kubectl get leases`` expects. No decision uses its times, because they come from clocks.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.core.grants import Session
from fencepost.core.tick import instant, microseconds

Json = dict[str, Any]

_DOMAIN = "fencepost.dev"
MANAGED_BY = "app.kubernetes.io/managed-by"
PREFIX = f"{_DOMAIN}/prefix"
KIND = f"{_DOMAIN}/kind"
ID = f"{_DOMAIN}/id"
SESSION = f"{_DOMAIN}/session"

NAME = f"{_DOMAIN}/name"
TOKEN = f"{_DOMAIN}/token"
GRANT_ID = f"{_DOMAIN}/grant-id"
LAST_TICK = f"{_DOMAIN}/last-tick"
RELEASED = f"{_DOMAIN}/released"
KEPT_UNTIL = f"{_DOMAIN}/kept-until"
TTL_MS = f"{_DOMAIN}/ttl-ms"
RENEWALS = f"{_DOMAIN}/renewals"

LONGEST_OBJECT_NAME = 63  # characters of a DNS label
LONGEST_PREFIX = 20  # with the hash and two dashes, it leaves 15 characters for the lock's own name
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def lock_id(prefix: str, name: str) -> str:
    """Hash the exact name, to 128 bits in 26 letters and digits."""
    digest = hashlib.sha256(f"{prefix}/{name}".encode()).digest()[:16]
    return base64.b32encode(digest).decode().rstrip("=").lower()


def lock_object_name(prefix: str, name: str) -> str:
    """Return the name of a lock's Lease: as readable as 63 characters of DNS allow, and unique to the lock."""
    hashed = lock_id(prefix, name)
    room = LONGEST_OBJECT_NAME - len(prefix) - len(hashed) - 2
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[:room].strip("-")
    return "-".join(filter(None, (prefix, slug, hashed)))


def session_object_name(prefix: str, session_id: str) -> str:
    """Return the name of a session's Lease."""
    return f"{prefix}-session-{session_id}"


def selector(prefix: str, **wanted: str) -> str:
    """Return a label selector for this prefix; ``kind="lock"``, ``session="…"``, ``id="a,b"`` (one of these)."""
    terms = [f"{PREFIX}={prefix}"]
    terms += [f"{_DOMAIN}/{label} in ({value})" for label, value in wanted.items()]
    return ",".join(terms)


@dataclass(frozen=True, slots=True)
class LockObject:
    """A lock's Lease, as it was read."""

    name: str
    token: int
    version: str
    metadata: Json
    holder: str | None = None
    session_id: str | None = None
    grant_id: str | None = None
    last_tick_us: int | None = None
    kept_until_us: int = 0
    acquired_at_us: int | None = None
    transitions: int = 0
    released_id: str | None = None

    def granted(
        self, session: Session, *, grant_id: str, token: int, last_tick_us: int | None, now_us: int
    ) -> LockObject:
        """Give it to `session`. The last released grant stays recorded, because its reply may have been lost."""
        return LockObject(
            self.name,
            token,
            self.version,
            self.metadata,
            holder=session.holder,
            session_id=session.id,
            grant_id=grant_id,
            last_tick_us=last_tick_us,
            acquired_at_us=now_us,
            transitions=self.transitions + 1,
            released_id=self.released_id,
        )

    def freed(self, *, last_tick_us: int | None, kept_until_us: int = 0, released_id: str | None = None) -> LockObject:
        """Take it from its holder; `released_id` is the grant, if its own holder released it."""
        return LockObject(
            self.name,
            self.token,
            self.version,
            self.metadata,
            last_tick_us=last_tick_us,
            kept_until_us=kept_until_us,
            transitions=self.transitions,
            released_id=released_id,
        )

    def body(self, ttl_s: float | None = None) -> Json:
        """Return the object for a replace; fields set by others (owners, labels of a mesh) are kept."""
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                **self.metadata,
                "labels": _changed(self.metadata.get("labels"), {SESSION: self.session_id}),
                "annotations": _changed(self.metadata.get("annotations"), self._annotations()),
            },
            "spec": self._spec(ttl_s),
        }

    def _annotations(self) -> dict[str, str | None]:
        return {
            NAME: self.name,
            TOKEN: str(self.token),
            GRANT_ID: self.grant_id,
            LAST_TICK: None if self.last_tick_us is None else str(self.last_tick_us),
            RELEASED: self.released_id,
            KEPT_UNTIL: str(self.kept_until_us) if self.kept_until_us else None,
        }

    def _spec(self, ttl_s: float | None) -> Json:
        spec: Json = {"leaseTransitions": self.transitions}
        if self.grant_id is not None:
            taken_at = micro_time(self.acquired_at_us or 0)
            spec |= {"holderIdentity": self.holder, "acquireTime": taken_at, "renewTime": taken_at}
            spec["leaseDurationSeconds"] = max(1, math.ceil(ttl_s or 1))
        return spec


def new_lock(prefix: str, name: str) -> Json:
    """Return the empty record of a name that has none."""
    labels = _labels(prefix, "lock", lock_id(prefix, name))
    metadata = {"name": lock_object_name(prefix, name), "labels": labels}
    return LockObject(name, 0, "", metadata).body()


def read_lock(lease: Json, name: str | None = None) -> LockObject:
    """Read a lock's Lease. Fields damaged by hand count as missing; the name is `name` if known."""
    metadata = lease["metadata"]
    metadata.pop("managedFields", None)  # the server keeps them; sending them back is a waste
    notes, spec = metadata.get("annotations") or {}, lease.get("spec") or {}
    return LockObject(
        name=name if name is not None else notes.get(NAME, metadata["name"]),
        token=_number(notes.get(TOKEN)) or 0,
        version=metadata["resourceVersion"],
        metadata=metadata,
        holder=spec.get("holderIdentity"),
        session_id=(metadata.get("labels") or {}).get(SESSION),
        grant_id=notes.get(GRANT_ID),
        last_tick_us=_number(notes.get(LAST_TICK)),
        kept_until_us=_number(notes.get(KEPT_UNTIL)) or 0,
        acquired_at_us=_micro_time_us(spec.get("acquireTime")),
        transitions=spec.get("leaseTransitions") or 0,
        released_id=notes.get(RELEASED),
    )


@dataclass(frozen=True, slots=True)
class SessionObject:
    """A session's Lease, as it was read."""

    id: str
    uid: str
    version: str
    ttl_s: float


def new_session(prefix: str, session: Session, *, now_us: int) -> Json:
    """Return the Lease of a new session."""
    now = micro_time(now_us)
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": session_object_name(prefix, session.id),
            "labels": _labels(prefix, "session", session.id),
            "annotations": {TTL_MS: str(math.ceil(session.ttl_s * 1000)), RENEWALS: "0"},
        },
        "spec": {
            "holderIdentity": session.holder,
            "leaseDurationSeconds": max(1, math.ceil(session.ttl_s)),
            "acquireTime": now,
            "renewTime": now,
        },
    }


def renewal(uid: str | None, *, renewals: int, now_us: int) -> Json:
    """Return the merge patch of a renewal.

    The uid makes it fail if the session was deleted and another object has its name. The count ensures that something
    changes, so that the server gives the object a new version even if the clock did not advance.
    """
    metadata: Json = {"annotations": {RENEWALS: str(renewals)}}
    if uid is not None:
        metadata["uid"] = uid
    return {"metadata": metadata, "spec": {"renewTime": micro_time(now_us)}}


def read_session(lease: Json) -> SessionObject | None:
    """Read a session's Lease; None if it is being deleted and only waits for a finalizer."""
    metadata, spec = lease["metadata"], lease.get("spec") or {}
    if "deletionTimestamp" in metadata:
        return None
    ttl_ms = _number((metadata.get("annotations") or {}).get(TTL_MS))
    ttl_s = ttl_ms / 1000 if ttl_ms else float(spec.get("leaseDurationSeconds") or 1)
    session_id = (metadata.get("labels") or {}).get(ID, metadata["name"])
    return SessionObject(session_id, metadata["uid"], metadata["resourceVersion"], ttl_s)


def micro_time(at_us: int) -> str:
    """Format an instant for Kubernetes: always six digits, in UTC."""
    return instant(at_us).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _micro_time_us(text: str | None) -> int | None:
    try:
        return None if text is None else microseconds(datetime.fromisoformat(text))
    except (ValueError, TypeError):
        return None


def _labels(prefix: str, kind: str, object_id: str) -> dict[str, str]:
    return {MANAGED_BY: "fencepost", PREFIX: prefix, KIND: kind, ID: object_id}


def _changed(present: Mapping[str, str] | None, changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**(present or {}), **changes}
    return {key: value for key, value in merged.items() if value is not None}


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
