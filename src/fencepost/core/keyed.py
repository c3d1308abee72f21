"""Whether a transaction that is open did something by which its effects land once.

Whatever makes effects land once says so here (`note_key`): an idempotency key, a sequence that was advanced, rows that
were taken. Whoever opens transactions for a job that relies on that (``effects="idempotent"``) watches them
(`watching`), so that a key that was forgotten is noticed.

Pure bookkeeping within one context (thread, or task): nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class OpenTransaction:
    """One open transaction. `tx` is what the user got; `has_key` whether something in it lands once by a key."""

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
    """Say that something in the transaction `tx` lands once.

    It may be another face of a transaction that is watched (the connection of a session): if none of those open is
    `tx` itself, the innermost is meant.
    """
    watches = _open.get()
    for watch in [each for each in watches if each.tx is tx] or watches[-1:]:
        watch.has_key = True
