"""Records which SQLite files this context (thread or task) has locked in an open transaction of the user.

Code that writes to such a file from the same context would wait for itself until a timeout; with this record it can
raise an error at once. Nothing is locked by it.
"""

from __future__ import annotations

from contextvars import ContextVar

_held: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("fencepost_held_files", default=())


def hold(path: str, by: str) -> None:
    """Record that a transaction of `by` has locked the file."""
    _held.set((*_held.get(), (path, by)))


def let_go(path: str, by: str) -> None:
    """Record that the transaction has ended."""
    rest = list(_held.get())
    if (path, by) in rest:
        rest.remove((path, by))
    _held.set(tuple(rest))


def holds_any() -> bool:
    """Whether a transaction is open in this context."""
    return bool(_held.get())


def holder_of(path: str) -> str | None:
    """Return the owner of the transaction in this context that has locked the file."""
    return next((by for held, by in _held.get() if held == path), None)
