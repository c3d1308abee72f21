"""Which SQLite files this context (thread, or task) keeps to itself, in a transaction of the user's that is open.

Whoever wants to write there from the same context would wait for itself, until the file is taken from it: that can be
said at once. Pure bookkeeping; nothing is locked by it.
"""

from __future__ import annotations

from contextvars import ContextVar

_held: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("fencepost_held_files", default=())


def hold(path: str, by: str) -> None:
    """Note that a transaction of `by` has the file from now on."""
    _held.set((*_held.get(), (path, by)))


def let_go(path: str, by: str) -> None:
    """Note that it has ended."""
    rest = list(_held.get())
    if (path, by) in rest:
        rest.remove((path, by))
    _held.set(tuple(rest))


def holds_any() -> bool:
    """Whether a transaction is open in this context."""
    return bool(_held.get())


def holder_of(path: str) -> str | None:
    """Return whose transaction has the file, in this context."""
    return next((by for held, by in _held.get() if held == path), None)
