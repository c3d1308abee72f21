"""Names of locks and of holders.

The name of a lock is a printable text of 1 to 200 characters (800 bytes of UTF-8), compared exactly: case, spaces and
accents count. Stores that allow fewer characters (a Kubernetes object, a ZooKeeper node) encode it; the user never sees
the encoding.
"""

from __future__ import annotations

import functools

from fencepost.errors import InvalidName

LONGEST_NAME = 200  # readable, and short enough for every store with its prefix
LONGEST_NAME_BYTES = 800  # four bytes a character; etcd, ZooKeeper and Redis count bytes
NODE_LEASE = "fencepost/node/"
"""Prefix of the lock of a node's session; the node's identity follows. Used once, because identities are not reused."""
LEADER_LEASE = "fencepost/leader"
"""The lock of the node that plans for all, where there is one."""


def lock_name(name: object) -> str:
    """Return `name` if every store can keep it unchanged, else raise `InvalidName`."""
    if not isinstance(name, str):
        raise InvalidName(f"the name of a lock must be a text, not {type(name).__name__}")
    return _faithful(name)


@functools.lru_cache(maxsize=1024)
def _faithful(name: str) -> str:
    if not name or name != name.strip():
        raise InvalidName(f"lock name {_shown(name)} must not be empty or begin or end with white space")
    if len(name) > LONGEST_NAME:
        raise InvalidName(
            f"lock name {_shown(name)} has {len(name)} characters; the limit is {LONGEST_NAME}: "
            "shorten it, or use a hash of the long part"
        )
    if not name.isprintable():
        raise InvalidName(f"lock name {_shown(name)} has characters that cannot be printed")
    if len(name.encode()) > LONGEST_NAME_BYTES:
        raise InvalidName(f"lock name {_shown(name)} is longer than {LONGEST_NAME_BYTES} bytes of UTF-8")
    return name


def holder_name(*, host: str, pid: int, start_id: str) -> str:
    """Return the name of one start of a process. Two processes of a host, or two starts of one, never share a name."""
    return f"{host}:{pid}:{start_id[:8]}"


def _shown(name: str) -> str:
    return repr(name if len(name) <= 40 else name[:37] + "…")
