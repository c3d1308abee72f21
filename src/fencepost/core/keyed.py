"""Records whether an open transaction used something that makes its effects land once.

Code that makes effects land once reports it here (`note_key`): an idempotency key, an advanced sequence, taken rows.
For a job that relies on this (``effects="idempotent"``), each transaction is opened inside `watching`, so that a
forgotten key is noticed.

The record is kept per context (thread or task). Nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class OpenTransaction:
    """One open transaction. `tx` is the user's object; `has_key`: whether a key protects an effect in it."""

    tx: object
    has_key: bool = False


_open: ContextVar[tuple[OpenTransaction, ...]] = ContextVar("fencepost_open_transactions", default=())


@contextmanager
def watching(tx: object) -> Iterator[OpenTransaction]:
    """Watch the transaction `tx` until it ends."""
    watch = OpenTransaction(tx)
    before = _open.set((*_open.get(), watch))
    try:
        yield watch
    finally:
        _open.reset(before)


def note_key(tx: object) -> None:
    """Record that an effect in the transaction `tx` is protected by a key.

    `tx` may be another object for a watched transaction (the connection of a session). So if no open transaction is
    `tx` itself, the innermost one is marked.
    """
    watches = _open.get()
    for watch in [each for each in watches if each.tx is tx] or watches[-1:]:
        watch.has_key = True
