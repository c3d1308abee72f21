"""Multis: transactions in which all operations happen, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kazoo.exceptions import NoAuthError, NoNodeError, RolledBackError, RuntimeInconsistency

from fencepost.errors import StoreUnavailable
from fencepost.leases.stores.zookeeper.link import ANSWERS, Link, NoRights

Part = Callable[[Any], None]
_ANY_VERSION = -1  # as ZooKeeper defines it


class TransactionOutcome(NamedTuple):
    """The result of each operation. `failed` is the number of the one that failed, with `error`, or None."""

    values: list[Any]
    failed: int | None
    error: Exception | None
    repeated: bool

    @property
    def is_done(self) -> bool:
        """Whether all operations were carried out."""
        return self.failed is None

    def is_missing(self, part: int) -> bool:
        """Whether it failed because the node of this operation does not exist."""
        return self.failed == part and isinstance(self.error, NoNodeError)


def exists(path: str) -> Part:
    """Check that a node exists."""
    return lambda multi: multi.check(path, _ANY_VERSION)


def is_unchanged(path: str, version: int) -> Part:
    """Check a node's version."""
    return lambda multi: multi.check(path, version)


def write(path: str, content: bytes, version: int) -> Part:
    """Write a node that is at `version`."""
    return lambda multi: multi.set_data(path, content, version)


def create(path: str, content: bytes = b"", *, ephemeral: bool = False) -> Part:
    """Create a node."""
    return lambda multi: multi.create(path, content, ephemeral=ephemeral)


def delete(path: str, version: int = _ANY_VERSION) -> Part:
    """Delete a node; with a version, only if the node has it."""
    return lambda multi: multi.delete(path, version)


def commit(link: Link, parts: list[Part], deadline: float) -> TransactionOutcome:
    """Carry out the operations in one round trip."""

    def request(client: Any) -> Any:
        multi = client.transaction()
        for part in parts:
            part(multi)
        return multi.commit_async()

    answers = link.ask_all([request], deadline)
    values = answers.values[0]
    if isinstance(values, Exception):
        return TransactionOutcome([], 0, values, answers.repeated)
    for number, value in enumerate(values):
        if isinstance(value, ANSWERS):
            return TransactionOutcome(values, number, value, answers.repeated)
        if isinstance(value, NoAuthError):
            raise NoRights("ZooKeeper says that we have no right to do that")
        if isinstance(value, Exception) and not isinstance(value, RolledBackError | RuntimeInconsistency):
            raise StoreUnavailable(f"ZooKeeper refused: {type(value).__name__}")
    return TransactionOutcome(values, None, None, answers.repeated)
